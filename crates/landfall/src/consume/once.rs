//! Other ways to be idempotent than the inbox's (C2, C3), for handlers whose own tables know what was done.
//!
//! | the business table has | the handler writes | and asks |
//! |---|---|---|
//! | a unique constraint | `INSERT` | [`Context::unless_there`] |
//! | a state or a version | `UPDATE … WHERE state = 'open'` | [`changed`] |
//! | a row that is only ever replaced | `INSERT … ON CONFLICT DO NOTHING` | [`changed`] |
//! | nothing of the kind | anything | [`Context::first_time`] |
//!
//! All of them answer with [`already_done`] for a repeat: the transaction is rolled back, so that nothing else of it
//! happens twice either, and the message is acknowledged.

use landfall_core::{Admission, Constraints, ErrorCode, Failure, Inbox, Message, MessageId, Result};

use super::handler::Context;

/// The effect is there already: nothing is to be done, and nothing is wrong.
pub fn already_done(why: impl std::fmt::Display) -> Failure {
    Failure::park(ErrorCode::DUPLICATE, why)
}

/// Whether a handler ended with [`already_done`].
pub(super) fn is_already_done(failure: &Failure) -> bool {
    failure.code == ErrorCode::DUPLICATE
}

/// For a conditional update or an upsert: `rows` are those that the statement changed. None means that it was done.
pub fn changed(rows: u64) -> Result<(), Failure> {
    if rows > 0 { Ok(()) } else { Err(already_done("no row was changed")) }
}

impl<D: Constraints> Context<'_, D> {
    /// The result of an insert, unless it violates the unique constraint of this name: then it was done before.
    ///
    /// On PostgreSQL and MySQL the constraint's or index's name; on SQLite the columns, as in `orders.number`.
    pub fn unless_there<T, E>(&self, result: Result<T, E>, constraint: &str) -> Result<T, Failure>
    where
        E: std::error::Error + 'static,
    {
        result.map_err(|error| {
            if D::is_violation_of(&error, constraint) {
                already_done(format_args!("{constraint} has it"))
            } else {
                Failure::retry(error)
            }
        })
    }
}

impl<D: Inbox> Context<'_, D> {
    /// Puts a guard row for a business id into the inbox, whichever message it came with: `Err` if there was one.
    ///
    /// For several messages that mean the same thing, such as a payment that two services report.
    pub async fn first_time(&mut self, business_type: &str, business_id: &str) -> Result<(), Failure> {
        let id = MessageId::from_business(business_type, business_id);
        let guard = Message::new(self.message.topic.clone(), "").with_id(id);
        match self.database.admit(self.connection, self.group, &guard, None).await? {
            Admission::Duplicate => Err(already_done(format_args!("{business_type} {business_id} was handled"))),
            _ => Ok(()),
        }
    }
}
