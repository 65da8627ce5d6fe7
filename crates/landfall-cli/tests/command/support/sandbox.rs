//! A temporary folder in which a test runs the binary.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use landfall::{Leases, OutboxQueue, mysql, postgres, sqlite};
use landfall_testkit::servers::{self, PostgresServer};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, MySqlConnection, PgConnection, SqliteConnection};
use tempfile::TempDir;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use super::{Daemon, TIMEOUT};

pub(crate) struct Sandbox {
    folder: TempDir,
    /// `None` for the default, SQLite in the folder.
    database_url: Option<String>,
    /// A private server that the test may kill.
    server: Option<PostgresServer>,
}

/// The output and exit code of a command.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Sandbox {
    /// A sandbox with the default configuration.
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), database_url: None, server: None }
    }

    /// A sandbox with a fresh PostgreSQL database; `None` without a server.
    pub(crate) async fn on_postgres() -> Option<Self> {
        let url = servers::fresh_postgres_database().await?;
        Some(Self { folder: tempfile::tempdir().unwrap(), database_url: Some(url), server: None })
    }

    /// A sandbox with a fresh MariaDB database; `None` without a server.
    pub(crate) async fn on_mysql() -> Option<Self> {
        let url = servers::fresh_mysql_database().await?;
        Some(Self { folder: tempfile::tempdir().unwrap(), database_url: Some(url), server: None })
    }

    /// A sandbox with a private PostgreSQL server; `None` if none can be started.
    pub(crate) async fn on_own_postgres() -> Option<Self> {
        // Reports why, if there is none.
        servers::postgres().await?;
        let server = PostgresServer::start().await.unwrap();
        let url = server.fresh_database().await.unwrap();
        Some(Self { folder: tempfile::tempdir().unwrap(), database_url: Some(url), server: Some(server) })
    }

    pub(crate) fn server(&self) -> &PostgresServer {
        self.server.as_ref().unwrap()
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.path().join("landfall-data")
    }

    /// Writes `landfall.toml`.
    pub(crate) fn configure(&self, text: &str) {
        std::fs::write(self.path().join("landfall.toml"), text).unwrap();
    }

    /// Returns the binary with `arguments`, without the `LANDFALL_…` variables of the test's environment.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_landfall"));
        command.args(arguments).current_dir(self.path()).kill_on_drop(true).stdin(Stdio::null());
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("LANDFALL_") {
                command.env_remove(name);
            }
        }
        if let Some(url) = &self.database_url {
            command.env("LANDFALL_DATABASE_URL", url);
        }
        command
    }

    pub(crate) async fn run(&self, arguments: &[&str]) -> Finished {
        finish(self.command(arguments)).await
    }

    pub(crate) async fn run_with_input(&self, arguments: &[&str], input: &[u8]) -> Finished {
        let mut command = self.command(arguments);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        // A command that refuses the input early closes the pipe.
        let _ = stdin.write_all(input).await;
        drop(stdin);
        let output =
            tokio::time::timeout(TIMEOUT, child.wait_with_output()).await.expect("the command must exit").unwrap();
        Finished::from_output(output)
    }

    pub(crate) async fn serve(&self) -> Daemon {
        Daemon::start(self.command(&["serve", "--listen", "127.0.0.1:0"])).await
    }

    pub(crate) async fn serve_as(&self, roles: &str) -> Daemon {
        Daemon::start(self.command(&["serve", "--listen", "127.0.0.1:0", "--roles", roles])).await
    }

    /// Runs a statement over a plain database connection.
    pub(crate) async fn sql(&self, statement: &str) {
        self.try_sql(statement).await.unwrap();
    }

    /// Like [`Sandbox::sql`], for a statement that may fail.
    pub(crate) async fn try_sql(&self, statement: &str) -> Result<(), sqlx::Error> {
        let query = sqlx::raw_sql(AssertSqlSafe(statement.to_owned()));
        match &self.database_url {
            Some(url) if is_mysql(url) => query.execute(&mut MySqlConnection::connect(url).await?).await.map(drop),
            Some(url) => query.execute(&mut PgConnection::connect(url).await?).await.map(drop),
            None => query.execute(&mut self.sqlite().await).await.map(drop),
        }
    }

    /// Opens a transaction on the server, which ends when the result is dropped.
    pub(crate) async fn open_transaction(&self) -> Box<dyn std::any::Any> {
        let statement = "BEGIN; INSERT INTO landfall_barrier (id) VALUES ('0190d2a7-6a4e-7bbb-8a6d-3c1f0a9b1c2d')";
        match &self.database_url {
            Some(url) if is_mysql(url) => {
                let mut connection = MySqlConnection::connect(url).await.unwrap();
                sqlx::raw_sql(statement).execute(&mut connection).await.unwrap();
                Box::new(connection)
            }
            Some(url) => {
                let mut connection = PgConnection::connect(url).await.unwrap();
                sqlx::raw_sql(statement).execute(&mut connection).await.unwrap();
                Box::new(connection)
            }
            None => panic!("SQLite has no server"),
        }
    }

    /// Returns the first column of the first row.
    pub(crate) async fn count(&self, query: &str) -> i64 {
        let query = AssertSqlSafe(query.to_owned());
        match &self.database_url {
            Some(url) if is_mysql(url) => {
                let mut connection = MySqlConnection::connect(url).await.unwrap();
                sqlx::query_scalar(query).fetch_one(&mut connection).await.unwrap()
            }
            Some(url) => {
                let mut connection = PgConnection::connect(url).await.unwrap();
                sqlx::query_scalar(query).fetch_one(&mut connection).await.unwrap()
            }
            None => sqlx::query_scalar(query).fetch_one(&mut self.sqlite().await).await.unwrap(),
        }
    }

    async fn sqlite(&self) -> SqliteConnection {
        let options = SqliteConnectOptions::new().filename(self.data().join("landfall.db"));
        options.busy_timeout(TIMEOUT).connect().await.unwrap()
    }

    /// Opens the database through its ports, keeping sent messages, for a test that acts as the relay.
    pub(crate) async fn outbox(&self) -> Outbox {
        let keep_sent = Some(TIMEOUT);
        match &self.database_url {
            None => {
                let options = sqlite::Options { keep_sent, ..Default::default() };
                let file = self.data().join("landfall.db").display().to_string();
                Outbox::new(sqlite::Sqlite::open(&file, options).await.unwrap())
            }
            Some(url) if is_mysql(url) => {
                let options = mysql::Options { keep_sent, ..Default::default() };
                Outbox::new(mysql::MySql::connect(url, options).await.unwrap())
            }
            Some(url) => {
                let options = postgres::Options { keep_sent, ..Default::default() };
                Outbox::new(postgres::Postgres::connect(url, options).await.unwrap())
            }
        }
    }

    /// Returns the name of the database's kind, as in the folder `databases`.
    pub(crate) fn database(&self) -> &'static str {
        match &self.database_url {
            None => "sqlite",
            Some(url) if is_mysql(url) => "mysql",
            Some(_) => "postgres",
        }
    }

    /// Returns the column `key` quoted for the database; it is a reserved word in MySQL.
    pub(crate) fn key(&self) -> &'static str {
        if self.database_url.as_deref().is_some_and(is_mysql) { "`key`" } else { "key" }
    }

    /// Returns text as a literal of the column type of `payload`.
    pub(crate) fn bytes(&self, text: &str) -> String {
        let hex: String = text.bytes().map(|byte| format!("{byte:02x}")).collect();
        match &self.database_url {
            Some(url) if !is_mysql(url) => format!("'\\x{hex}'::bytea"),
            _ => format!("x'{hex}'"),
        }
    }
}

