//! A folder of a test's own, and the binary in it.

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

use super::{Daemon, PATIENCE};

pub(crate) struct Place {
    folder: TempDir,
    /// `None` for the default: SQLite below the folder.
    database_url: Option<String>,
    /// A server that this test may kill.
    server: Option<PostgresServer>,
}

/// A command that has ended.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Place {
    /// Everything at its default.
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), database_url: None, server: None }
    }

    /// With a database of its own on PostgreSQL; `None` where there is no server.
    pub(crate) async fn on_postgres() -> Option<Self> {
        let url = servers::fresh_postgres_database().await?;
        Some(Self { folder: tempfile::tempdir().unwrap(), database_url: Some(url), server: None })
    }

    /// With a database of its own on MariaDB; `None` where there is no server.
    pub(crate) async fn on_mysql() -> Option<Self> {
        let url = servers::fresh_mysql_database().await?;
        Some(Self { folder: tempfile::tempdir().unwrap(), database_url: Some(url), server: None })
    }

    /// With a PostgreSQL server of its own; `None` where there can be none.
    pub(crate) async fn on_own_postgres() -> Option<Self> {
        // Says why, where there is none.
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

    /// The binary with `arguments`, ready to be started here; nothing of the test's environment steers it.
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
        // Whoever refuses the input early closes the pipe, which is fine.
        let _ = stdin.write_all(input).await;
        drop(stdin);
        let output = tokio::time::timeout(PATIENCE, child.wait_with_output()).await.expect("it must end").unwrap();
        Finished::of(output)
    }

    pub(crate) async fn serve(&self) -> Daemon {
        Daemon::start(self.command(&["serve", "--listen", "127.0.0.1:0"])).await
    }

    pub(crate) async fn serve_as(&self, roles: &str) -> Daemon {
        Daemon::start(self.command(&["serve", "--listen", "127.0.0.1:0", "--roles", roles])).await
    }

    /// Runs a statement as any program would that knows SQL and nothing of Landfall.
    pub(crate) async fn sql(&self, statement: &str) {
        let query = sqlx::raw_sql(AssertSqlSafe(statement.to_owned()));
        match &self.database_url {
            Some(url) if is_mysql(url) => {
                query.execute(&mut MySqlConnection::connect(url).await.unwrap()).await.unwrap();
            }
            Some(url) => drop(query.execute(&mut PgConnection::connect(url).await.unwrap()).await.unwrap()),
            None => drop(query.execute(&mut self.sqlite().await).await.unwrap()),
        }
    }

    /// The first column of the first row.
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
        options.busy_timeout(PATIENCE).connect().await.unwrap()
    }

    /// The database behind its ports, with sent messages kept, for what a test does in a relay's place.
    pub(crate) async fn outbox(&self) -> Outbox {
        let keep_sent = Some(PATIENCE);
        match &self.database_url {
            None => {
                let options = sqlite::Options { keep_sent, ..Default::default() };
                let file = self.data().join("landfall.db").display().to_string();
                Outbox::of(sqlite::Sqlite::open(&file, options).await.unwrap())
            }
            Some(url) if is_mysql(url) => {
                let options = mysql::Options { keep_sent, ..Default::default() };
                Outbox::of(mysql::MySql::connect(url, options).await.unwrap())
            }
            Some(url) => {
                let options = postgres::Options { keep_sent, ..Default::default() };
                Outbox::of(postgres::Postgres::connect(url, options).await.unwrap())
            }
        }
    }

    /// The column `key` in a statement: a reserved word of MySQL.
    pub(crate) fn key(&self) -> &'static str {
        if self.database_url.as_deref().is_some_and(is_mysql) { "`key`" } else { "key" }
    }

    /// Text as a literal of the type of `payload`.
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
    fn of(database: impl OutboxQueue + Leases + 'static) -> Self {
        let database = Arc::new(database);
        Self { queue: database.clone(), leases: database }
    }
}

pub(crate) async fn finish(mut command: Command) -> Finished {
    Finished::of(tokio::time::timeout(PATIENCE, command.output()).await.expect("the command must end").unwrap())
}

impl Finished {
    fn of(output: std::process::Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// The objects of `--json`, after a success.
    pub(crate) fn objects(&self) -> Vec<serde_json::Value> {
        assert_eq!(self.code, 0, "{self:?}");
        self.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Asserts that it ended with `code`, said one sentence and printed no data; answers with the sentence.
    pub(crate) fn sentence(&self, code: i32) -> &str {
        assert_eq!(self.code, code, "{self:?}");
        assert_eq!(self.stdout, "", "{self:?}");
        let line = self.stderr.trim_end();
        let sentence = line.strip_prefix("landfall: ").unwrap_or_else(|| panic!("{self:?}"));
        assert!(!sentence.contains('\n'), "{self:?}");
        sentence
    }
}
