//! What the error numbers of MariaDB and MySQL mean to a caller.

use landfall_core::{Error, ErrorKind};
use landfall_sql_toolkit::{ErrorCodes, Server};
use sqlx::error::DatabaseError;
use sqlx::mysql::MySqlDatabaseError;

pub(crate) struct ErrorNumber;

impl ErrorCodes for ErrorNumber {
    const PRODUCT: &'static str = "MySQL";

    fn kind(error: &dyn DatabaseError) -> ErrorKind {
        number_of(error).map_or(ErrorKind::Internal, kind_of_number)
    }

    fn is_read_only(error: &dyn DatabaseError) -> bool {
        matches!(number_of(error), Some(1290 | 1792 | 1836))
    }

    fn is_connection_lost(error: &dyn DatabaseError) -> bool {
        number_of(error).is_some_and(is_about_the_connection)
    }
}

/// Translates the error of a commit. A missing savepoint means that the transaction had ended before.
pub(crate) fn could_not_commit(server: &Server<ErrorNumber>, error: sqlx::Error) -> Error {
    if number(&error) != Some(NO_SUCH_SAVEPOINT) {
        return server.could_not_commit()(error);
    }
    let sentence = format!(
        "the transaction on MySQL at {} ended before its commit: a deadlock rolled it back, or a statement such as \
         CREATE TABLE committed what was before it",
        server.address()
    );
    Error::new(ErrorKind::Conflict, sentence).with_source(error)
}

/// Returns whether the server rolled the whole transaction back because of a deadlock. A cluster (Galera, group
/// replication) reports the same for a commit that conflicts with another node's.
pub(crate) fn is_deadlock(error: &sqlx::Error) -> bool {
    number(error) == Some(DEADLOCK)
}

/// Returns whether a statement with `NOWAIT` found a locked row. MariaDB reports a lock timeout.
pub(crate) fn is_locked(error: &sqlx::Error) -> bool {
    matches!(number(error), Some(LOCK_WAIT_TIMEOUT | LOCKED_IN_MYSQL))
}

pub(crate) fn is_missing_table(error: &sqlx::Error) -> bool {
    matches!(number(error), Some(NO_SUCH_TABLE | NO_SUCH_DATABASE))
}

pub(crate) fn is_existing_table(error: &sqlx::Error) -> bool {
    number(error) == Some(TABLE_EXISTS)
}

pub(crate) fn is_existing_column_or_index(error: &sqlx::Error) -> bool {
    matches!(number(error), Some(COLUMN_EXISTS | INDEX_EXISTS))
}

// From MySQL's manual, "Server Error Message Reference"; MariaDB's own numbers start at 1900.
const NO_SUCH_DATABASE: u16 = 1049;
const TABLE_EXISTS: u16 = 1050;
const SHUTDOWN: u16 = 1053;
const COLUMN_EXISTS: u16 = 1060;
const INDEX_EXISTS: u16 = 1061;
const NO_SUCH_TABLE: u16 = 1146;
const PACKET_TOO_LARGE: u16 = 1153;
const LOCK_WAIT_TIMEOUT: u16 = 1205;
const DEADLOCK: u16 = 1213;
const NO_SUCH_SAVEPOINT: u16 = 1305;
const INTERRUPTED: u16 = 1317;
const KILLED_IN_MARIADB: u16 = 1927;
const KILLED_IN_MYSQL: u16 = 3169;
const LOCKED_IN_MYSQL: u16 = 3572;

fn is_about_the_connection(number: u16) -> bool {
    // A proxy that lost its server reports numbers from 2000 and from 9000 on.
    let is_lost = matches!(number, 1152 | 1158..=1161 | 1184 | 4031 | 2000..=2999 | 9000..=9999);
    is_lost || matches!(number, SHUTDOWN | INTERRUPTED | KILLED_IN_MARIADB | KILLED_IN_MYSQL)
}

fn number(error: &sqlx::Error) -> Option<u16> {
    number_of(error.as_database_error()?)
}

fn number_of(error: &dyn DatabaseError) -> Option<u16> {
    Some(error.try_downcast_ref::<MySqlDatabaseError>()?.number())
}

fn kind_of_number(number: u16) -> ErrorKind {
    match number {
        _ if is_about_the_connection(number) => ErrorKind::Unavailable,
        LOCK_WAIT_TIMEOUT | DEADLOCK => ErrorKind::Unavailable,
        // Too many connections; too little memory or disk; a full lock table. A server that is read-only (after a
        // failover), not in its cluster, or accepts no work for now. A row that changed during the statement. A
        // statement that timed out.
        1047 | 3032 | 3100 | 3101 | 3168 => ErrorKind::Unavailable,
        1040 | 1203 | 1226 | 1037 | 1038 | 1041 | 1021 | 1114 | 1206 | 1290 | 1792 | 1836 | 1020 | 1969 | 3024
        | 1180 | 1815 | 1637 => ErrorKind::Unavailable,
        // A wrong password, which may be rotated.
        1045 | 1698 => ErrorKind::Unavailable,
        NO_SUCH_DATABASE => ErrorKind::NotFound,
        // A table, column, view or default is missing, or exists already.
        NO_SUCH_TABLE | TABLE_EXISTS | 1051 | 1054 | 1060 | 1061 | 1356 | 3822 | 1826 => ErrorKind::Schema,
        1062 | 1586 | 1022 | 1451 | 1452 | 1216 | 1217 => ErrorKind::Conflict,
        // A check, a value, a privilege, a statement larger than the server accepts.
        PACKET_TOO_LARGE | 4025 | 3819 | 1048 | 1264 | 1265 | 1292 | 1364 | 1366 | 1406 | 1044 | 1142 | 1143 | 1227
        | 1665 => ErrorKind::Invalid,
        _ => ErrorKind::Internal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_map_to_kinds() {
        let cases = [
            (DEADLOCK, ErrorKind::Unavailable),
            (LOCK_WAIT_TIMEOUT, ErrorKind::Unavailable),
            (1040, ErrorKind::Unavailable),
            (1047, ErrorKind::Unavailable),
            (3032, ErrorKind::Unavailable),
            (9001, ErrorKind::Unavailable),
            (SHUTDOWN, ErrorKind::Unavailable),
            (KILLED_IN_MARIADB, ErrorKind::Unavailable),
            (1045, ErrorKind::Unavailable),
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
}
