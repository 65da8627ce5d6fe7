//! Numbers, where ids are not enough (O3, C4): what an entity has reached decides whether a message is next, a
//! repeat, too early or too old.
//!
//! The numbers are the messages' `sequence`, counted by topic and key, and stand in the same transaction as the effect.
//! A message without a key or a number passes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures_util::future::BoxFuture;
use landfall_core::{Database, EntityName, ErrorCode, Failure, GroupName, Message, Result, Sequences};

/// How numbers are checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SequenceCheck {
    /// Each message follows the one before it without a gap. A number that was reached is a duplicate; one further
    /// ahead than the next is out of order.
    Consecutive {
        /// The first number of an entity; `None` takes whichever comes first.
        first: Option<i64>,
        /// What happens to one that is out of order.
        early: Early,
    },
    /// The number is the version of the entity's state: a higher one is applied, the same one is a duplicate, and a
    /// lower one is parked as `VERSION_CONFLICT`. Nobody waits for it.
    Newest,
}

/// What happens to a message before its predecessors have taken effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Early {
    /// It is kept and tried again, while what precedes it passes; after this time it is parked.
    Wait(Duration),
    /// It is given back to the broker, to be delivered again after this time.
    Refuse(Duration),
    /// It is parked as `OUT_OF_ORDER`. What it was missing passes when it comes, and then it can be redriven.
    Park,
}

/// What the numbers say of one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Passage {
    Apply,
    Duplicate,
    /// The number that would have been next.
    Early {
        expected: i64,
    },
    /// The number that was reached.
    Stale {
        reached: i64,
    },
}

impl Passage {
    /// Why it cannot be applied.
    pub(super) fn failure(self, message: &Message) -> Option<Failure> {
        let number = message.sequence.unwrap_or_default();
        match self {
            Passage::Apply | Passage::Duplicate => None,
            Passage::Early { expected } => {
                Some(Failure::wait(ErrorCode::OUT_OF_ORDER, format!("number {number} came, {expected} is next")))
            }
            Passage::Stale { reached } => {
                Some(Failure::park(ErrorCode::VERSION_CONFLICT, format!("version {number} came after {reached}")))
            }
        }
    }
}

/// A [`SequenceCheck`] on a database, as an object: only who asks for it needs a database that can.
pub(super) trait Gate<D: Database>: Send + Sync {
    /// One answer for each of `messages`, as if they were applied one after the other, and what they reach recorded.
    fn pass<'a>(
        &'a self,
        database: &'a D,
        connection: &'a mut D::Connection,
        group: &'a GroupName,
        messages: &'a [&'a Message],
    ) -> BoxFuture<'a, Result<Vec<Passage>>>;

    fn early(&self) -> Option<Early>;
}

impl<D: Sequences> Gate<D> for SequenceCheck {
    fn pass<'a>(
        &'a self,
        database: &'a D,
        connection: &'a mut D::Connection,
        group: &'a GroupName,
        messages: &'a [&'a Message],
    ) -> BoxFuture<'a, Result<Vec<Passage>>> {
        Box::pin(async move {
            let names: BTreeSet<EntityName<'_>> =
                messages.iter().filter_map(|message| entity(message)).map(|(name, _)| name).collect();
            let names: Vec<_> = names.into_iter().collect();
            if names.is_empty() {
                return Ok(vec![Passage::Apply; messages.len()]);
            }
            let before = database.reached(connection, group, &names).await?;
            let mut reached: BTreeMap<_, _> = names.iter().copied().zip(before).collect();
            let mut changed = BTreeMap::new();
            let mut passages = Vec::with_capacity(messages.len());
            for message in messages {
                let Some((name, number)) = entity(message) else {
                    passages.push(Passage::Apply);
                    continue;
                };
                let passage = self.judge(reached.get(&name).copied().flatten(), number);
                if passage == Passage::Apply {
                    reached.insert(name, Some(number));
                    changed.insert(name, number);
                }
                passages.push(passage);
            }
            let changed: Vec<_> = changed.into_iter().collect();
            if !changed.is_empty() {
                database.reach(connection, group, &changed).await?;
            }
            Ok(passages)
        })
    }

    fn early(&self) -> Option<Early> {
        match self {
            SequenceCheck::Consecutive { early, .. } => Some(*early),
            SequenceCheck::Newest => None,
        }
    }
}

impl SequenceCheck {
    fn judge(&self, reached: Option<i64>, number: i64) -> Passage {
        match (self, reached) {
            (SequenceCheck::Consecutive { first, .. }, reached) => {
                let expected = reached.map_or(first.unwrap_or(number), |reached| reached.saturating_add(1));
                match number.cmp(&expected) {
                    std::cmp::Ordering::Less => Passage::Duplicate,
                    std::cmp::Ordering::Equal => Passage::Apply,
                    std::cmp::Ordering::Greater => Passage::Early { expected },
                }
            }
            (SequenceCheck::Newest, Some(reached)) if number < reached => Passage::Stale { reached },
            (SequenceCheck::Newest, Some(reached)) if number == reached => Passage::Duplicate,
            (SequenceCheck::Newest, _) => Passage::Apply,
        }
    }
}

fn entity(message: &Message) -> Option<(EntityName<'_>, i64)> {
    let key = message.key.as_ref()?;
    Some(((message.topic.as_str(), key.as_str()), message.sequence?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_in_order_repeated_or_ahead_of_the_one_that_is_next() {
        let from = |first| SequenceCheck::Consecutive { first, early: Early::Park };
        assert_eq!(from(None).judge(None, 7), Passage::Apply);
        assert_eq!(from(Some(1)).judge(None, 7), Passage::Early { expected: 1 });
        assert_eq!(from(Some(1)).judge(None, 1), Passage::Apply);
        assert_eq!(from(Some(1)).judge(None, 0), Passage::Duplicate);
        for (number, passage) in
            [(4, Passage::Duplicate), (5, Passage::Duplicate), (6, Passage::Apply), (8, Passage::Early { expected: 6 })]
        {
            assert_eq!(from(Some(1)).judge(Some(5), number), passage);
        }
    }

    #[test]
    fn versions_may_jump_ahead_and_never_back() {
        let judge = |reached, number| SequenceCheck::Newest.judge(reached, number);
        assert_eq!([judge(None, 3), judge(Some(3), 9)], [Passage::Apply, Passage::Apply]);
        assert_eq!([judge(Some(9), 9), judge(Some(9), 4)], [Passage::Duplicate, Passage::Stale { reached: 9 }]);
    }
}
