//! Two-phase messages over HTTP: `landfall serve` beside DTM's server, on the same PostgreSQL. Both deliver
//! meanwhile; the figure counts commits.
//!
//! DTM is built from the Go proxy and started here. The daemon must be built before: `cargo build -p landfall-cli
//! --features full`, with the profile of this program.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use landfall::MessageId;
use landfall::postgres::Postgres;
use serde_json::{Value, json};
use sqlx::Executor;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufStream};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use tokio::task::JoinSet;

use crate::Result;
use crate::contest::{self, Contestant, Sample, ensure_equal};
use crate::table::{Row, rate_rows};

/// DTM's HTTP API without its service registries, which would triple the build.
const MAIN: &str = include_str!("dtm/main.go");
const MODULE: &str = "module landfall.dev/bench/dtm\n\ngo 1.21\n\nrequire github.com/dtm-labs/dtm v1.18.0\n";
const STARTED_WITHIN: Duration = Duration::from_secs(60);
const PAYLOAD: &str = "{\"order\":4711,\"note\":\"about two hundred and fifty bytes, as in the other measurements\"}";

/// Returns the rows, or why it was not run.
pub(crate) async fn measure(
    database: &Postgres,
    url: &str,
    clients: usize,
    total: Duration,
) -> Result<std::result::Result<Vec<Row>, String>> {
    let folder = tempfile::tempdir()?;
    let daemon = match std::env::current_exe()?.parent().map(|folder| folder.join("landfall")) {
        Some(daemon) if daemon.exists() => daemon,
        _ => return Ok(Err("DTM: build the daemon first, cargo build -p landfall-cli --features full".into())),
    };
    let Some(dtm) = build_dtm(folder.path()).await? else {
        return Ok(Err("DTM: Go is missing, or cannot build it from its proxy".into()));
    };
    sqlx::raw_sql(sqlx::AssertSqlSafe(dtm.tables)).execute(database.pool()).await?;
    let sink = TcpListener::bind("127.0.0.1:0").await?;
    let receiver = format!("http://{}", sink.local_addr()?);
    let mut tasks = JoinSet::new();
    tasks.spawn(accept_everything(sink));
    let server = start_landfall(&daemon, url, folder.path()).await?;
    let landfall = OverHttp { server, calls: Calls::Landfall, database, clients };
    let server = start_dtm(&dtm.binary, url, folder.path()).await?;
    let dtm = OverHttp { server, calls: Calls::Dtm(receiver), database, clients };
    let name = format!("two-phase message over HTTP, committed, {clients} clients");
    let mut contestants: [Box<dyn Contestant>; 2] = [Box::new(landfall), Box::new(dtm)];
    let samples = contest::compare(&name, total, &mut contestants).await?;
    Ok(Ok(rate_rows(&name, "messages/s", &["DTM 1.18"], &samples)))
}

/// A server process, killed when dropped.
struct Server {
    address: String,
    _process: Child,
}

struct BuiltDtm {
    binary: PathBuf,
    /// The script in DTM's module that creates its tables.
    tables: String,
}

async fn build_dtm(folder: &Path) -> Result<Option<BuiltDtm>> {
    std::fs::write(folder.join("main.go"), MAIN)?;
    std::fs::write(folder.join("go.mod"), MODULE)?;
    let binary = folder.join("dtm");
    let build = Command::new("go").args(["build", "-mod=mod", "-o"]).arg(&binary).arg(".").current_dir(folder).output();
    if !build.await.is_ok_and(|output| output.status.success()) {
        return Ok(None);
    }
    let list = ["list", "-mod=mod", "-m", "-f", "{{.Dir}}", "github.com/dtm-labs/dtm"];
    let module = Command::new("go").args(list).current_dir(folder).output().await?;
    let module = PathBuf::from(String::from_utf8(module.stdout)?.trim());
    let tables = std::fs::read_to_string(module.join("sqls/dtmsvr.storage.postgres.sql"))?;
    Ok(Some(BuiltDtm { binary, tables }))
}

async fn start_landfall(daemon: &Path, url: &str, folder: &Path) -> Result<Server> {
    let mut command = Command::new(daemon);
    command.args(["serve", "--listen", "127.0.0.1:0", "--database-url", url]).current_dir(folder);
    let mut process = command.stderr(Stdio::piped()).kill_on_drop(true).spawn()?;
    let stderr = process.stderr.take().ok_or("the daemon has no stderr")?;
    let mut lines = tokio::io::BufReader::new(stderr).lines();
    while let Some(line) = lines.next_line().await? {
        if let Some((_, rest)) = line.split_once("ready on http://") {
            let address = rest.split(' ').next().unwrap_or_default().to_owned();
            // Read on, so that a full pipe never blocks the daemon.
            tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
            return Ok(Server { address, _process: process });
        }
    }
    Err("the daemon ended at its start".into())
}

