//! Idempotent handlers without inbox rows (C2, C3), for services whose own tables show what was done.
//!
//! | the business table has | the handler writes | and calls |
//! |---|---|---|
//! | a unique constraint | `INSERT` | [`Context::unless_there`] |
//! | a state or a version | `UPDATE … WHERE state = 'open'` | [`changed`] |
//! | a row that is only replaced | `INSERT … ON CONFLICT DO NOTHING` | [`changed`] |
//! | none of these | anything | [`Context::first_time`] |
//!
//! Each returns [`already_done`] for a duplicate: the transaction is rolled back, so that its other writes do not
//! happen twice either, and the message is acknowledged.

use landfall_core::adapter::Admission;
use landfall_core::{Constraints, ErrorCode, Failure, Inbox, Message, MessageId, Result};

use crate::consume::handler::Context;

/// Reports that the effect exists already. The message is settled as a duplicate.
///
/// ```
/// use landfall::consume::already_done;
/// use landfall::ErrorCode;
///
/// assert_eq!(already_done("the invoice exists").code, ErrorCode::DUPLICATE);
/// ```
pub fn already_done(why: impl std::fmt::Display) -> Failure {
    Failure::park(ErrorCode::DUPLICATE, why)
}

/// Whether a handler returned [`already_done`].
pub(crate) fn is_already_done(failure: &Failure) -> bool {
    failure.code == ErrorCode::DUPLICATE
}

/// For a conditional update or an upsert: `rows` is the number of rows that the statement changed. Zero means that the
/// effect exists already.
///
/// ```
/// use landfall::consume::changed;
///
/// assert!(changed(1).is_ok());
/// assert!(changed(0).is_err());
/// ```
pub fn changed(rows: u64) -> Result<(), Failure> {
    if rows > 0 { Ok(()) } else { Err(already_done("the statement changed no row")) }
}

impl<D: Constraints> Context<'_, D> {
    /// Passes on the result of an insert. A violation of the unique constraint `constraint` becomes [`already_done`].
    ///
    /// On PostgreSQL and MySQL this is the name of the constraint or index; on SQLite the columns, as in
    /// `orders.number`.
    pub fn unless_there<T, E>(&self, result: Result<T, E>, constraint: &str) -> Result<T, Failure>
    where
        E: std::error::Error + 'static,
    {
        result.map_err(|error| {
            if D::is_violation_of(&error, constraint) {
                already_done(format_args!("{constraint} contains the row already"))
            } else {
                Failure::retry(error)
            }
        })
    }
}

impl<D: Inbox> Context<'_, D> {
    /// Inserts a guard row for a business id into the inbox; fails with [`already_done`] if there is one. The row is
    /// kept for ever: the same business id may return long after its message was forgotten.
    ///
    /// For several messages that mean the same thing, such as a payment that two services report.
    pub async fn first_time(&mut self, business_type: &str, business_id: &str) -> Result<(), Failure> {
        let id = self.insert_guard(business_type, business_id).await?;
        Ok(self.database.keep_forever(self.connection, self.group, id).await?)
    }

    /// Like [`first_time`](Self::first_time), for business ids that do not return after the retention of the inbox: the
    /// guard row expires with it.
    pub async fn first_time_recently(&mut self, business_type: &str, business_id: &str) -> Result<(), Failure> {
        self.insert_guard(business_type, business_id).await.map(drop)
    }

    async fn insert_guard(&mut self, business_type: &str, business_id: &str) -> Result<MessageId, Failure> {
        let id = MessageId::from_business(business_type, business_id);
        let guard = Message::new(self.message.topic.clone(), "").with_id(id);
        match self.database.admit(self.connection, self.group, &guard, None).await? {
            Admission::Duplicate => Err(already_done(format_args!("{business_type} {business_id} was handled before"))),
            _ => Ok(id),
        }
    }
}
