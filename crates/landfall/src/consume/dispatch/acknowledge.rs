//! Reports to the broker what became of a delivery.

use landfall_core::adapter::Acknowledge;

use super::isolated::Disposition;
use crate::consume::outcome::Handled;

/// Acknowledges a settled delivery and counts it.
pub(crate) async fn settled(acknowledgement: Box<dyn Acknowledge>, outcome: Handled) {
    metrics::counter!("landfall_handled_total", "outcome" => outcome.as_str()).increment(1);
    fail::fail_point!("consume.after-commit");
    if let Err(error) = acknowledgement.ack().await {
        tracing::warn!(%error, "acknowledgement failed; the inbox will discard the redelivery");
    }
    fail::fail_point!("consume.after-ack");
}

/// Acknowledges or returns the delivery of a single message. Without a disposition it is returned by being dropped.
pub(crate) async fn conclude(acknowledgement: Box<dyn Acknowledge>, disposition: Option<Disposition>) {
    match disposition {
        Some(Disposition::Settled(outcome)) => settled(acknowledgement, outcome).await,
        Some(Disposition::OtherGroup) => {
            if let Err(error) = acknowledgement.ack().await {
                tracing::warn!(%error, "acknowledgement failed; the message of another group is redelivered");
            }
        }
        Some(Disposition::Redeliver(delay)) => {
            metrics::counter!("landfall_handled_total", "outcome" => "refused").increment(1);
            if let Err(error) = acknowledgement.nack(delay).await {
                tracing::warn!(%error, "negative acknowledgement failed; the broker redelivers after its own timeout");
            }
        }
        Some(Disposition::Early(_)) | None => {}
    }
}
