//! The consuming service: one effect per message, in the inbox transaction.

use landfall::consume::{Context, Handler};
use landfall::{ErrorCode, Failure, Message, Result};
use rand::Rng;

use crate::business_tables::BusinessTables;

/// How a message behaves in the handler; encoded in its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Behaviour {
    Plain,
    /// Fails at the first attempt of every delivery.
    Flaky,
    /// Is parked at the first attempt, and succeeds after a redrive.
    Poison,
}

impl Behaviour {
    const ALL: [Behaviour; 3] = [Behaviour::Plain, Behaviour::Flaky, Behaviour::Poison];

    /// Poison is rare: the messages of a held key are handled as dead letters, and must not arrive faster than that.
    pub fn random(random: &mut impl Rng, handler_failures: bool) -> Self {
        match random.random_range(0..100) {
            0 if handler_failures => Behaviour::Poison,
            1..=5 if handler_failures => Behaviour::Flaky,
            _ => Behaviour::Plain,
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Behaviour::Plain => "plain",
            Behaviour::Flaky => "flaky",
            Behaviour::Poison => "poison",
        }
    }

    /// The result of this attempt of `message`.
    pub fn result(message: &Message, attempt: u32) -> Result<(), Failure> {
        match Self::parse(&message.payload) {
            Some(behaviour) => behaviour.apply(attempt),
            None => Err(Failure::park(ErrorCode::VALIDATION, "not a payload of the writers")),
        }
    }

    pub fn apply(self, attempt: u32) -> Result<(), Failure> {
        match self {
            Behaviour::Flaky if attempt == 1 => Err(Failure::retry("flaky at the first attempt")),
            Behaviour::Poison if attempt == 1 => Err(Failure::park(ErrorCode::new("poison"), "not repaired yet")),
            _ => Ok(()),
        }
    }

    pub fn parse(payload: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|behaviour| behaviour.as_str().as_bytes() == payload)
    }
}

/// Inserts into `effects` before it fails: an incomplete rollback would be visible.
#[derive(Debug, Clone)]
pub struct AppendEffect<D>(pub D);

impl<D: BusinessTables> Handler<D> for AppendEffect<D> {
    async fn handle(&self, context: Context<'_, D>) -> Result<(), Failure> {
        let Context { message, connection, attempt, .. } = context;
        self.0.record_effect(connection, message).await?;
        Behaviour::result(message, attempt)
    }
}
