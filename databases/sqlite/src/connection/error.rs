//! Translates the driver's errors: a kind for callers, and a sentence that names the file.

use landfall_core::{Error, ErrorKind};

/// Returns `cannot <what> in <file>: <reason>`, with the reason that SQLite's code implies, and the driver's error as
/// the source.
pub(crate) fn translate(file: &str, what: &str, error: sqlx::Error) -> Error {
    let (kind, why) = classify(&error);
    let sentence = match why {
        Some(why) => format!("cannot {what} in {file}: {why}"),
        None => format!("cannot {what} in {file}"),
    };
    let translated = Error::new(kind, sentence);
    // The driver's wrapper adds nothing to the error that it contains.
    match error {
        sqlx::Error::Database(inner) => translated.with_source(inner),
        sqlx::Error::Io(inner) => translated.with_source(inner),
        other => translated.with_source(other),
    }
}

/// Translates the error of a commit. After a failed write to the disk, the outcome is unknown.
pub(crate) fn translate_commit(file: &str, error: sqlx::Error) -> Error {
    let outcome_is_open = matches!(error, sqlx::Error::WorkerCrashed | sqlx::Error::Io(_))
        || result_code(&error).is_some_and(|code| code == SQLITE_IOERR);
    let translated = translate(file, "commit", error);
    if outcome_is_open {
        let sentence = format!("the commit in {file} was interrupted: it may have happened");
        return Error::new(ErrorKind::Unknown, sentence).with_source(translated);
    }
    translated
}

pub(crate) fn is_busy(error: &sqlx::Error) -> bool {
    matches!(result_code(error), Some(SQLITE_BUSY | SQLITE_LOCKED))
}

// SQLite's primary result codes (https://www.sqlite.org/rescode.html), which never change.
const SQLITE_ERROR: i32 = 1;
const SQLITE_PERM: i32 = 3;
const SQLITE_BUSY: i32 = 5;
const SQLITE_LOCKED: i32 = 6;
const SQLITE_READONLY: i32 = 8;
const SQLITE_IOERR: i32 = 10;
const SQLITE_CORRUPT: i32 = 11;
const SQLITE_FULL: i32 = 13;
const SQLITE_CANTOPEN: i32 = 14;
const SQLITE_TOOBIG: i32 = 18;
const SQLITE_CONSTRAINT: i32 = 19;
const SQLITE_NOTADB: i32 = 26;

/// The primary code: the lowest byte of the extended one that the driver reports.
fn result_code(error: &sqlx::Error) -> Option<i32> {
    error.as_database_error()?.code()?.parse::<i32>().ok().map(|code| code & 0xff)
}

fn classify(error: &sqlx::Error) -> (ErrorKind, Option<&'static str>) {
    if let (sqlx::Error::Database(inner), Some(code)) = (error, result_code(error)) {
        return classify_code(code, inner.message(), inner.is_unique_violation() || inner.is_foreign_key_violation());
    }
    match error {
        sqlx::Error::PoolTimedOut => (ErrorKind::Unavailable, Some("every connection of the pool is in use")),
        sqlx::Error::PoolClosed => (ErrorKind::Unavailable, Some("the pool was closed")),
        sqlx::Error::WorkerCrashed | sqlx::Error::Io(_) => (ErrorKind::Unavailable, None),
        sqlx::Error::Configuration(_) | sqlx::Error::InvalidArgument(_) => (ErrorKind::Invalid, None),
        sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_) => {
            (ErrorKind::Corrupt, Some("a column contains a value that landfall did not write"))
        }
        _ => (ErrorKind::Internal, None),
    }
}

fn classify_code(code: i32, message: &str, is_conflict: bool) -> (ErrorKind, Option<&'static str>) {
    // These have no codes.
    let is_schema = ["no such table", "no such column"].iter().any(|beginning| message.starts_with(beginning));
    match code {
        SQLITE_BUSY | SQLITE_LOCKED => (ErrorKind::Unavailable, Some("another connection held its lock for too long")),
        SQLITE_FULL => (ErrorKind::Unavailable, Some("the disk is full; free some space, and calls succeed again")),
        SQLITE_IOERR => (ErrorKind::Unavailable, Some("the disk reported an error")),
        SQLITE_CANTOPEN => (ErrorKind::Unavailable, Some("the file cannot be opened")),
        SQLITE_NOTADB => (ErrorKind::Corrupt, Some("the file is not a SQLite database")),
        SQLITE_CORRUPT => (ErrorKind::Corrupt, Some("the file is damaged; restore it from a backup")),
        SQLITE_READONLY | SQLITE_PERM => (ErrorKind::Invalid, Some("this process may not write to the file")),
        SQLITE_TOOBIG => (ErrorKind::Invalid, Some("a value is larger than SQLite accepts")),
        SQLITE_CONSTRAINT if is_conflict => (ErrorKind::Conflict, None),
        SQLITE_CONSTRAINT => (ErrorKind::Invalid, None),
        SQLITE_ERROR if message.ends_with("no transaction is active") => {
            (ErrorKind::Unavailable, Some("SQLite had rolled it back after an earlier error in it"))
        }
        SQLITE_ERROR if is_schema => {
            (ErrorKind::Schema, Some("the tables are missing or from another version; run `landfall migrate`"))
        }
        _ => (ErrorKind::Internal, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_map_to_kinds() {
        let kind = |code, message| classify_code(code, message, false).0;
        for passing in [SQLITE_BUSY, SQLITE_LOCKED, SQLITE_FULL, SQLITE_IOERR, SQLITE_CANTOPEN] {
            assert_eq!(kind(passing, ""), ErrorKind::Unavailable);
        }
        assert_eq!(kind(SQLITE_NOTADB, ""), ErrorKind::Corrupt);
        assert_eq!(kind(SQLITE_CORRUPT, ""), ErrorKind::Corrupt);
        assert_eq!(kind(SQLITE_ERROR, "no such table: landfall_outbox"), ErrorKind::Schema);
        assert_eq!(kind(SQLITE_ERROR, "near \"SELEC\": syntax error"), ErrorKind::Internal);
        assert_eq!(kind(SQLITE_CONSTRAINT, "CHECK constraint failed"), ErrorKind::Invalid);
        assert_eq!(classify_code(SQLITE_CONSTRAINT, "UNIQUE constraint failed", true).0, ErrorKind::Conflict);
    }

    #[test]
    fn commit_with_a_lost_worker_is_unknown() {
        let error = translate_commit("orders.db", sqlx::Error::WorkerCrashed);
        assert_eq!(error.kind(), ErrorKind::Unknown);
        assert!(error.to_string().starts_with("the commit in orders.db was interrupted"), "{error}");
        assert_eq!(translate_commit("orders.db", sqlx::Error::PoolTimedOut).kind(), ErrorKind::Unavailable);
    }
}
