//! From a URL to a pool: the file and its folder made where they are missing, the settings that the promises need.

use std::io;
use std::path::Path;
use std::str::FromStr;
use std::time::{Duration, Instant};

use landfall_core::{Error, ErrorKind, Result};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{ConnectOptions, Connection, SqlitePool};

use crate::error::{is_busy, translate};

/// How long one may wait for SQLite's write lock, in this process and between processes.
pub(crate) const WRITE_LOCK_TIMEOUT: Duration = Duration::from_secs(30);
/// How long several processes that open a new file at once may be in each other's way.
const OPEN_TIMEOUT: Duration = Duration::from_secs(10);
const OPEN_PAUSE: Duration = Duration::from_millis(20);

pub(crate) async fn pool(url: &str, max_connections: u32) -> Result<SqlitePool> {
    let options = parse(url)?
        .synchronous(SqliteSynchronous::Full)
        // Where fsync leaves data in the drive's cache (macOS), this does not; elsewhere it is without effect.
        .pragma("fullfsync", "ON")
        .foreign_keys(true)
        .busy_timeout(WRITE_LOCK_TIMEOUT)
        // A relay reads some hundred rows at a time: without a pause after each fifty.
        .row_buffer_size(512);
    let pool = SqlitePoolOptions::new().test_before_acquire(false).acquire_timeout(WRITE_LOCK_TIMEOUT);

    if is_in_memory(&options) {
        // The one connection is the database: it must never be closed, and a second would see another database.
        let pool = pool.max_connections(1).min_connections(1).idle_timeout(None).max_lifetime(None);
        return pool.connect_with(options).await.map_err(|error| translate(url, "open a database", error));
    }

    let name = options.get_filename().display().to_string();
    let create = !url.contains("mode=");
    check_path(options.get_filename(), create)?;
    prepare(&options, create || url.contains("mode=rwc"), &name).await?;
    // From here on a missing file is an error: whoever deletes it under us must not get an empty one in its place.
    let options = options.create_if_missing(false);
    pool.max_connections(max_connections.max(1))
        .connect_with(options)
        .await
        .map_err(|error| translate(&name, "open the database", error))
}

/// Whether the database lives in the memory of this process alone.
pub(crate) fn is_in_memory(options: &SqliteConnectOptions) -> bool {
    options.get_filename() == Path::new(":memory:")
        || options.to_url_lossy().query_pairs().any(|pair| pair == ("mode".into(), "memory".into()))
}

fn parse(url: &str) -> Result<SqliteConnectOptions> {
    let options = if url.starts_with("sqlite:") || url == ":memory:" {
        SqliteConnectOptions::from_str(url)
            .map_err(|error| Error::invalid(format!("{url:?} is not a URL of a SQLite database")).with_source(error))?
    } else {
        // A plain path means itself, whatever percent signs and question marks are in it.
        SqliteConnectOptions::new().filename(url)
    };
    if options.get_filename().as_os_str().is_empty() && !is_in_memory(&options) {
        return Err(Error::invalid(format!("{url:?} names no file; write sqlite:path/to/file.db")));
    }
    Ok(options)
}

fn check_path(path: &Path, create: bool) -> Result<()> {
    if path.is_dir() {
        return Err(Error::invalid(format!("{} is a folder, not a SQLite database file", path.display())));
    }
    match path.parent() {
        Some(folder) if create && !folder.as_os_str().is_empty() => {
            std::fs::create_dir_all(folder).map_err(|error| {
                let kind = match error.kind() {
                    io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists | io::ErrorKind::PermissionDenied => {
                        ErrorKind::Invalid
                    }
                    _ => ErrorKind::Unavailable,
                };
                let sentence = format!("the folder {} cannot be created for the database", folder.display());
                Error::new(kind, sentence).with_source(error)
            })
        }
        _ => Ok(()),
    }
}

/// Creates the file and turns on its write-ahead log, which stays on for everybody. That needs the file alone for a
/// moment, and SQLite does not wait for it: when several processes start at once, all but one are told it is busy.
async fn prepare(options: &SqliteConnectOptions, create: bool, name: &str) -> Result<()> {
    let options = options.clone().create_if_missing(create).journal_mode(SqliteJournalMode::Wal);
    let started = Instant::now();
    loop {
        let opened = match options.connect().await {
            Ok(connection) => connection.close().await,
            Err(error) => Err(error),
        };
        match opened {
            Err(error) if is_busy(&error) && started.elapsed() < OPEN_TIMEOUT => tokio::time::sleep(OPEN_PAUSE).await,
            opened => return opened.map_err(|error| translate(name, "open the database", error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_a_file_and_a_plain_path_means_itself() {
        for (url, file) in [
            ("sqlite:orders.db", "orders.db"),
            ("sqlite://orders.db", "orders.db"),
            ("sqlite:///var/lib/orders.db", "/var/lib/orders.db"),
            ("sqlite:a%20b.db", "a b.db"),
            ("data/a%20b?.db", "data/a%20b?.db"),
        ] {
            assert_eq!(parse(url).unwrap().get_filename(), Path::new(file), "{url}");
        }
        for url in ["sqlite:", "sqlite://", "", "sqlite:a.db?mode=nonsense"] {
            assert_eq!(parse(url).unwrap_err().kind(), ErrorKind::Invalid, "{url:?} was accepted");
        }
    }

    #[test]
    fn memory_is_recognised_however_it_is_spelled() {
        for (url, in_memory) in
            [("sqlite::memory:", true), (":memory:", true), ("sqlite://?mode=memory", true), ("sqlite:a.db", false)]
        {
            assert_eq!(is_in_memory(&parse(url).unwrap()), in_memory, "{url}");
        }
    }
}
