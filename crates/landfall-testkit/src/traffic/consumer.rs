//! A minimal consumer.

use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use landfall_core::adapter::{Delivery, Subscriber};
use tokio::sync::Notify;

use super::recorder::Recorder;

/// How many acknowledgements may be pending while it receives more messages.
const PENDING_ACKS: usize = 16;

pub(super) struct Consumer {
    subscriber: Box<dyn Subscriber>,
    recorder: Arc<Recorder>,
    leave: Arc<Notify>,
}

impl Consumer {
    pub(super) fn new(subscriber: Box<dyn Subscriber>, recorder: Arc<Recorder>) -> Self {
        Self { subscriber, recorder, leave: Arc::default() }
    }

    /// Notify this to make the consumer leave its group.
    pub(super) fn leave_signal(&self) -> Arc<Notify> {
        self.leave.clone()
    }

    pub(super) async fn run(self) {
        let recorder = self.recorder.clone();
        if let Err(error) = self.consume().await {
            recorder.fail(error);
        }
    }

    /// A subscriber reconnects automatically, whatever happens to its broker: any error fails the test.
    async fn consume(self) -> Result<(), String> {
        let Self { mut subscriber, recorder, leave } = self;
        let mut pending_acks = FuturesUnordered::new();
        loop {
            tokio::select! {
                () = leave.notified() => break,
                Some(finished) = pending_acks.next() => {
                    // A message whose acknowledgement failed is redelivered, and the inbox discards it.
                    let _: landfall_core::Result<()> = finished;
                }
                next = subscriber.next(), if pending_acks.len() < PENDING_ACKS => {
                    let delivery = next.map_err(|error| format!("a subscriber failed: {error}"))?;
                    let Some(delivery) = delivery else { return Err("a subscriber ended".into()) };
                    pending_acks.push(handle(delivery, &recorder)?);
                }
            }
        }
        while pending_acks.next().await.is_some() {}
        subscriber.close().await.map_err(|error| format!("a consumer failed to leave its group: {error}"))
    }
}

/// Records the effect and returns the acknowledgement that follows it.
fn handle(
    delivery: Delivery,
    recorder: &Recorder,
) -> Result<impl Future<Output = landfall_core::Result<()>> + Send + use<>, String> {
    let (message, _, acknowledge) = delivery.into_parts();
    let message = message.map_err(|error| format!("a delivery is not a valid message: {error}"))?;
    recorder.record_delivery(&message);
    Ok(async move { acknowledge.ack().await })
}
