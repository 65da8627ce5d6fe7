//! A process that runs each of a number of keys twice: the same request, sent again.
//!
//! In a transaction, an effect is a row and a message of it. Under a lease, it is a row in the database of another
//! system, which no transaction covers and no constraint protects.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use landfall::idempotency::{
    Error, FingerprintBuilder, Idempotency, Identity, InTransaction, OnUnknown, Policy, Scope, Work,
};
use landfall::sqlite::Sqlite;
use landfall::{ErrorKind, Message, OutboxWriter, Result, Schema, TopicName};
use serde::{Deserialize, Serialize};

use crate::Failpoint;

/// The argument of the process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct IdempotentSetup {
    /// Where both databases are.
    pub folder: PathBuf,
    pub mode: IdempotentMode,
    pub keys: u32,
    pub failpoint: Option<Failpoint>,
}

/// Where the record is, and what follows when an attempt crashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum IdempotentMode {
    InTransaction,
    Rerun,
    Uncertain,
}

impl IdempotentSetup {
    /// Opens the database of the records, with a table `effects`.
    pub async fn shop(&self) -> Result<Sqlite> {
        self.open("shop").await
    }

    /// Opens the database of the other system.
    pub async fn bank(&self) -> Result<Sqlite> {
        self.open("bank").await
    }

    async fn open(&self, name: &str) -> Result<Sqlite> {
        let url = format!("sqlite:{}", self.folder.join(format!("{name}.db")).display());
        let database = Sqlite::open(&url, Default::default()).await?;
        database.migrate().await?;
        let create = "CREATE TABLE IF NOT EXISTS effects (key TEXT NOT NULL)";
        sqlx::query(create).execute(database.pool()).await.map_err(failed)?;
        Ok(database)
    }
}

/// The identity of key `number`.
pub fn identity(number: u32) -> Result<Identity> {
    Identity::new(Scope::Global, "payment", number.to_string())
}

/// Runs every key twice. A key whose outcome is uncertain is left to a person.
pub async fn run(setup: IdempotentSetup) -> Result<()> {
    let (shop, bank) = (setup.shop().await?, setup.bank().await?);
    if let Some(failpoint) = setup.failpoint.clone() {
        failpoint.arm()?;
    }
    let on_unknown = match setup.mode {
        IdempotentMode::InTransaction => return run_in_transaction(shop, setup.keys).await,
        IdempotentMode::Rerun => OnUnknown::Rerun,
        IdempotentMode::Uncertain => OnUnknown::Uncertain,
    };
    // The lease of a killed attempt ends while the next process waits.
    let policy = Policy::new(on_unknown).with_lease(Duration::from_millis(500)).with_wait(Duration::from_secs(60));
    let engine = Idempotency::new(Arc::new(shop));
    for number in (0..setup.keys).flat_map(|number| [number, number]) {
        let bank = bank.clone();
        let work = async move |_| match pay(&bank, number).await {
            Ok(()) => Work::Done(number),
            Err(error) => Work::Unknown(error),
        };
        match engine.run(&identity(number)?, &FingerprintBuilder::empty(), &policy, work).await {
            Ok(answer) if answer.value == number => {}
            Err(Error::Uncertain) if on_unknown == OnUnknown::Uncertain => {}
            other => return Err(failed(format!("key {number}: {other:?}"))),
        }
    }
    Ok(())
}

async fn pay(bank: &Sqlite, number: u32) -> Result<()> {
    let insert = sqlx::query("INSERT INTO effects VALUES (?)").bind(number.to_string());
    insert.execute(bank.pool()).await.map(drop).map_err(failed)
}

async fn run_in_transaction(shop: Sqlite, keys: u32) -> Result<()> {
    let orders = InTransaction::new(shop.clone()).with_wait(Duration::from_secs(60));
    for number in (0..keys).flat_map(|number| [number, number]) {
        let work = async |connection: &mut sqlx::SqliteConnection| {
            let insert = sqlx::query("INSERT INTO effects VALUES (?)").bind(number.to_string());
            insert.execute(&mut *connection).await.map_err(failed)?;
            let message = Message::new(TopicName::new("orders")?, number.to_string());
            shop.enqueue(connection, &[message]).await?;
            Ok::<_, landfall::Error>(number)
        };
        let answer = orders.run(&identity(number)?, &FingerprintBuilder::empty(), work).await;
        if !matches!(&answer, Ok(answer) if answer.value == number) {
            return Err(failed(format!("key {number}: {answer:?}")));
        }
    }
    Ok(())
}

fn failed(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> landfall::Error {
    landfall::Error::new(ErrorKind::Internal, "the idempotent worker failed").with_source(error)
}
