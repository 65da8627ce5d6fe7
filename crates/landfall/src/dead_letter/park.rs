//! Parks messages of a consumer, or delays them until their next attempt.

use std::sync::Arc;
use std::time::Duration;

use landfall_core::adapter::{Admission, Arrival, Parking};
use landfall_core::{Backoff, Database, Failure, Inbox, Message, Result};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::writer::DeadLetterWriter;
use crate::consume::{DatabaseBackoff, GroupInbox, Handled};

/// Makes dead letters of single messages, each in a transaction of its own.
pub(crate) struct Parker<D: Database> {
    pub(crate) inbox: GroupInbox<D>,
    pub(crate) dead_letters: Arc<DeadLetterWriter<D>>,
    pub(crate) backoff: Backoff,
    /// Bounds the open transactions of the consumer.
    pub(crate) permits: Arc<Semaphore>,
}

impl<D: Inbox> Parker<D> {
    /// Parks a message; with a time in `again`, delays it and retries after that time.
    ///
    /// Retries database errors until it is stored: a message is not released before. Returns `None` when `stop` is
    /// cancelled first.
    pub(crate) async fn park(
        &self,
        arrival: Arrival<'_>,
        attempts: u32,
        failure: &Failure,
        again: Option<Duration>,
        stop: &CancellationToken,
    ) -> Option<Handled> {
        let mut database = DatabaseBackoff::new(self.backoff);
        let parking = Parking { attempts, failure, hold: self.dead_letters.hold(failure), again };
        loop {
            let permit = self.permits.acquire().await.ok()?;
            let stored = self.try_park(arrival, parking).await;
            drop(permit);
            match stored {
                Ok(outcome) => {
                    self.log(arrival, parking);
                    return Some(outcome);
                }
                Err(error) => {
                    if !database.sleep_after(&error, stop).await {
                        return None;
                    }
                }
            }
        }
    }

    fn log(&self, arrival: Arrival<'_>, parking: Parking<'_>) {
        let Parking { attempts, failure, hold, again } = parking;
        let Message { id: message_id, topic, key, .. } = arrival.message;
        let (key, group) = (key.as_ref().map(|key| key.as_str()), &self.inbox.group);
        match again {
            None => tracing::error!(%message_id, %topic, key, %group, %failure, attempts, ?hold, "parked"),
            Some(pause) => tracing::warn!(%message_id, %topic, key, %group, %failure, attempts, ?pause, "delayed"),
        }
    }

    async fn try_park(&self, arrival: Arrival<'_>, parking: Parking<'_>) -> Result<Handled> {
        let database = &self.inbox.database;
        let mut transaction = database.begin().await?;
        let admission = self.inbox.admit(&mut transaction, &[arrival]).await?.first().copied();
        match admission.unwrap_or(Admission::Fresh) {
            Admission::Duplicate => database.flush(transaction).await.map(|()| Handled::Duplicate),
            Admission::Held => database.commit_seen(transaction).await.map(|()| Handled::Held),
            Admission::Fresh => {
                self.dead_letters.write(&mut transaction, arrival, parking).await?;
                fail::fail_point!("consume.before-park");
                database.commit(transaction).await?;
                if parking.again.is_some() {
                    return Ok(Handled::Delayed);
                }
                self.dead_letters.wake_relay();
                metrics::counter!("landfall_dlq_in_total").increment(1);
                Ok(Handled::Parked)
            }
        }
    }
}
