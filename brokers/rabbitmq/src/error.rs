//! Classifies errors of the AMQP client in one table.

use landfall_core::{Error, ErrorKind};
use lapin::types::ShortString;

/// Reason while the server is short of disk or memory. It then stops reading from publishing connections.
pub(crate) const ALARM: &str = "RabbitMQ has raised a resource alarm and accepts no messages until it has space again";

/// Why the server closed a channel or a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ServerError {
    /// The account lacks the permission, or its credentials were rejected.
    Denied,
    /// The exchange or queue does not exist.
    Missing,
    /// It exists with other settings.
    Mismatch,
    /// A message exceeds the server's limit, which is this many bytes.
    TooLarge(usize),
    /// The connection was lost, or another temporary failure.
    Transient,
}

pub(crate) fn classify(error: &lapin::Error) -> ServerError {
    let lapin::ErrorKind::ProtocolError(error) = error.kind() else { return ServerError::Transient };
    match (error.get_id(), error.get_message().as_str()) {
        (403, _) => ServerError::Denied,
        // The virtual host does not exist, or the account may not use it.
        (530, text) if text.contains("vhost") => ServerError::Denied,
        (404, _) => ServerError::Missing,
        (406, text) => match too_large(text) {
            Some(limit) => ServerError::TooLarge(limit),
            None if text.contains("inequivalent arg") => ServerError::Mismatch,
            None => ServerError::Transient,
        },
        _ => ServerError::Transient,
    }
}

/// The error of an operation: `what` describes it.
pub(crate) fn error(what: impl Into<String>, source: lapin::Error) -> Error {
    let kind = match classify(&source) {
        ServerError::Missing => ErrorKind::NotFound,
        ServerError::Mismatch => ErrorKind::Conflict,
        ServerError::TooLarge(_) => ErrorKind::Invalid,
        // Temporary, because an operator may restore the permission.
        ServerError::Denied | ServerError::Transient => ErrorKind::Unavailable,
    };
    Error::new(kind, what).with_source(source)
}

/// Whether the server's error names `exchange`.
pub(crate) fn is_about(error: &lapin::Error, exchange: &ShortString) -> bool {
    let lapin::ErrorKind::ProtocolError(error) = error.kind() else { return false };
    error.get_message().as_str().contains(&format!("'{exchange}'"))
}

/// Parses the limit of "message size 2000 is larger than configured max size 1000".
fn too_large(text: &str) -> Option<usize> {
    let (_, limit) = text.split_once("larger than configured max size ")?;
    limit.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use lapin::protocol::{AMQPError, AMQPErrorKind, AMQPHardError, AMQPSoftError};

    use super::*;

    fn server_error(kind: AMQPErrorKind, text: &str) -> lapin::Error {
        lapin::ErrorKind::ProtocolError(AMQPError::new(kind, text.into())).into()
    }

    #[test]
    fn server_errors_are_classified() {
        let soft = |kind: AMQPSoftError, text: &str| server_error(kind.into(), text);
        let denied =
            soft(AMQPSoftError::ACCESSREFUSED, "access to exchange 'orders' in vhost '/' refused for user 'x'");
        let missing = soft(AMQPSoftError::NOTFOUND, "no exchange 'orders' in vhost '/'");
        let different = soft(AMQPSoftError::PRECONDITIONFAILED, "inequivalent arg 'x-queue-type' for queue 'q'");
        let large =
            soft(AMQPSoftError::PRECONDITIONFAILED, "message size 2000 is larger than configured max size 1000");
        let slow = soft(AMQPSoftError::PRECONDITIONFAILED, "delivery acknowledgement on channel 1 timed out.");
        let vhost = server_error(AMQPHardError::NOTALLOWED.into(), "vhost shop not found");
        let down = server_error(AMQPHardError::CONNECTIONFORCED.into(), "broker forced connection closure");
        for (error, kind, expected) in [
            (denied, ErrorKind::Unavailable, ServerError::Denied),
            (missing, ErrorKind::NotFound, ServerError::Missing),
            (different, ErrorKind::Conflict, ServerError::Mismatch),
            (large, ErrorKind::Invalid, ServerError::TooLarge(1000)),
            (slow, ErrorKind::Unavailable, ServerError::Transient),
            (vhost, ErrorKind::Unavailable, ServerError::Denied),
            (down, ErrorKind::Unavailable, ServerError::Transient),
        ] {
            assert_eq!(classify(&error), expected, "{error}");
            assert_eq!(super::error("x", error).kind(), kind);
        }
    }

    #[test]
    fn exchange_is_matched_by_its_full_name() {
        let error = server_error(AMQPSoftError::NOTFOUND.into(), "no exchange 'shop.orders' in vhost '/'");
        assert!(is_about(&error, &"shop.orders".into()));
        assert!(!is_about(&error, &"orders".into()));
    }
}
