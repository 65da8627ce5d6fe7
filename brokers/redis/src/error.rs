//! Maps errors of Redis and its client to publish outcomes and error kinds.

use landfall_core::{Error, ErrorCode, ErrorKind, Outcome};
use redis::{RedisError, ServerError};

/// Why a call failed as a whole.
#[derive(Debug)]
pub(crate) enum CallError {
    /// Nothing was sent: there was no connection.
    BeforeSending(RedisError),
    /// It may have been sent, and no answer arrived.
    AfterSending(RedisError),
}

/// Kinds of errors that Redis answers. Except after `Other`, Redis has changed nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The account lacks the permission, or its credentials were rejected.
    Denied,
    /// Memory or disk is full.
    Full,
    /// A temporary state of the server.
    Unavailable,
    /// This server is a replica now: reconnect to find the master.
    NotTheMaster,
    /// The server has not loaded the script.
    NoScript,
    /// The group or the stream does not exist.
    NoGroup,
    /// The topic has another number of shards than the caller assumes, or does not exist.
    StaleTopic,
    /// The key holds another type than a stream.
    WrongType,
    /// The key belongs to another node of the cluster.
    OtherNode,
    /// It is unknown what Redis did.
    Other,
}

/// Error code of `append.lua` if the topic has another number of shards.
pub(crate) const STALE_TOPIC: &str = "STALETOPIC";

pub(crate) fn cause(error: &ServerError) -> Cause {
    table(error.code(), error.details().unwrap_or_default())
}

/// Maps Redis's error codes.
fn table(code: &str, details: &str) -> Cause {
    match code {
        "NOAUTH" | "WRONGPASS" | "NOPERM" => Cause::Denied,
        // A missing permission inside a script has no code of its own.
        "ERR" if details.starts_with("The user executing the script can't") => Cause::Denied,
        "OOM" | "MISCONF" => Cause::Full,
        "LOADING" | "BUSY" | "MASTERDOWN" | "CLUSTERDOWN" | "TRYAGAIN" | "NOREPLICAS" => Cause::Unavailable,
        "ERR" if details.starts_with("max number of clients") => Cause::Unavailable,
        "READONLY" | "UNBLOCKED" => Cause::NotTheMaster,
        "NOSCRIPT" => Cause::NoScript,
        "NOGROUP" => Cause::NoGroup,
        STALE_TOPIC => Cause::StaleTopic,
        "WRONGTYPE" => Cause::WrongType,
        "MOVED" | "ASK" | "CROSSSLOT" => Cause::OtherNode,
        _ => Cause::Other,
    }
}

/// Returns the outcome of messages whose script call returned `error`.
pub(crate) fn outcome(error: &ServerError) -> Outcome {
    let reason = || format!("Redis answered: {}", text(error));
    match cause(error) {
        Cause::Denied => Outcome::retry_later(ErrorCode::DENIED, reason()),
        Cause::Full => Outcome::retry_later(ErrorCode::STORAGE_FULL, reason()),
        Cause::StaleTopic => Outcome::retry_later(ErrorCode::UNKNOWN_TOPIC, "the topic was just changed or deleted"),
        Cause::Unavailable | Cause::NotTheMaster | Cause::NoScript | Cause::NoGroup => {
            Outcome::retry_later(ErrorCode::UNAVAILABLE, reason())
        }
        Cause::WrongType | Cause::OtherNode => Outcome::retry_later(ErrorCode::new("WRONG_SERVER"), reason()),
        Cause::Other => Outcome::Unknown(reason()),
    }
}

/// Returns the outcome of messages whose script call was not answered.
pub(crate) fn call_outcome(failed: &CallError) -> Outcome {
    match failed {
        CallError::BeforeSending(error) => {
            let code = if is_denied(error) { ErrorCode::DENIED } else { ErrorCode::UNAVAILABLE };
            Outcome::retry_later(code, format!("Redis is unreachable: {error}"))
        }
        CallError::AfterSending(error) => Outcome::Unknown(format!("Redis did not answer: {error}")),
    }
}

