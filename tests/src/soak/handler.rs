//! The consuming service of a soak, and what its messages carry.

use landfall::consume::{Context, Handler};
use landfall::{ErrorCode, Failure, MessageId, Result};

use super::ledger::{Entry, Ledger};
use crate::handler::Temper;

/// The payload: how it behaves, its operation's token, and its number in the account, which is its key.
pub fn payload(temper: Temper, token: MessageId, number: i64) -> String {
    format!("{} {token} {number}", temper.as_str())
}

pub(super) fn parse(payload: &[u8]) -> Option<(Temper, MessageId, i64)> {
    let mut words = std::str::from_utf8(payload).ok()?.split(' ');
    let temper = Temper::of(words.next()?.as_bytes())?;
    Some((temper, words.next()?.parse().ok()?, words.next()?.parse().ok()?))
}

/// Appends to `soak_effect`, and only then says that it failed: a rollback that forgot something would show.
#[derive(Debug, Clone)]
pub struct Apply<D>(pub D);

impl<D: Ledger> Handler<D> for Apply<D> {
    async fn handle(&self, context: Context<'_, D>) -> Result<(), Failure> {
        let Context { message, connection, attempt, .. } = context;
        let (Some((temper, token, number)), Some(key)) = (parse(&message.payload), &message.key) else {
            return Err(Failure::park(ErrorCode::VALIDATION, "this is no message of the writers"));
        };
        self.0.apply(connection, &Entry { token, account: key.to_string(), number }).await?;
        match temper {
            Temper::Flaky if attempt == 1 => Err(Failure::retry("flaky at the first try")),
            Temper::Poison if attempt == 1 => Err(Failure::park(ErrorCode::new("poison"), "not repaired yet")),
            _ => Ok(()),
        }
    }
}
