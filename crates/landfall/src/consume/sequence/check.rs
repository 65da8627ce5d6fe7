//! Checks of sequence numbers: the number an entity has reached says whether a message is next, a duplicate, early or
//! stale.
//!
//! The number is the message's `sequence`, counted by topic and key. The number reached is stored in the transaction of
//! the effect. A message without a key or a number is always applied.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures_util::future::BoxFuture;
use landfall_core::adapter::EntityName;
use landfall_core::{Database, ErrorCode, Failure, GroupName, Message, Result, Sequences};

/// How a consumer checks the sequence numbers of a key.
///
/// ```
/// use std::time::Duration;
///
/// use landfall::consume::{Early, SequenceCheck};
///
/// // Every change is applied, in order; a message waits up to a minute for its predecessors.
/// let every_change =
///     SequenceCheck::Consecutive { first: Some(1), early: Early::Wait(Duration::from_secs(60)) };
/// // Only newer versions of a state are applied.
/// let latest_state = SequenceCheck::Newest;
/// # assert_ne!(every_change, latest_state);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SequenceCheck {
    /// Numbers follow each other without a gap. A number that was reached is a duplicate; one beyond the next is early.
    Consecutive {
        /// The first number of an entity; `None` accepts any first number.
        first: Option<i64>,
        /// What happens to an early message.
        early: Early,
    },
    /// The number is a version of the entity's state: a higher one is applied, the same one is a duplicate, and a lower
    /// one is parked as `VERSION_CONFLICT` without holding its key.
    Newest,
}

/// What a consumer does with a message that arrives before its predecessors.
///
/// ```
/// use std::time::Duration;
///
/// use landfall::consume::{Early, SequenceCheck};
///
/// // The broker keeps it and delivers it again after a second.
/// let early = Early::Refuse(Duration::from_secs(1));
/// let check = SequenceCheck::Consecutive { first: None, early };
/// # assert_ne!(check, SequenceCheck::Newest);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Early {
    /// Keeps it and retries while its predecessors are handled; parks it after this time.
    Wait(Duration),
    /// Returns it to the broker for redelivery after this time.
    Refuse(Duration),
    /// Parks it as `OUT_OF_ORDER`. Its predecessors are handled when they arrive; then it can be redriven.
    Park,
}

/// What the sequence number of a message means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SequenceDecision {
    Apply,
    Duplicate,
    /// Predecessors are missing.
    Early {
        /// The next number.
        expected: i64,
    },
    /// Older than what was applied.
    Stale {
        reached: i64,
    },
}

impl SequenceDecision {
    /// Why the message cannot be applied.
    pub(crate) fn failure(self, message: &Message) -> Option<Failure> {
        let number = message.sequence.unwrap_or_default();
        match self {
            SequenceDecision::Apply | SequenceDecision::Duplicate => None,
            SequenceDecision::Early { expected } => Some(Failure::wait(
                ErrorCode::OUT_OF_ORDER,
                format!("sequence number {number} arrived, {expected} is next"),
            )),
            SequenceDecision::Stale { reached } => {
                Some(Failure::park(ErrorCode::VERSION_CONFLICT, format!("version {number} arrived after {reached}")))
            }
        }
    }
}

/// A [`SequenceCheck`] on a database that has [`Sequences`]. An object, so that consumers without a check do not need
/// that bound.
pub(super) trait CheckSequence<D: Database>: Send + Sync {
    /// One decision for each of `messages`, as if they were applied in order; records the numbers they reach.
    fn decide<'a>(
        &'a self,
        database: &'a D,
        connection: &'a mut D::Connection,
        group: &'a GroupName,
        messages: &'a [&'a Message],
    ) -> BoxFuture<'a, Result<Vec<SequenceDecision>>>;

    /// What happens to an early message, if there can be one.
    fn early(&self) -> Option<Early>;
}

impl<D: Sequences> CheckSequence<D> for SequenceCheck {
    fn decide<'a>(
        &'a self,
        database: &'a D,
        connection: &'a mut D::Connection,
        group: &'a GroupName,
        messages: &'a [&'a Message],
    ) -> BoxFuture<'a, Result<Vec<SequenceDecision>>> {
        Box::pin(async move {
            let names: BTreeSet<EntityName<'_>> =
                messages.iter().filter_map(|message| entity(message)).map(|(name, _)| name).collect();
            let names: Vec<_> = names.into_iter().collect();
            if names.is_empty() {
                return Ok(vec![SequenceDecision::Apply; messages.len()]);
            }
            let before = database.reached(connection, group, &names).await?;
            let mut reached: BTreeMap<_, _> = names.iter().copied().zip(before).collect();
            let mut changed = BTreeMap::new();
            let mut decisions = Vec::with_capacity(messages.len());
            for message in messages {
                let Some((name, number)) = entity(message) else {
                    decisions.push(SequenceDecision::Apply);
                    continue;
                };
                let decision = self.classify(reached.get(&name).copied().flatten(), number);
                if decision == SequenceDecision::Apply {
                    reached.insert(name, Some(number));
                    changed.insert(name, number);
                }
                decisions.push(decision);
            }
            let changed: Vec<_> = changed.into_iter().collect();
            if !changed.is_empty() {
                database.reach(connection, group, &changed).await?;
            }
            Ok(decisions)
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
    fn classify(&self, reached: Option<i64>, number: i64) -> SequenceDecision {
        match (self, reached) {
            (SequenceCheck::Consecutive { first, .. }, reached) => {
                let expected = reached.map_or(first.unwrap_or(number), |reached| reached.saturating_add(1));
                match number.cmp(&expected) {
                    std::cmp::Ordering::Less => SequenceDecision::Duplicate,
                    std::cmp::Ordering::Equal => SequenceDecision::Apply,
                    std::cmp::Ordering::Greater => SequenceDecision::Early { expected },
                }
            }
            (SequenceCheck::Newest, Some(reached)) if number < reached => SequenceDecision::Stale { reached },
            (SequenceCheck::Newest, Some(reached)) if number == reached => SequenceDecision::Duplicate,
            (SequenceCheck::Newest, _) => SequenceDecision::Apply,
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
    fn consecutive_numbers_are_next_duplicate_or_early() {
        let from = |first| SequenceCheck::Consecutive { first, early: Early::Park };
        assert_eq!(from(None).classify(None, 7), SequenceDecision::Apply);
        assert_eq!(from(Some(1)).classify(None, 7), SequenceDecision::Early { expected: 1 });
        assert_eq!(from(Some(1)).classify(None, 1), SequenceDecision::Apply);
        assert_eq!(from(Some(1)).classify(None, 0), SequenceDecision::Duplicate);
        for (number, decision) in [
            (4, SequenceDecision::Duplicate),
            (5, SequenceDecision::Duplicate),
            (6, SequenceDecision::Apply),
            (8, SequenceDecision::Early { expected: 6 }),
        ] {
            assert_eq!(from(Some(1)).classify(Some(5), number), decision);
        }
    }

    #[test]
    fn versions_may_skip_ahead_but_never_go_back() {
        let classify = |reached, number| SequenceCheck::Newest.classify(reached, number);
        assert_eq!([classify(None, 3), classify(Some(3), 9)], [SequenceDecision::Apply, SequenceDecision::Apply]);
        assert_eq!(
            [classify(Some(9), 9), classify(Some(9), 4)],
            [SequenceDecision::Duplicate, SequenceDecision::Stale { reached: 9 }]
        );
    }
}
