//! What an error of the driver means to a caller: a kind to act on and a sentence that names the server.

use landfall_core::{Error, ErrorKind};

/// An error of a statement: "PostgreSQL at `place` could not `what`", with its cause behind it.
pub(crate) fn translate(place: &str, what: &str, error: sqlx::Error) -> Error {
    Error::new(kind(&error), format!("PostgreSQL at {place} could not {what}")).with_source(error)
}

/// An error of a commit. Where the connection was lost under it, nobody knows whether it happened.
pub(crate) fn translate_commit(place: &str, error: sqlx::Error) -> Error {
    match kind(&error) {
        ErrorKind::Unavailable if !is_refusal(&error) => {
            let sentence =
                format!("the connection to PostgreSQL at {place} was lost under a commit; it may have happened");
            Error::new(ErrorKind::Unknown, sentence).with_source(error)
        }
        _ => translate(place, "commit the transaction", error),
    }
}

/// Whether a standby was asked to change something, or a server that only reads.
pub(crate) fn is_read_only(error: &sqlx::Error) -> bool {
    error.as_database_error().and_then(|answer| answer.code()).is_some_and(|code| code == "25006" || code == "0A000")
}

fn kind(error: &sqlx::Error) -> ErrorKind {
    match error {
        sqlx::Error::Database(answer) => answer.code().map_or(ErrorKind::Internal, |code| kind_of_state(&code)),
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

/// By SQLSTATE (PostgreSQL's manual, appendix A).
fn kind_of_state(state: &str) -> ErrorKind {
    match state {
        // A unique or exclusion constraint, or a transaction that failed before.
        "23505" | "23P01" | "25P02" => ErrorKind::Conflict,
        // A database that does not exist.
        "3D000" => ErrorKind::NotFound,
        // A table, column, function or schema that is missing, or is there already.
        "42P01" | "42703" | "42883" | "3F000" | "42P07" | "42723" | "42P06" => ErrorKind::Schema,
        // A standby after a failover, which refuses writes, and tables without a log altogether; a lock that was not given
        // in time; a transaction that the server ended because it took too long.
        "25006" | "0A000" | "55P03" | "57014" | "25P03" | "25P04" => ErrorKind::Unavailable,
        _ => match &state[..state.len().min(2)] {
            // The connection, a deadlock or a serialization failure, too few resources, the operator's shutdown.
            "08" | "40" | "53" | "57" | "58" => ErrorKind::Unavailable,
            // A constraint, a value, a privilege, a wrong password.
            "22" | "23" | "28" | "42" => ErrorKind::Invalid,
            _ => ErrorKind::Internal,
        },
    }
}

/// Whether the server itself said that the transaction was rolled back, which is an answer and not a lost connection.
fn is_refusal(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Database(answer) => {
            answer.code().is_some_and(|code| !matches!(&code[..2.min(code.len())], "08" | "57"))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_become_kinds_a_caller_can_act_on() {
        let cases = [
            ("23505", ErrorKind::Conflict),
            ("23514", ErrorKind::Invalid),
            ("22P05", ErrorKind::Invalid),
            ("28P01", ErrorKind::Invalid),
            ("3D000", ErrorKind::NotFound),
            ("42P01", ErrorKind::Schema),
            ("40P01", ErrorKind::Unavailable),
            ("57P03", ErrorKind::Unavailable),
            ("25006", ErrorKind::Unavailable),
            ("0A000", ErrorKind::Unavailable),
            ("25P03", ErrorKind::Unavailable),
            ("53300", ErrorKind::Unavailable),
            ("XX000", ErrorKind::Internal),
            ("", ErrorKind::Internal),
        ];
        for (state, expected) in cases {
            assert_eq!(kind_of_state(state), expected, "{state}");
        }
    }

    #[test]
    fn a_connection_lost_under_a_commit_is_unknown_and_under_a_statement_unavailable() {
        let lost = || sqlx::Error::Io(std::io::Error::from(std::io::ErrorKind::ConnectionReset));
        assert_eq!(translate("db:5432/shop", "read the outbox", lost()).kind(), ErrorKind::Unavailable);
        let error = translate_commit("db:5432/shop", lost());
        assert_eq!(error.kind(), ErrorKind::Unknown);
        assert!(error.to_string().starts_with("the connection to PostgreSQL at db:5432/shop was lost under a commit"));
    }
}
