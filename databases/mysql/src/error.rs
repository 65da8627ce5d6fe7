//! What an error of the driver means to a caller: a kind to act on and a sentence that names the server.

use landfall_core::{Error, ErrorKind};
use sqlx::mysql::MySqlDatabaseError;

/// An error of a statement: "MySQL at `place` could not `what`", with its cause behind it.
pub(crate) fn translate(place: &str, what: &str, error: sqlx::Error) -> Error {
    Error::new(kind(&error), format!("MySQL at {place} could not {what}")).with_source(error)
}

/// An error of a commit. Where the connection was lost under it, nobody knows whether it happened.
pub(crate) fn translate_commit(place: &str, error: sqlx::Error) -> Error {
    match number(&error) {
        Some(NO_SUCH_SAVEPOINT) => {
            let sentence = format!(
                "the transaction on MySQL at {place} ended before its commit: a deadlock rolled it back, or a statement \
                 such as CREATE TABLE committed what was before it"
            );
            Error::new(ErrorKind::Conflict, sentence).with_source(error)
        }
        // The server gave an answer, and it was not one about the connection or its own end.
        Some(code) if !is_about_the_connection(code) => translate(place, "commit the transaction", error),
        None if !matches!(kind(&error), ErrorKind::Unavailable) => translate(place, "commit the transaction", error),
        _ => {
            let sentence = format!("the connection to MySQL at {place} was lost under a commit; it may have happened");
            Error::new(ErrorKind::Unknown, sentence).with_source(error)
        }
    }
}

/// Whether the server has rolled the whole transaction back because it and another waited for each other. A cluster
/// (Galera, group replication) says the same of a commit that another node was faster with.
pub(crate) fn is_deadlock(error: &sqlx::Error) -> bool {
    number(error) == Some(DEADLOCK)
}

pub(crate) fn is_missing_table(error: &sqlx::Error) -> bool {
    matches!(number(error), Some(NO_SUCH_TABLE | NO_SUCH_DATABASE))
}

pub(crate) fn is_existing_table(error: &sqlx::Error) -> bool {
    number(error) == Some(TABLE_EXISTS)
}

// Numbers of the servers' own lists (MySQL's manual, "Server Error Message Reference"; MariaDB's from 1900 on).
const NO_SUCH_DATABASE: u16 = 1049;
const TABLE_EXISTS: u16 = 1050;
const SHUTDOWN: u16 = 1053;
const NO_SUCH_TABLE: u16 = 1146;
const PACKET_TOO_LARGE: u16 = 1153;
const LOCK_WAIT_TIMEOUT: u16 = 1205;
const DEADLOCK: u16 = 1213;
const NO_SUCH_SAVEPOINT: u16 = 1305;
const INTERRUPTED: u16 = 1317;
const KILLED_IN_MARIADB: u16 = 1927;
const KILLED_IN_MYSQL: u16 = 3169;

/// Whether a server was asked to change something that only reads.
pub(crate) fn is_read_only(error: &sqlx::Error) -> bool {
    matches!(number(error), Some(1290 | 1792 | 1836))
}

fn is_about_the_connection(number: u16) -> bool {
    // Those from 2000 and from 9000 on are what a proxy says that lost the server behind it.
    let is_lost = matches!(number, 1152 | 1158..=1161 | 1184 | 4031 | 2000..=2999 | 9000..=9999);
    is_lost || matches!(number, SHUTDOWN | INTERRUPTED | KILLED_IN_MARIADB | KILLED_IN_MYSQL)
}

fn number(error: &sqlx::Error) -> Option<u16> {
    Some(error.as_database_error()?.try_downcast_ref::<MySqlDatabaseError>()?.number())
}

fn kind(error: &sqlx::Error) -> ErrorKind {
    match error {
        sqlx::Error::Database(_) => number(error).map_or(ErrorKind::Internal, kind_of_number),
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

fn kind_of_number(number: u16) -> ErrorKind {
    match number {
        _ if is_about_the_connection(number) => ErrorKind::Unavailable,
        LOCK_WAIT_TIMEOUT | DEADLOCK => ErrorKind::Unavailable,
        // Too many connections, too little memory or disk, a lock table that is full, a server that only reads (after
        // a failover), is taken out of its cluster or takes nobody for now, a row that changed under the statement, a
        // statement that took too long.
        1047 | 3032 | 3100 | 3101 | 3168 => ErrorKind::Unavailable,
        1040 | 1203 | 1226 | 1037 | 1038 | 1041 | 1021 | 1114 | 1206 | 1290 | 1792 | 1836 | 1020 | 1969 | 3024
        | 1180 | 1815 | 1637 => ErrorKind::Unavailable,
        NO_SUCH_DATABASE => ErrorKind::NotFound,
        // A table, column, view or default that is missing, or is there already.
        NO_SUCH_TABLE | TABLE_EXISTS | 1051 | 1054 | 1060 | 1061 | 1356 | 3822 | 1826 => ErrorKind::Schema,
        1062 | 1586 | 1022 | 1451 | 1452 | 1216 | 1217 => ErrorKind::Conflict,
        // A check, a value, a privilege, a wrong password, a statement that is larger than the server takes.
        PACKET_TOO_LARGE | 4025 | 3819 | 1048 | 1264 | 1265 | 1292 | 1364 | 1366 | 1406 | 1044 | 1045 | 1142 | 1143
        | 1227 | 1698 | 1665 => ErrorKind::Invalid,
        _ => ErrorKind::Internal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_become_kinds_a_caller_can_act_on() {
        let cases = [
            (DEADLOCK, ErrorKind::Unavailable),
            (LOCK_WAIT_TIMEOUT, ErrorKind::Unavailable),
            (1040, ErrorKind::Unavailable),
            (1047, ErrorKind::Unavailable),
            (3032, ErrorKind::Unavailable),
            (9001, ErrorKind::Unavailable),
            (SHUTDOWN, ErrorKind::Unavailable),
            (KILLED_IN_MARIADB, ErrorKind::Unavailable),
            (1045, ErrorKind::Invalid),
            (4025, ErrorKind::Invalid),
            (3819, ErrorKind::Invalid),
            (PACKET_TOO_LARGE, ErrorKind::Invalid),
            (1062, ErrorKind::Conflict),
            (NO_SUCH_DATABASE, ErrorKind::NotFound),
            (NO_SUCH_TABLE, ErrorKind::Schema),
            (1064, ErrorKind::Internal),
        ];
        for (number, expected) in cases {
            assert_eq!(kind_of_number(number), expected, "{number}");
        }
    }

    #[test]
    fn a_connection_lost_under_a_commit_is_unknown_and_under_a_statement_unavailable() {
        let lost = || sqlx::Error::Io(std::io::Error::from(std::io::ErrorKind::ConnectionReset));
        assert_eq!(translate("db:3306/shop", "read the outbox", lost()).kind(), ErrorKind::Unavailable);
        let error = translate_commit("db:3306/shop", lost());
        assert_eq!(error.kind(), ErrorKind::Unknown);
        assert!(error.to_string().starts_with("the connection to MySQL at db:3306/shop was lost under a commit"));
    }
}
