//! A process that sends half messages about transactions of a business database, and coordinates them.
//!
//! Every third transaction is rolled back by its business. Without senders the process only coordinates.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use landfall::check_back::{Coordinator, Options, Targets};
use landfall::half::{HalfProducer, StoredCoordinator};
use landfall::housekeeping::{Archive, Housekeeper, Policy, Span};
use landfall::sqlite::Sqlite;
use landfall::{
    Backoff, CheckBack, Error, ErrorKind, HalfMessage, HalfMessageDetail, Message, Result, Schema, TopicName,
};
use serde::{Deserialize, Serialize};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::Failpoint;

/// The argument of the process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct HalfSetup {
    /// Where both databases are.
    pub folder: PathBuf,
    /// Distinguishes the messages of several processes.
    pub run: u32,
    /// How many half messages this process sends.
    pub messages: u32,
    pub failpoint: Option<Failpoint>,
    /// Whether decided half messages are archived in the file `archive` and removed at once.
    pub archive: bool,
}

/// The ids of archived half messages, a line each.
#[derive(Debug)]
struct Ids(PathBuf);

#[async_trait]
impl Archive<HalfMessageDetail> for Ids {
    async fn store(&self, rows: Vec<HalfMessageDetail>) -> Result<String> {
        let mut file = OpenOptions::new().create(true).append(true).open(&self.0).map_err(failed)?;
        let lines: String =
            rows.iter().map(|detail| format!("{} {}\n", detail.row.id, detail.row.state.as_str())).collect();
        file.write_all(lines.as_bytes()).and_then(|()| file.sync_data()).map_err(failed)?;
        Ok(self.0.display().to_string())
    }
}

impl HalfSetup {
    /// Where the archive is.
    pub fn archive_file(&self) -> PathBuf {
        self.folder.join("archive")
    }

    /// Opens the coordinator's database.
    pub async fn store(&self) -> Result<Sqlite> {
        self.open("store").await
    }

    /// Opens the database of the business, with its table `orders`.
    pub async fn shop(&self) -> Result<Sqlite> {
        let shop = self.open("shop").await?;
        let create = "CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY)";
        sqlx::query(create).execute(shop.pool()).await.map_err(failed)?;
        Ok(shop)
    }

    async fn open(&self, name: &str) -> Result<Sqlite> {
        let url = format!("sqlite:{}", self.folder.join(format!("{name}.db")).display());
        let database = Sqlite::open(&url, Default::default()).await?;
        database.migrate().await?;
        Ok(database)
    }
}

/// Works until `stop` is cancelled.
pub async fn run(setup: HalfSetup, stop: CancellationToken) -> Result<()> {
    let (store, shop) = (setup.store().await?, setup.shop().await?);
    if let Some(failpoint) = setup.failpoint.clone() {
        failpoint.arm()?;
    }
    let options = Options {
        interval: Duration::from_millis(5),
        timeout: Duration::from_millis(500),
        backoff: Backoff { first: Duration::from_millis(5), cap: Duration::from_millis(50), max_attempts: 10_000 },
        ..Options::default()
    };
    let housekeeping = setup.archive.then(|| archive(&setup, store.clone(), stop.clone())).transpose()?;
    let targets = Targets::new().database("shop", Arc::new(shop.clone()));
    let coordinator = Coordinator::new(Arc::new(store.clone()), targets, options)?;
    let coordinating = tokio::spawn(coordinator.run(stop.clone()));
    let producer = HalfProducer::new(shop, Arc::new(StoredCoordinator::new(Arc::new(store))));
    for number in 0..setup.messages {
        let name = format!("{}-{number}", setup.run);
        let half = half_message(&name)?;
        // A sender that dies here leaves a prepared message without a transaction, which the coordinator resolves.
        if number % 4 == 3 {
            producer.prepare(&half).await?;
            continue;
        }
        let business = async |connection: &mut sqlx::SqliteConnection| {
            sqlx::query("INSERT INTO orders VALUES (?)").bind(&name).execute(connection).await.map_err(failed)?;
            if number % 3 == 2 { Err(Error::invalid("the business refuses")) } else { Ok(()) }
        };
        match producer.run(&half, business).await {
            Err(error) if !matches!(error.kind(), ErrorKind::Invalid | ErrorKind::Conflict) => return Err(error),
            _ => {}
        }
    }
    stop.cancelled().await;
    if let Some(housekeeping) = housekeeping {
        housekeeping.await.map_err(failed)??;
    }
    coordinating.await.map_err(failed)?
}

/// Archives and removes decided half messages all the time.
fn archive(setup: &HalfSetup, store: Sqlite, stop: CancellationToken) -> Result<JoinHandle<Result<()>>> {
    let policy = Policy {
        half_messages: Span::ZERO,
        half_message_archive: Some(Arc::new(Ids(setup.archive_file()))),
        interval: Duration::from_millis(5),
        // A killed process is replaced soon.
        lease_ttl: Duration::from_millis(200),
        ..Policy::default()
    };
    let store = Arc::new(store);
    Ok(tokio::spawn(Housekeeper::new(store.clone(), store, policy)?.run(stop)))
}

/// The payload of a message is the id of its order.
fn half_message(name: &str) -> Result<HalfMessage> {
    Ok(HalfMessage {
        message: Message::new(TopicName::new("orders")?, name.to_owned()),
        business_type: "order".into(),
        business_id: name.to_owned(),
        check_back: CheckBack { database: Some("shop".into()), ..CheckBack::default() },
        check_after: Duration::from_millis(20),
    })
}

fn failed(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::new(ErrorKind::Internal, "the half worker failed").with_source(error)
}
