//! The consuming service: one effect per message, in the inbox transaction, and nothing else.

use landfall::consume::{Context, Handler};
use landfall::{ErrorCode, Failure, Message, Result};
use rand::Rng;

use crate::books::Books;

/// How a message behaves in the handler; it says so in its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Temper {
    Plain,
    /// Fails at the first try of every delivery.
    Flaky,
    /// Is parked when it is first seen, and works once a person has redriven it.
    Poison,
}

impl Temper {
    const ALL: [Temper; 3] = [Temper::Plain, Temper::Flaky, Temper::Poison];

    /// Few are poison: while a key is held its messages are handled as dead letters, and must not come in faster.
    pub fn pick(random: &mut impl Rng, trouble: bool) -> Self {
        match random.random_range(0..100) {
            0 if trouble => Temper::Poison,
            1..=5 if trouble => Temper::Flaky,
            _ => Temper::Plain,
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Temper::Plain => "plain",
            Temper::Flaky => "flaky",
            Temper::Poison => "poison",
        }
    }

    /// How this try of `message` ends.
    pub fn judge(message: &Message, attempt: u32) -> Result<(), Failure> {
        match Self::of(&message.payload) {
            Some(Temper::Flaky) if attempt == 1 => Err(Failure::retry("flaky at the first try")),
            Some(Temper::Poison) if attempt == 1 => Err(Failure::park(ErrorCode::new("poison"), "not repaired yet")),
            Some(_) => Ok(()),
            None => Err(Failure::park(ErrorCode::VALIDATION, "this is no payload of the writers")),
        }
    }

    pub fn of(payload: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|temper| temper.as_str().as_bytes() == payload)
    }
}

/// Appends to `effects`, and only then says that it failed: a rollback that forgot something would show.
#[derive(Debug, Clone)]
pub struct AppendEffect<D>(pub D);

impl<D: Books> Handler<D> for AppendEffect<D> {
    async fn handle(&self, context: Context<'_, D>) -> Result<(), Failure> {
        let Context { message, connection, attempt, .. } = context;
        self.0.record_effect(connection, message).await?;
        Temper::judge(message, attempt)
    }
}
