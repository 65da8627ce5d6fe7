//! What PostgreSQL's error codes (SQLSTATE; PostgreSQL's manual, appendix A) mean to a caller.

use landfall_core::ErrorKind;
use landfall_sql_toolkit::ErrorCodes;
use sqlx::error::DatabaseError;

pub(crate) struct SqlState;

impl ErrorCodes for SqlState {
    const PRODUCT: &'static str = "PostgreSQL";

    fn kind(error: &dyn DatabaseError) -> ErrorKind {
        error.code().map_or(ErrorKind::Internal, |state| kind(&state))
    }

    /// A standby, or a table without a log on one.
    fn is_read_only(error: &dyn DatabaseError) -> bool {
        error.code().is_some_and(|state| matches!(&*state, "25006" | "0A000"))
    }

    fn is_connection_lost(error: &dyn DatabaseError) -> bool {
        error.code().is_some_and(|state| matches!(class(&state), "08" | "57"))
    }
}

fn class(state: &str) -> &str {
    &state[..state.len().min(2)]
}

fn kind(state: &str) -> ErrorKind {
    match state {
        // A unique or exclusion constraint, or a transaction with a failed statement.
        "23505" | "23P01" | "25P02" => ErrorKind::Conflict,
        // The database does not exist.
        "3D000" => ErrorKind::NotFound,
        // A table, column, function or schema is missing, or exists already.
        "42P01" | "42703" | "42883" | "3F000" | "42P07" | "42723" | "42P06" => ErrorKind::Schema,
        // A standby after a failover refuses writes, and unlogged tables altogether; a lock timed out; the server ended
        // a transaction that took too long.
        "25006" | "0A000" | "55P03" | "57014" | "25P03" | "25P04" => ErrorKind::Unavailable,
        _ => match class(state) {
            // The connection, a deadlock or serialization failure, exhausted resources, a shutdown. A wrong password,
            // which may be rotated.
            "08" | "28" | "40" | "53" | "57" | "58" => ErrorKind::Unavailable,
            // A constraint, a value, a privilege.
            "22" | "23" | "42" => ErrorKind::Invalid,
            _ => ErrorKind::Internal,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_map_to_kinds() {
        let cases = [
            ("23505", ErrorKind::Conflict),
            ("23514", ErrorKind::Invalid),
            ("22P05", ErrorKind::Invalid),
            ("28P01", ErrorKind::Unavailable),
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
            assert_eq!(kind(state), expected, "{state}");
        }
    }
}