async fn start_dtm(binary: &Path, url: &str, folder: &Path) -> Result<Server> {
    let rest = url.strip_prefix("postgres://").ok_or("not a URL of PostgreSQL")?;
    let (account, place) = rest.split_once('@').ok_or("the URL has no user")?;
    // An empty password would swallow the next setting; a server that trusts local users ignores it.
    let (user, password) = account.split_once(':').unwrap_or((account, "unused"));
    let (host, name) = place.split_once('/').ok_or("the URL has no database")?;
    let (host, port) = host.split_once(':').unwrap_or((host, "5432"));
    let ports = [free_port().await?, free_port().await?, free_port().await?];
    let mut command = Command::new(binary);
    command
        .env("STORE_DRIVER", "postgres")
        .env("STORE_HOST", host)
        .env("STORE_PORT", port)
        .env("STORE_USER", user)
        .env("STORE_PASSWORD", password)
        .env("STORE_DB", name.split('?').next().unwrap_or(name))
        .env("LOG_LEVEL", "error")
        .env("HTTP_PORT", ports[0].to_string())
        .env("GRPC_PORT", ports[1].to_string())
        .env("JSON_RPC_PORT", ports[2].to_string());
    let log = folder.join("dtm.log");
    let mut process = command.stdout(Stdio::null()).stderr(std::fs::File::create(&log)?).kill_on_drop(true).spawn()?;
    let address = format!("127.0.0.1:{}", ports[0]);
    let started = Instant::now();
    while TcpStream::connect(&address).await.is_err() {
        if started.elapsed() > STARTED_WITHIN || process.try_wait()?.is_some() {
            return Err(format!("DTM does not listen: {}", std::fs::read_to_string(&log)?).into());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(Server { address, _process: process })
}

async fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0").await?.local_addr()?.port())
}

/// Receives what DTM delivers, and answers its questions.
async fn accept_everything(listener: TcpListener) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(async move {
            let mut stream = BufStream::new(stream);
            let body = "{\"dtm_result\":\"SUCCESS\"}";
            let answer = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            );
            while let Ok((_, _)) = read_message(&mut stream).await {
                if stream.write_all(answer.as_bytes()).await.is_err() || stream.flush().await.is_err() {
                    break;
                }
            }
        });
    }
}

/// Reads a request or a response of HTTP/1.1: its first line and its body.
async fn read_message(stream: &mut BufStream<TcpStream>) -> Result<(String, Vec<u8>)> {
    let mut first = String::new();
    if stream.read_line(&mut first).await? == 0 {
        return Err("the connection was closed".into());
    }
    let mut length = 0;
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await?;
        let line = line.trim_end().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse()?;
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    Ok((first, body))
}

/// A connection that is kept.
struct Client {
    address: String,
    stream: BufStream<TcpStream>,
}

impl Client {
    async fn connect(address: &str) -> Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { address: address.to_owned(), stream: BufStream::new(stream) })
    }

    /// Posts, and returns the body of a 2xx response.
    async fn post(&mut self, path: &str, body: &str) -> Result<Vec<u8>> {
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        );
        self.stream.write_all(head.as_bytes()).await?;
        self.stream.flush().await?;
        let (first, body) = read_message(&mut self.stream).await?;
        if first.split(' ').nth(1).is_some_and(|status| status.starts_with('2')) {
            return Ok(body);
        }
        Err(format!("{path}: {first} {}", String::from_utf8_lossy(&body)).into())
    }
}

/// How a server is asked to send one message.
#[derive(Clone)]
enum Calls {
    Landfall,
    /// With the URL that receives the messages.
    Dtm(String),
}

impl Calls {
    async fn send(&self, client: &mut Client) -> Result<()> {
        match self {
            Self::Landfall => {
                let half = json!({
                    "topic": "orders", "payload": PAYLOAD, "business_type": "order", "business_id": "4711",
                    "check_back": {"http": "http://127.0.0.1:9/"}, "check_after_s": 3600
                });
                let reply = client.post("/v1/half-messages", &half.to_string()).await?;
                let reply: Value = serde_json::from_slice(&reply)?;
                let id = reply["id"].as_str().ok_or("the reply has no id")?;
                client.post(&format!("/v1/half-messages/{id}/commit"), "").await.map(drop)
            }
            Self::Dtm(receiver) => {
                let message = json!({
                    "gid": MessageId::new().to_string(), "trans_type": "msg", "protocol": "http", "concurrent": false,
                    "query_prepared": format!("{receiver}/state"),
                    "steps": [{"action": format!("{receiver}/orders")}], "payloads": [PAYLOAD]
                })
                .to_string();
                client.post("/api/dtmsvr/prepare", &message).await?;
                client.post("/api/dtmsvr/submit", &message).await.map(drop)
            }
        }
    }

    /// The table with one row per message, and which rows are committed.
    fn committed(&self) -> &'static str {
        match self {
            Self::Landfall => "SELECT count(*) FROM landfall_half_message WHERE state = 'committed'",
            Self::Dtm(_) => "SELECT count(*) FROM trans_global WHERE status IN ('submitted', 'succeed')",
        }
    }
}

struct OverHttp<'a> {
    server: Server,
    calls: Calls,
    database: &'a Postgres,
    clients: usize,
}

#[async_trait]
impl Contestant for OverHttp<'_> {
    async fn sample(&mut self, length: Duration) -> Result<Sample> {
        let started = Instant::now();
        let mut tasks = JoinSet::<Result<u64>>::new();
        for _ in 0..self.clients {
            let (calls, address) = (self.calls.clone(), self.server.address.clone());
            tasks.spawn(async move {
                let (mut client, mut count) = (Client::connect(&address).await?, 0);
                while started.elapsed() < length {
                    calls.send(&mut client).await?;
                    count += 1;
                }
                Ok(count)
            });
        }
        let mut operations = 0;
        while let Some(count) = tasks.join_next().await {
            operations += count??;
        }
        let elapsed = started.elapsed();
        let rows: i64 = sqlx::query_scalar(self.calls.committed()).fetch_one(self.database.pool()).await?;
        ensure_equal("committed messages", rows.unsigned_abs(), operations)?;
        let truncate = "TRUNCATE landfall_half_message, landfall_audit, trans_global, trans_branch_op";
        self.database.pool().execute(truncate).await?;
        Ok(Sample::Rate { operations, elapsed })
    }
}
