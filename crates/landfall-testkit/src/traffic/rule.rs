//! What the port of a publisher says about the outcomes of a batch.

use std::collections::HashSet;

use landfall_core::{Message, Outcome};

/// # Panics
///
/// Unless there is one outcome for each message, and after one that was not accepted no later one of its key is.
pub fn assert_keys_wait(batch: &[Message], outcomes: &[Outcome]) {
    if let Err(why) = check(batch, outcomes) {
        panic!("{why}");
    }
}

pub(super) fn check(batch: &[Message], outcomes: &[Outcome]) -> Result<(), String> {
    if batch.len() != outcomes.len() {
        return Err(format!("{} messages were answered with {} outcomes", batch.len(), outcomes.len()));
    }
    let mut stopped = HashSet::new();
    for (message, outcome) in batch.iter().zip(outcomes).filter(|(message, _)| message.key.is_some()) {
        let key = (&message.topic, &message.key);
        if !outcome.is_accepted() {
            stopped.insert(key);
        } else if stopped.contains(&key) {
            let Message { sequence, key, .. } = message;
            return Err(format!("number {sequence:?} of {key:?} overtook one before it that was not accepted"));
        }
    }
    Ok(())
}
