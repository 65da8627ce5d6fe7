//! What the client's errors mean: one table.

use landfall_core::{Error, ErrorKind};
use lapin::types::ShortString;

/// A server that runs out of disk or memory stops reading from those who publish, and says so.
pub(crate) const ALARM: &str = "RabbitMQ has raised an alarm and takes nothing until it has room again";

/// Why the server closed a channel or a connection, as far as it makes a difference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// The account may not do that, or is not let in.
    Denied,
    /// There is no such exchange or queue.
    Missing,
    /// It is there with other settings.
    Different,
    /// A message was larger than the server takes, which is so many bytes.
    TooLarge(usize),
    /// The connection is gone, or anything else that may be over in a moment.
    Passing,
}

pub(crate) fn trouble(error: &lapin::Error) -> Trouble {
    let lapin::ErrorKind::ProtocolError(error) = error.kind() else { return Trouble::Passing };
    match (error.get_id(), error.get_message().as_str()) {
        (403, _) => Trouble::Denied,
        // What the server says for a virtual host that does not exist or is closed to the account.
        (530, text) if text.contains("vhost") => Trouble::Denied,
        (404, _) => Trouble::Missing,
        (406, text) => match too_large(text) {
            Some(limit) => Trouble::TooLarge(limit),
            None if text.contains("inequivalent arg") => Trouble::Different,
            None => Trouble::Passing,
        },
        _ => Trouble::Passing,
    }
}

/// `what` could not be done.
pub(crate) fn error(what: impl Into<String>, source: lapin::Error) -> Error {
    let kind = match trouble(&source) {
        Trouble::Missing => ErrorKind::NotFound,
        Trouble::Different => ErrorKind::Conflict,
        Trouble::TooLarge(_) => ErrorKind::Invalid,
        // Somebody gives the rights back.
        Trouble::Denied | Trouble::Passing => ErrorKind::Unavailable,
    };
    Error::new(kind, what).with_source(source)
}

/// Whether the server complains about `exchange` by name.
pub(crate) fn is_about(error: &lapin::Error, exchange: &ShortString) -> bool {
    let lapin::ErrorKind::ProtocolError(error) = error.kind() else { return false };
    error.get_message().as_str().contains(&format!("'{exchange}'"))
}

/// "message size 2000 is larger than configured max size 1000".
fn too_large(text: &str) -> Option<usize> {
    let (_, limit) = text.split_once("larger than configured max size ")?;
    limit.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use lapin::protocol::{AMQPError, AMQPErrorKind, AMQPHardError, AMQPSoftError};

    use super::*;

    fn said(kind: AMQPErrorKind, text: &str) -> lapin::Error {
        lapin::ErrorKind::ProtocolError(AMQPError::new(kind, text.into())).into()
    }

    #[test]
    fn what_the_server_says_is_understood() {
        let soft = |kind: AMQPSoftError, text: &str| said(kind.into(), text);
        let denied =
            soft(AMQPSoftError::ACCESSREFUSED, "access to exchange 'orders' in vhost '/' refused for user 'x'");
        let missing = soft(AMQPSoftError::NOTFOUND, "no exchange 'orders' in vhost '/'");
        let different = soft(AMQPSoftError::PRECONDITIONFAILED, "inequivalent arg 'x-queue-type' for queue 'q'");
        let large =
            soft(AMQPSoftError::PRECONDITIONFAILED, "message size 2000 is larger than configured max size 1000");
        let slow = soft(AMQPSoftError::PRECONDITIONFAILED, "delivery acknowledgement on channel 1 timed out.");
        let vhost = said(AMQPHardError::NOTALLOWED.into(), "vhost shop not found");
        let down = said(AMQPHardError::CONNECTIONFORCED.into(), "broker forced connection closure");
        for (error, kind, expected) in [
            (denied, ErrorKind::Unavailable, Trouble::Denied),
            (missing, ErrorKind::NotFound, Trouble::Missing),
            (different, ErrorKind::Conflict, Trouble::Different),
            (large, ErrorKind::Invalid, Trouble::TooLarge(1000)),
            (slow, ErrorKind::Unavailable, Trouble::Passing),
            (vhost, ErrorKind::Unavailable, Trouble::Denied),
            (down, ErrorKind::Unavailable, Trouble::Passing),
        ] {
            assert_eq!(trouble(&error), expected, "{error}");
            assert_eq!(super::error("x", error).kind(), kind);
        }
    }

    #[test]
    fn an_exchange_is_recognised_by_its_whole_name() {
        let error = said(AMQPSoftError::NOTFOUND.into(), "no exchange 'shop.orders' in vhost '/'");
        assert!(is_about(&error, &"shop.orders".into()));
        assert!(!is_about(&error, &"orders".into()));
    }
}
