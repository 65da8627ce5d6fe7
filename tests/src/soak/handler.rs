//! The consuming service of a soak, and the payload of its messages.

use landfall::consume::{Context, Handler};
use landfall::{ErrorCode, Failure, MessageId, Result};

use super::ledger::{Entry, Ledger};
use crate::handler::Behaviour;

/// The payload: its behaviour, its operation's token, and its number within the account, which is the key.
pub fn payload(behaviour: Behaviour, token: MessageId, number: i64) -> String {
    format!("{} {token} {number}", behaviour.as_str())
}

pub(super) fn parse(payload: &[u8]) -> Option<(Behaviour, MessageId, i64)> {
    let mut words = std::str::from_utf8(payload).ok()?.split(' ');
    let behaviour = Behaviour::parse(words.next()?.as_bytes())?;
    Some((behaviour, words.next()?.parse().ok()?, words.next()?.parse().ok()?))
}

/// Inserts into `soak_effect` before it fails: an incomplete rollback would be visible.
#[derive(Debug, Clone)]
pub struct Apply<D>(pub D);

impl<D: Ledger> Handler<D> for Apply<D> {
    async fn handle(&self, context: Context<'_, D>) -> Result<(), Failure> {
        let Context { message, connection, attempt, .. } = context;
        let (Some((behaviour, token, number)), Some(key)) = (parse(&message.payload), &message.key) else {
            return Err(Failure::park(ErrorCode::VALIDATION, "not a message of the writers"));
        };
        self.0.apply(connection, &Entry { token, account: key.to_string(), number }).await?;
        behaviour.apply(attempt)
    }
}
