//! The contract of the publisher port for the outcomes of a batch.

use std::collections::HashSet;

use landfall_core::{Message, Outcome};

/// Asserts that `outcomes` follow the contract of the publisher port.
///
/// # Panics
///
/// Unless each message has one outcome, and no message is accepted after an unaccepted one of its key.
pub fn assert_keys_wait(batch: &[Message], outcomes: &[Outcome]) {
    if let Err(error) = check(batch, outcomes) {
        panic!("{error}");
    }
}

pub(super) fn check(batch: &[Message], outcomes: &[Outcome]) -> Result<(), String> {
    if batch.len() != outcomes.len() {
        return Err(format!("{} messages have {} outcomes", batch.len(), outcomes.len()));
    }
    let mut failed_keys = HashSet::new();
    for (message, outcome) in batch.iter().zip(outcomes).filter(|(message, _)| message.key.is_some()) {
        let key = (&message.topic, &message.key);
        if !outcome.is_accepted() {
            failed_keys.insert(key);
        } else if failed_keys.contains(&key) {
            let Message { sequence, key, .. } = message;
            return Err(format!(
                "sequence {sequence:?} of key {key:?} overtook an earlier message that was not accepted"
            ));
        }
    }
    Ok(())
}
