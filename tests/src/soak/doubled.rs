//! The account of what took effect more than once: what a person needs to find out how.

use landfall::{DeadLetterFilter, GroupName, Message, MessageId, Position, Result};

use super::handler::parse;
use super::ledger::Entry;
use crate::setup::GROUP;
use crate::worker::Adapter;

/// A line for each of `tokens`: where its message stands in the broker, when it took effect, and what the consumer's
/// database says of it.
pub(super) async fn accounts<D: Adapter>(
    tokens: &[MessageId],
    published: &[(Position, Message)],
    applied: &[Entry],
    consumer: &D,
) -> Result<Vec<String>> {
    let group = GroupName::new(GROUP)?;
    let mut accounts = Vec::with_capacity(tokens.len());
    for token in tokens {
        let is_it = |message: &Message| parse(&message.payload).is_some_and(|(_, carried, _)| carried == *token);
        let copies: Vec<_> = published.iter().filter(|(_, message)| is_it(message)).collect();
        let offsets: Vec<_> = copies.iter().map(|(position, _)| position.offset).collect();
        let mut ids: Vec<MessageId> = copies.iter().map(|(_, message)| message.id).collect();
        ids.sort();
        ids.dedup();
        let places = applied.iter().zip(1..).filter(|(entry, _)| entry.token == *token);
        let effects: Vec<i32> = places.map(|(_, place)| place).collect();
        let handled = consumer.handled(&group, &ids).await?;
        let mut letters = Vec::new();
        for id in &ids {
            let filter = DeadLetterFilter { message_id: Some(*id), ..Default::default() };
            let found = consumer.find(&filter, 10).await?;
            letters.extend(found.iter().map(|letter| format!("{} {:?} {}", letter.id, letter.status, letter.redrives)));
        }
        accounts.push(format!(
            "{token} is {ids:?} at the broker's offsets {offsets:?}; effects {effects:?}; in the inbox {}; letters {letters:?}",
            handled.len()
        ));
    }
    Ok(accounts)
}
