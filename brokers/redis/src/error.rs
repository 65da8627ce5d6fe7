//! What Redis and its client say, as outcomes and errors.

use landfall_core::{Error, ErrorCode, ErrorKind, Outcome};
use redis::{RedisError, ServerError};

/// Why a call failed as a whole.
#[derive(Debug)]
pub(crate) enum Failed {
    /// Nothing was sent: there was no connection to send it on.
    BeforeSending(RedisError),
    /// It may have been sent, and no answer came.
    AfterSending(RedisError),
}

/// What an error that Redis answered with asks for. It did nothing in each case but the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The account may not do that, or is not let in at all.
    Denied,
    /// There is no room: of memory, or on the disk.
    Full,
    /// A passing state of the server.
    Unavailable,
    /// This server is a replica now: the other one must be found.
    NotTheMaster,
    /// The server does not know the script (any more).
    NoScript,
    /// There is no such group, or no such stream.
    NoGroup,
    /// The topic has another number of shards than was thought, or is not there.
    StaleTopic,
    /// The key holds something that is no stream.
    WrongType,
    /// The answer of a server in a cluster for a key that lies elsewhere.
    Elsewhere,
    /// Nobody can tell what it did.
    Other,
}

/// What the script that appends answers with when the topic is not as the publisher thinks.
pub(crate) const STALE_TOPIC: &str = "STALETOPIC";

pub(crate) fn cause(error: &ServerError) -> Cause {
    table(error.code(), error.details().unwrap_or_default())
}

/// The one table.
fn table(code: &str, details: &str) -> Cause {
    match code {
        "NOAUTH" | "WRONGPASS" | "NOPERM" => Cause::Denied,
        // What the account may not do inside a script has no code of its own.
        "ERR" if details.starts_with("The user executing the script can't") => Cause::Denied,
        "OOM" | "MISCONF" => Cause::Full,
        "LOADING" | "BUSY" | "MASTERDOWN" | "CLUSTERDOWN" | "TRYAGAIN" | "NOREPLICAS" => Cause::Unavailable,
        "ERR" if details.starts_with("max number of clients") => Cause::Unavailable,
        "READONLY" | "UNBLOCKED" => Cause::NotTheMaster,
        "NOSCRIPT" => Cause::NoScript,
        "NOGROUP" => Cause::NoGroup,
        STALE_TOPIC => Cause::StaleTopic,
        "WRONGTYPE" => Cause::WrongType,
        "MOVED" | "ASK" | "CROSSSLOT" => Cause::Elsewhere,
        _ => Cause::Other,
    }
}

/// What became of a message whose script was answered with `error`.
pub(crate) fn outcome(error: &ServerError) -> Outcome {
    let reason = || format!("Redis answered: {}", text(error));
    match cause(error) {
        Cause::Denied => Outcome::retry_later(ErrorCode::DENIED, reason()),
        Cause::Full => Outcome::retry_later(ErrorCode::STORAGE_FULL, reason()),
        Cause::StaleTopic => {
            Outcome::retry_later(ErrorCode::UNKNOWN_TOPIC, "the topic was changed or removed just now")
        }
        Cause::Unavailable | Cause::NotTheMaster | Cause::NoScript | Cause::NoGroup => {
            Outcome::retry_later(ErrorCode::UNAVAILABLE, reason())
        }
        Cause::WrongType | Cause::Elsewhere => Outcome::retry_later(ErrorCode::new("WRONG_SERVER"), reason()),
        Cause::Other => Outcome::Unknown(reason()),
    }
}

/// What became of messages whose script was not answered.
pub(crate) fn outcome_of_call(failed: &Failed) -> Outcome {
    match failed {
        Failed::BeforeSending(error) => {
            let code = if is_denied(error) { ErrorCode::DENIED } else { ErrorCode::UNAVAILABLE };
            Outcome::retry_later(code, format!("Redis cannot be reached: {error}"))
        }
        Failed::AfterSending(error) => Outcome::Unknown(format!("Redis did not answer: {error}")),
    }
}

/// Whether it was the password, or the account.
pub(crate) fn is_denied(error: &RedisError) -> bool {
    error.kind() == redis::ErrorKind::AuthenticationFailed
        || error.code().is_some_and(|code| table(code, error.detail().unwrap_or_default()) == Cause::Denied)
}

pub(crate) fn of_call(failed: Failed) -> Error {
    match failed {
        Failed::BeforeSending(error) => {
            Error::new(ErrorKind::Unavailable, "Redis cannot be reached").with_source(error)
        }
        Failed::AfterSending(error) => Error::new(ErrorKind::Unknown, "Redis did not answer").with_source(error),
    }
}

pub(crate) fn of_answer(error: &ServerError) -> Error {
    let kind = match cause(error) {
        Cause::WrongType => ErrorKind::Conflict,
        Cause::NoGroup | Cause::StaleTopic => ErrorKind::NotFound,
        Cause::Elsewhere => ErrorKind::Unsupported,
        // Rights and room are given by people, while everybody waits.
        Cause::Denied | Cause::Full | Cause::Unavailable | Cause::NotTheMaster | Cause::NoScript => {
            ErrorKind::Unavailable
        }
        Cause::Other => ErrorKind::Internal,
    };
    Error::new(kind, format!("Redis answered: {}", text(error)))
}

/// As the server wrote it, without where in a script it happened.
pub(crate) fn text(error: &ServerError) -> String {
    let details = error.details().unwrap_or_default();
    let details = details.split_once(" script: ").map_or(details, |(before, _)| before);
    format!("{} {details}", error.code()).trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_answer_has_its_cause() {
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
            ("MOVED", "3999 127.0.0.1:6381", Cause::Elsewhere),
            ("ERR", "unknown command", Cause::Other),
        ] {
            assert_eq!(table(code, details), expected, "{code} {details}");
        }
    }

    #[test]
    fn what_may_have_happened_is_unknown_and_what_cannot_is_refused() {
        let lost = || RedisError::from(std::io::Error::from(std::io::ErrorKind::BrokenPipe));
        assert!(matches!(outcome_of_call(&Failed::AfterSending(lost())), Outcome::Unknown(_)));
        let Outcome::Refused(refusal) = outcome_of_call(&Failed::BeforeSending(lost())) else {
            panic!("it was not sent")
        };
        assert_eq!((refusal.code, refusal.retriable), (ErrorCode::UNAVAILABLE, true));
        let denied = RedisError::from((redis::ErrorKind::AuthenticationFailed, "Password authentication failed"));
        let Outcome::Refused(refusal) = outcome_of_call(&Failed::BeforeSending(denied)) else {
            panic!("it was not sent")
        };
        assert_eq!((refusal.code, refusal.retriable), (ErrorCode::DENIED, true));
    }
}
