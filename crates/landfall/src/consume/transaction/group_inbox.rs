//! The inbox of one consumer group.

use landfall_core::adapter::{Admission, Arrival};
use landfall_core::{GroupName, Inbox, Message, Mode, Result};

use crate::call_deadline::CallDeadline;
use crate::consume::options::Idempotence;

/// A database with the group whose inbox rows it keeps.
#[derive(Debug, Clone)]
pub(crate) struct GroupInbox<D> {
    pub(crate) database: D,
    pub(crate) group: GroupName,
    pub(crate) idempotence: Idempotence,
}

impl<D: Inbox> GroupInbox<D> {
    /// Inserts the inbox rows of `arrivals`, or only checks whether their keys are held where the handler itself is
    /// idempotent. One admission for each, in order.
    pub(crate) async fn admit(
        &self,
        connection: &mut D::Connection,
        arrivals: &[Arrival<'_>],
    ) -> Result<Vec<Admission>> {
        if self.idempotence == Idempotence::Handler {
            let messages: Vec<_> = arrivals.iter().map(|arrival| without_deduplication(arrival.message)).collect();
            let arrivals: Vec<_> = messages
                .iter()
                .zip(arrivals)
                .map(|(message, Arrival { origin, .. })| Arrival { message, origin: *origin })
                .collect();
            return CallDeadline::STATEMENT.run(self.database.admit_batch(connection, &self.group, &arrivals)).await;
        }
        match arrivals {
            // One statement less than a batch of one, and the usual case at low load.
            [Arrival { message, origin }] => {
                let admission = self.database.admit(connection, &self.group, message, *origin);
                Ok(vec![CallDeadline::STATEMENT.run(admission).await?])
            }
            several => CallDeadline::STATEMENT.run(self.database.admit_batch(connection, &self.group, several)).await,
        }
    }
}

/// A copy whose id is not compared, so that admission checks its key alone.
fn without_deduplication(message: &Message) -> Message {
    message.clone().with_mode(Mode::AtLeastOnce)
}
