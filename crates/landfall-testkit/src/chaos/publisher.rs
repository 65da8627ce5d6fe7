//! A publisher that loses responses.

use std::collections::HashSet;
use std::sync::Arc;

use async_trait::async_trait;
use landfall_core::{Message, Outcome, Publisher};

use super::delivery_faults::DeliveryFaults;
use super::shared::Shared;

pub(super) struct ChaosPublisher {
    pub(super) publisher: Arc<dyn Publisher>,
    pub(super) shared: Arc<Shared>,
}

#[async_trait]
impl Publisher for ChaosPublisher {
    async fn publish(&self, batch: &[Message]) -> Vec<Outcome> {
        let mut outcomes = self.publisher.publish(batch).await;
        let options = self.shared.options();
        // A sender that got no response for a message got none for later messages of its key either.
        let mut unanswered = HashSet::new();
        for (message, outcome) in batch.iter().zip(&mut outcomes) {
            let is_lost = DeliveryFaults::is_response_lost(&options, self.shared.next_publish_number());
            let key = message.key.as_ref().map(|key| (&message.topic, key));
            let is_behind = key.is_some_and(|key| unanswered.contains(&key));
            if outcome.is_accepted() && (is_lost || is_behind) {
                *outcome = Outcome::Unknown("the chaos broker dropped the response".into());
                unanswered.extend(key);
                self.shared.count(|counts| counts.responses_lost += 1);
            }
        }
        outcomes
    }
}
