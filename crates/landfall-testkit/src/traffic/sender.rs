//! A relay in small.

use std::sync::Arc;
use std::time::Duration;

use landfall_core::Publisher;
use tokio::time::Instant;

use super::account::Account;
use super::outbox::Outbox;

/// How long a key waits after a message that was not accepted: as in a relay, only shorter.
const BACKOFF: Duration = Duration::from_millis(20);
/// What it takes to settle a batch in a database.
const SETTLING: Duration = Duration::from_millis(1);

pub(super) struct Sender {
    publisher: Arc<dyn Publisher>,
    account: Arc<Account>,
    outbox: Outbox,
    batch: usize,
}

impl Sender {
    pub(super) fn new(publisher: Arc<dyn Publisher>, account: Arc<Account>, outbox: Outbox, batch: usize) -> Self {
        Self { publisher, account, outbox, batch }
    }

    /// Sends new messages until it is enough, and then what is left.
    pub(super) async fn run(mut self) {
        while !(self.account.is_over() && self.outbox.is_empty()) {
            if let Err(why) = self.pass().await {
                return self.account.breaks(why);
            }
        }
        self.account.ends();
    }

    async fn pass(&mut self) -> Result<(), String> {
        if self.account.wants_more() {
            self.account.makes(self.outbox.fill(self.batch));
        }
        let batch = self.outbox.next(self.batch);
        if !batch.is_empty() {
            self.account.sends(&batch);
            let outcomes = self.publisher.publish(&batch).await;
            self.account.learns(&batch, &outcomes)?;
            self.outbox.settle(&batch, &outcomes, Instant::now() + BACKOFF);
        }
        tokio::time::sleep(SETTLING).await;
        Ok(())
    }
}
