//! Details of duplicate effects, to find out how they happened.

use landfall::{DeadLetterFilter, GroupName, Message, MessageId, Position, Result};

use super::handler::parse;
use super::ledger::Entry;
use crate::setup::GROUP;
use crate::worker::Adapter;

/// One line for each of `tokens`: the offsets of its message in the broker, the positions of its effects, and its state
/// in the consumer's database.
pub(super) async fn describe<D: Adapter>(
    tokens: &[MessageId],
    published: &[(Position, Message)],
    applied: &[Entry],
    consumer: &D,
) -> Result<Vec<String>> {
    let group = GroupName::new(GROUP)?;
    let mut descriptions = Vec::with_capacity(tokens.len());
    for token in tokens {
        let has_token = |message: &Message| parse(&message.payload).is_some_and(|(_, carried, _)| carried == *token);
        let copies: Vec<_> = published.iter().filter(|(_, message)| has_token(message)).collect();
        let offsets: Vec<_> = copies.iter().map(|(position, _)| position.offset).collect();
        let mut ids: Vec<MessageId> = copies.iter().map(|(_, message)| message.id).collect();
        ids.sort();
        ids.dedup();
        let ordinals = applied.iter().zip(1..).filter(|(entry, _)| entry.token == *token);
        let effects: Vec<i32> = ordinals.map(|(_, ordinal)| ordinal).collect();
        let handled = consumer.handled(&group, &ids).await?;
        let mut letters = Vec::new();
        for id in &ids {
            let filter = DeadLetterFilter { message_id: Some(*id), ..Default::default() };
            let found = consumer.find(&filter, 10).await?;
            letters.extend(found.iter().map(|letter| format!("{} {:?} {}", letter.id, letter.status, letter.redrives)));
        }
        descriptions.push(format!(
            "{token} is {ids:?} at the broker's offsets {offsets:?}; effects {effects:?}; \
             in the inbox {}; dead letters {letters:?}",
            handled.len()
        ));
    }
    Ok(descriptions)
}