fn is_mysql(url: &str) -> bool {
    url.starts_with("mysql:")
}

/// An outbox as a relay works with it.
#[derive(Clone)]
pub(crate) struct Outbox {
    pub(crate) queue: Arc<dyn OutboxQueue>,
    pub(crate) leases: Arc<dyn Leases>,
}

impl Outbox {
    fn new(database: impl OutboxQueue + Leases + 'static) -> Self {
        let database = Arc::new(database);
        Self { queue: database.clone(), leases: database }
    }
}

pub(crate) async fn finish(mut command: Command) -> Finished {
    Finished::from_output(
        tokio::time::timeout(TIMEOUT, command.output()).await.expect("the command must exit").unwrap(),
    )
}

impl Finished {
    fn from_output(output: std::process::Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Asserts success and returns the objects of `--json`.
    pub(crate) fn objects(&self) -> Vec<serde_json::Value> {
        assert_eq!(self.code, 0, "{self:?}");
        self.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Asserts exit code `code`, an empty stdout and one line on stderr; returns that line without its prefix.
    pub(crate) fn error_line(&self, code: i32) -> &str {
        assert_eq!(self.code, code, "{self:?}");
        assert_eq!(self.stdout, "", "{self:?}");
        let line = self.stderr.trim_end();
        let error = line.strip_prefix("landfall: ").unwrap_or_else(|| panic!("{self:?}"));
        assert!(!error.contains('\n'), "{self:?}");
        error
    }
}
