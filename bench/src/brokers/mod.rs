//! Each adapter compared with its broker's own client: the same work, with the same durability, on the same server.
//! Also the whole path over each broker, compared with the whole path over the embedded log.

mod adapter;
mod consume;
mod kafka;
mod nats;
mod path;
mod publish;
mod rabbitmq;
mod redis;
mod sqs;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use clap::ValueEnum;
use futures_util::future::BoxFuture;
use landfall::{Broker, Message};

use crate::Result;
use crate::table::Row;
use crate::workload::{PAYLOAD_BYTES, group, message, topic};

/// The batch size of a relay.
const BATCH: u64 = 1_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum BrokerChoice {
    Kafka,
    Nats,
    Rabbitmq,
    Redis,
    Sqs,
}

impl BrokerChoice {
    /// Starts a private server; `None` if this machine cannot run one.
    fn start(self) -> BoxFuture<'static, Result<Option<Box<dyn Contender>>>> {
        match self {
            Self::Kafka => Box::pin(kafka::start()),
            Self::Nats => Box::pin(nats::start()),
            Self::Rabbitmq => Box::pin(rabbitmq::start()),
            Self::Redis => Box::pin(redis::start()),
            Self::Sqs => Box::pin(sqs::start()),
        }
    }
}

/// One broker: its server, its adapter and its own client.
#[async_trait]
pub(crate) trait Contender: Send + Sync {
    /// The broker's usual name, with its version.
    fn name(&self) -> String;

    /// The client library's name in the table.
    fn client_name(&self) -> &'static str;

    /// The adapter. Everything it creates on the server has a name that starts with `prefix`.
    async fn adapter(&self, prefix: &str) -> Result<Arc<dyn Broker>>;

    /// The broker's own client. Everything it creates on the server has a name that starts with `prefix`.
    /// Queues, streams and topics are declared, so that the measurement can start.
    async fn client(&self, prefix: &str) -> Result<Box<dyn Client>>;

    /// The table's name for a client that also rejects duplicates, on brokers without built-in deduplication.
    fn deduplicating_client_name(&self) -> Option<&'static str> {
        None
    }

    /// The client that also rejects duplicates. It only publishes.
    async fn deduplicating_client(&self, prefix: &str) -> Result<Box<dyn Client>> {
        self.client(prefix).await
    }
}

/// A client under test: the adapter, or the broker's own client without Landfall. All use the same payloads, keys and
/// headers, and wait for the same acknowledgements.
#[async_trait]
pub(crate) trait Client: Send {
    /// Publishes all messages as fast as the client can, and waits until the broker has acknowledged all of them.
    async fn publish(&mut self, messages: &[Message]) -> Result<()>;

    /// Receives `count` published messages and acknowledges each.
    async fn consume(&mut self, count: u64) -> Result<()>;
}

/// Runs all measurements of the selected brokers. Also returns their versions, and the names of those not run.
pub(crate) async fn measure(wanted: &[BrokerChoice], total: Duration) -> Result<(Vec<Row>, Vec<String>, Vec<String>)> {
    let (mut rows, mut software, mut not_run) = (Vec::new(), Vec::new(), Vec::new());
    for which in BrokerChoice::value_variants().iter().filter(|which| wanted.is_empty() || wanted.contains(which)) {
        let Some(contender) = which.start().await? else {
            not_run.push(format!("everything on {which:?}"));
            continue;
        };
        software.push(contender.name());
        rows.extend(publish::throughput(&*contender, total).await?);
        rows.extend(publish::latency(&*contender, total).await?);
        rows.extend(consume::throughput(&*contender, total).await?);
        match path::latency(&*contender, total).await? {
            Some(path) => rows.extend(path),
            None => not_run.push(format!("commit → effect over {which:?}: there is no PostgreSQL")),
        }
    }
    Ok((rows, software, not_run))
}

/// The client under test: the adapter, or the broker's own client with or without deduplication.
#[derive(Debug, Clone, Copy)]
enum Side {
    Adapter,
    Client,
    DeduplicatingClient,
}

impl Side {
    /// Creates the client, with names on the server that no earlier sample used.
    async fn fresh(self, contender: &dyn Contender) -> Result<Box<dyn Client>> {
        match self {
            Self::Adapter => Ok(Box::new(adapter::ThroughAdapter::new(fresh_adapter(contender).await?))),
            Self::Client => contender.client(&fresh_prefix()).await,
            Self::DeduplicatingClient => contender.deduplicating_client(&fresh_prefix()).await,
        }
    }
}

fn fresh_prefix() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("bench-{}-{}-", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// An adapter with fresh names whose group exists already: some brokers keep no messages for a group created later.
async fn fresh_adapter(contender: &dyn Contender) -> Result<Arc<dyn Broker>> {
    let broker = contender.adapter(&fresh_prefix()).await?;
    broker.subscribe(&topic()?, &group()?).await?.close().await?;
    Ok(broker)
}

fn messages(count: u64) -> Result<Vec<Message>> {
    (0..count).map(|number| message(number, PAYLOAD_BYTES)).collect()
}
