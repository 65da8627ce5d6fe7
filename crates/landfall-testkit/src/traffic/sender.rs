//! A minimal relay.

use std::sync::Arc;
use std::time::Duration;

use landfall_core::Publisher;
use tokio::time::Instant;

use super::outbox::Outbox;
use super::recorder::Recorder;

/// How long a key waits after a message that was not accepted: shorter than in the relay.
const BACKOFF: Duration = Duration::from_millis(20);
/// Simulates the time it takes to settle a batch in a database.
const SETTLE_TIME: Duration = Duration::from_millis(1);

pub(super) struct Sender {
    publisher: Arc<dyn Publisher>,
    recorder: Arc<Recorder>,
    outbox: Outbox,
    batch: usize,
}

impl Sender {
    pub(super) fn new(publisher: Arc<dyn Publisher>, recorder: Arc<Recorder>, outbox: Outbox, batch: usize) -> Self {
        Self { publisher, recorder, outbox, batch }
    }

    /// Sends new messages until the load stops, and then the rest of the outbox.
    pub(super) async fn run(mut self) {
        while !(self.recorder.is_stopping() && self.outbox.is_empty()) {
            if let Err(error) = self.publish_batch().await {
                return self.recorder.fail(error);
            }
        }
        self.recorder.sender_finished();
    }

    async fn publish_batch(&mut self) -> Result<(), String> {
        if self.recorder.may_create() {
            self.recorder.record_created(self.outbox.fill(self.batch));
        }
        let batch = self.outbox.next(self.batch);
        if !batch.is_empty() {
            self.recorder.record_send(&batch);
            let outcomes = self.publisher.publish(&batch).await;
            self.recorder.record_outcomes(&batch, &outcomes)?;
            self.outbox.settle(&batch, &outcomes, Instant::now() + BACKOFF);
        }
        tokio::time::sleep(SETTLE_TIME).await;
        Ok(())
    }
}
