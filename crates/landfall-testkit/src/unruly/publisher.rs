//! Publishing whose answer is lost.

use std::collections::HashSet;
use std::sync::Arc;

use async_trait::async_trait;
use landfall_core::{Message, Outcome, Publisher};

use super::crowd::Shared;
use super::fate::Fate;

pub(super) struct UnrulyPublisher {
    pub(super) publisher: Arc<dyn Publisher>,
    pub(super) shared: Arc<Shared>,
}

#[async_trait]
impl Publisher for UnrulyPublisher {
    async fn publish(&self, batch: &[Message]) -> Vec<Outcome> {
        let mut outcomes = self.publisher.publish(batch).await;
        let troubles = self.shared.troubles();
        // Whoever hears nothing of a message can have heard nothing of those behind it.
        let mut unanswered = HashSet::new();
        for (message, outcome) in batch.iter().zip(&mut outcomes) {
            let is_lost = Fate::is_answer_lost(&troubles, self.shared.number_of_publish());
            let key = message.key.as_ref().map(|key| (&message.topic, key));
            let is_behind = key.is_some_and(|key| unanswered.contains(&key));
            if outcome.is_accepted() && (is_lost || is_behind) {
                *outcome = Outcome::Unknown("the answer was lost on purpose".into());
                unanswered.extend(key);
                self.shared.count(|happened| happened.answers_lost += 1);
            }
        }
        outcomes
    }
}
