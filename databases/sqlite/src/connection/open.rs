//! Opens a URL: creates the file and its folder if they are missing, and applies the settings that the promises need.

use std::io;
use std::path::Path;
use std::str::FromStr;
use std::time::{Duration, Instant};

use landfall_core::{Error, ErrorKind, Result};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{ConnectOptions, Connection, SqlitePool};

use crate::connection::error::{is_busy, translate};

/// How long a writer waits for SQLite's write lock, in this process and between processes.
pub(crate) const WRITE_LOCK_TIMEOUT: Duration = Duration::from_secs(30);
/// How long opening is retried while other processes open the same new file.
const OPEN_TIMEOUT: Duration = Duration::from_secs(10);
const OPEN_PAUSE: Duration = Duration::from_millis(20);

pub(crate) struct Pools {
    pub(crate) pool: SqlitePool,
    /// One connection that begins transactions, with prepared statements and cached pages. It does not wait for the
    /// write lock; [`begin`](landfall_core::Database::begin) does.
    pub(crate) writer: SqlitePool,
}

pub(crate) async fn pools(url: &str, max_connections: u32) -> Result<Pools> {
    let (options, storage) = parse(url)?;
    let options = options
        .synchronous(SqliteSynchronous::Full)
        // On macOS, fsync leaves data in the drive's cache, and this does not; elsewhere it has no effect.
        .pragma("fullfsync", "ON")
        .foreign_keys(true)
        .busy_timeout(WRITE_LOCK_TIMEOUT)
        // A relay reads hundreds of rows at a time; the default buffer pauses after fifty.
        .row_buffer_size(512);
    let pool = SqlitePoolOptions::new().test_before_acquire(false).acquire_timeout(WRITE_LOCK_TIMEOUT);

    let name = options.get_filename().display().to_string();
    let create = match storage {
        Storage::Memory => {
            // The connection is the database: it must never be closed, and a second one would see another database.
            let pool = pool.max_connections(1).min_connections(1).idle_timeout(None).max_lifetime(None);
            let opened = pool.connect_with(options).await;
            let pool = opened.map_err(|error| translate(&name, "open a database", error))?;
            return Ok(Pools { writer: pool.clone(), pool });
        }
        Storage::File { create } => create,
    };
    check_path(options.get_filename(), create)?;
    prepare(&options, create, &name).await?;
    // From now on a missing file is an error: a deleted file must not be replaced by an empty one.
    let options = options.create_if_missing(false);
    let writer = pool.clone().max_connections(1).connect_lazy_with(options.clone().busy_timeout(Duration::ZERO));
    let opened = pool.max_connections(max_connections.max(1)).connect_with(options).await;
    let pool = opened.map_err(|error| translate(&name, "open the database", error))?;
    Ok(Pools { pool, writer })
}

/// Where the database of a URL is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Storage {
    Memory,
    File { create: bool },
}

fn parse(url: &str) -> Result<(SqliteConnectOptions, Storage)> {
    if !(url.starts_with("sqlite:") || url == ":memory:") {
        // A plain path is used as it is, with percent signs and question marks.
        return named(SqliteConnectOptions::new().filename(url), url, Storage::File { create: true });
    }
    let options = SqliteConnectOptions::from_str(url)
        .map_err(|error| Error::invalid(format!("{url:?} is not a URL of a SQLite database")).with_source(error))?;
    let (address, parameters) = url.split_once('?').unwrap_or((url, ""));
    let storage = match parameters.split('&').find_map(|parameter| parameter.strip_prefix("mode=")) {
        Some("memory") => Storage::Memory,
        _ if address.ends_with(":memory:") => Storage::Memory,
        Some(mode) => Storage::File { create: mode == "rwc" },
        None => Storage::File { create: true },
    };
    named(options, url, storage)
}

fn named(options: SqliteConnectOptions, url: &str, storage: Storage) -> Result<(SqliteConnectOptions, Storage)> {
    if options.get_filename().as_os_str().is_empty() && storage != Storage::Memory {
        return Err(Error::invalid(format!("{url:?} names no file; write sqlite:path/to/file.db")));
    }
    Ok((options, storage))
}

fn check_path(path: &Path, create: bool) -> Result<()> {
    if path.is_dir() {
        return Err(Error::invalid(format!("{} is a folder, not a SQLite database file", path.display())));
    }
    match path.parent() {
        Some(folder) if create && !folder.as_os_str().is_empty() => std::fs::create_dir_all(folder).map_err(|error| {
            let kind = match error.kind() {
                io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists | io::ErrorKind::PermissionDenied => {
                    ErrorKind::Invalid
                }
                _ => ErrorKind::Unavailable,
            };
            let sentence = format!("the folder {} cannot be created for the database", folder.display());
            Error::new(kind, sentence).with_source(error)
        }),
        _ => Ok(()),
    }
}

/// Creates the file and enables its write-ahead log, which is stored in the file. SQLite needs exclusive access for
/// that and does not wait for it: when several processes start at once, all but one get a busy error.
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
    fn url_and_plain_path_name_a_file() {
        for (url, file, create) in [
            ("sqlite:orders.db", "orders.db", true),
            ("sqlite://orders.db", "orders.db", true),
            ("sqlite:///var/lib/orders.db", "/var/lib/orders.db", true),
            ("sqlite:a%20b.db", "a b.db", true),
            ("sqlite:orders.db?mode=rw", "orders.db", false),
            ("sqlite:orders.db?mode=rwc", "orders.db", true),
            ("data/a%20b?mode=rw.db", "data/a%20b?mode=rw.db", true),
        ] {
            let (options, storage) = parse(url).unwrap();
            assert_eq!((options.get_filename(), storage), (Path::new(file), Storage::File { create }), "{url}");
        }
        for url in ["sqlite:", "sqlite://", "", "sqlite:a.db?mode=nonsense"] {
            assert_eq!(parse(url).unwrap_err().kind(), ErrorKind::Invalid, "{url:?} was accepted");
        }
    }

    #[test]
    fn every_notation_of_an_in_memory_database_is_recognised() {
        for url in ["sqlite::memory:", ":memory:", "sqlite://:memory:", "sqlite://?mode=memory"] {
            assert_eq!(parse(url).unwrap().1, Storage::Memory, "{url}");
        }
    }
}