/// Whether Redis rejected the credentials, or the account lacks a permission.
pub(crate) fn is_denied(error: &RedisError) -> bool {
    error.kind() == redis::ErrorKind::AuthenticationFailed
        || error.code().is_some_and(|code| table(code, error.detail().unwrap_or_default()) == Cause::Denied)
}

pub(crate) fn call_error(failed: CallError) -> Error {
    match failed {
        CallError::BeforeSending(error) => {
            Error::new(ErrorKind::Unavailable, "Redis is unreachable").with_source(error)
        }
        CallError::AfterSending(error) => Error::new(ErrorKind::Unknown, "Redis did not answer").with_source(error),
    }
}

pub(crate) fn server_error(error: &ServerError) -> Error {
    let kind = match cause(error) {
        Cause::WrongType => ErrorKind::Conflict,
        Cause::NoGroup | Cause::StaleTopic => ErrorKind::NotFound,
        Cause::OtherNode => ErrorKind::Unsupported,
        // Temporary, because an operator can restore permissions and free space.
        Cause::Denied | Cause::Full | Cause::Unavailable | Cause::NotTheMaster | Cause::NoScript => {
            ErrorKind::Unavailable
        }
        Cause::Other => ErrorKind::Internal,
    };
    Error::new(kind, format!("Redis answered: {}", text(error)))
}

/// The server's error text, without the position in a script.
pub(crate) fn text(error: &ServerError) -> String {
    let details = error.details().unwrap_or_default();
    let details = details.split_once(" script: ").map_or(details, |(before, _)| before);
    format!("{} {details}", error.code()).trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_errors_map_to_causes() {
        for (code, details, expected) in [
            ("NOAUTH", "Authentication required.", Cause::Denied),
            ("WRONGPASS", "invalid username-password pair or user is disabled.", Cause::Denied),
            ("NOPERM", "this user has no permissions to run the 'xadd' command", Cause::Denied),
            ("ERR", "The user executing the script can't run this command or subcommand script: 5a", Cause::Denied),
            ("OOM", "command not allowed when used memory > 'maxmemory'.", Cause::Full),
            ("MISCONF", "Errors writing to the AOF file: No space left on device", Cause::Full),
            ("LOADING", "Redis is loading the dataset in memory", Cause::Unavailable),
            ("NOREPLICAS", "Not enough good replicas to write.", Cause::Unavailable),
            ("ERR", "max number of clients reached", Cause::Unavailable),
            ("READONLY", "You can't write against a read only replica.", Cause::NotTheMaster),
            ("NOSCRIPT", "No matching script.", Cause::NoScript),
            ("NOGROUP", "No such key 's' or consumer group 'g'", Cause::NoGroup),
            ("STALETOPIC", "3", Cause::StaleTopic),
            ("WRONGTYPE", "Operation against a key holding the wrong kind of value", Cause::WrongType),
            ("MOVED", "3999 127.0.0.1:6381", Cause::OtherNode),
            ("ERR", "unknown command", Cause::Other),
        ] {
            assert_eq!(table(code, details), expected, "{code} {details}");
        }
    }

    #[test]
    fn unanswered_is_unknown_and_unsent_is_refused() {
        let lost = || RedisError::from(std::io::Error::from(std::io::ErrorKind::BrokenPipe));
        assert!(matches!(call_outcome(&CallError::AfterSending(lost())), Outcome::Unknown(_)));
        let Outcome::Refused(refusal) = call_outcome(&CallError::BeforeSending(lost())) else {
            panic!("expected a refusal: nothing was sent")
        };
        assert_eq!((refusal.code, refusal.retriable), (ErrorCode::UNAVAILABLE, true));
        let denied = RedisError::from((redis::ErrorKind::AuthenticationFailed, "Password authentication failed"));
        let Outcome::Refused(refusal) = call_outcome(&CallError::BeforeSending(denied)) else {
            panic!("expected a refusal: nothing was sent")
        };
        assert_eq!((refusal.code, refusal.retriable), (ErrorCode::DENIED, true));
    }
}
