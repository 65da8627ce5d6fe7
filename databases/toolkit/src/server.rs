use std::marker::PhantomData;
use std::sync::Arc;

use landfall_core::adapter::ConnectionEpoch;
use landfall_core::{Error, ErrorKind};
use sqlx::error::DatabaseError;

/// What a server's own error codes mean.
pub trait ErrorCodes: 'static {
    /// The server's name, as errors begin with it.
    const PRODUCT: &'static str;

    fn kind(error: &dyn DatabaseError) -> ErrorKind;

    /// Returns whether the server refused a write because it is read-only, as a standby is.
    fn is_read_only(error: &dyn DatabaseError) -> bool;

    /// Returns whether the server reports the end of the connection or of itself. The outcome of a commit is then
    /// unknown.
    fn is_connection_lost(error: &dyn DatabaseError) -> bool;
}

/// A server as its adapter reports errors about it: "PostgreSQL at db:5432/shop could not read the outbox".
#[derive(Debug)]
pub struct Server<E> {
    /// Host, port and database, without user and password.
    address: String,
    /// `None` for a pool of the application's own.
    epoch: Option<Arc<ConnectionEpoch>>,
    codes: PhantomData<fn() -> E>,
}

impl<E: ErrorCodes> Server<E> {
    pub fn new(address: String, epoch: Option<Arc<ConnectionEpoch>>) -> Self {
        Self { address, epoch, codes: PhantomData }
    }

    pub fn address(&self) -> &str {
        &self.address
    }

    pub fn epoch(&self) -> Option<&Arc<ConnectionEpoch>> {
        self.epoch.as_ref()
    }

    /// For `map_err`: `what` completes "… could not …".
    pub fn could_not(&self, what: &'static str) -> impl FnOnce(sqlx::Error) -> Error + '_ {
        move |error| {
            self.observe(&error);
            let sentence = format!("{} at {} could not {what}", E::PRODUCT, self.address);
            Error::new(kind::<E>(&error), sentence).with_source(error)
        }
    }

    /// For `map_err` of a commit. If the connection was lost, the outcome of the commit is unknown.
    pub fn could_not_commit(&self) -> impl FnOnce(sqlx::Error) -> Error + '_ {
        move |error| {
            let is_unknown = match &error {
                sqlx::Error::Database(answer) => E::is_connection_lost(&**answer),
                other => kind::<E>(other) == ErrorKind::Unavailable,
            };
            if !is_unknown {
                return self.could_not("commit the transaction")(error);
            }
            let (product, address) = (E::PRODUCT, &self.address);
            let sentence =
                format!("the connection to {product} at {address} was lost during a commit; it may have happened");
            Error::new(ErrorKind::Unknown, sentence).with_source(error)
        }
    }

    /// Retires the pool's connections when one of them turns out to lead to a read-only server.
    fn observe(&self, error: &sqlx::Error) {
        if let (Some(epoch), sqlx::Error::Database(answer)) = (&self.epoch, error)
            && E::is_read_only(&**answer)
        {
            epoch.retire();
        }
    }
}

fn kind<E: ErrorCodes>(error: &sqlx::Error) -> ErrorKind {
    match error {
        sqlx::Error::Database(answer) => E::kind(&**answer),
        sqlx::Error::Io(_)
        | sqlx::Error::Tls(_)
        | sqlx::Error::Protocol(_)
        | sqlx::Error::PoolTimedOut
        | sqlx::Error::PoolClosed
        | sqlx::Error::WorkerCrashed
        | sqlx::Error::BeginFailed => ErrorKind::Unavailable,
        sqlx::Error::Configuration(_) => ErrorKind::Invalid,
        _ => ErrorKind::Internal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct NoCodes;

    impl ErrorCodes for NoCodes {
        const PRODUCT: &'static str = "TestSQL";

        fn kind(_: &dyn DatabaseError) -> ErrorKind {
            ErrorKind::Internal
        }

        fn is_read_only(_: &dyn DatabaseError) -> bool {
            false
        }

        fn is_connection_lost(_: &dyn DatabaseError) -> bool {
            false
        }
    }

    #[test]
    fn connection_lost_during_a_commit_is_unknown_and_during_a_statement_unavailable() {
        let server = Server::<NoCodes>::new("db:5432/shop".into(), None);
        let lost = || sqlx::Error::Io(std::io::Error::from(std::io::ErrorKind::ConnectionReset));
        assert_eq!(server.could_not("read the outbox")(lost()).kind(), ErrorKind::Unavailable);
        let error = server.could_not_commit()(lost());
        assert_eq!(error.kind(), ErrorKind::Unknown);
        let sentence = "the connection to TestSQL at db:5432/shop was lost during a commit";
        assert!(error.to_string().starts_with(sentence), "{error}");
        assert_eq!(server.could_not_commit()(sqlx::Error::RowNotFound).kind(), ErrorKind::Internal);
    }
}
