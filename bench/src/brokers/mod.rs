//! Each adapter beside its broker's own client, doing the same work with the same durability on the same server, and
//! the whole path over each broker beside the whole path over the embedded log.

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

/// What a relay hands over at a time.
const BATCH: u64 = 1_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Which {
    Kafka,
    Nats,
    Rabbitmq,
    Redis,
    Sqs,
}

impl Which {
    /// Starts a private server; `None` where there is none.
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
    /// As people call it, with its version.
    fn name(&self) -> String;

    /// The client library, as it stands in the table.
    fn client_name(&self) -> &'static str;

    /// The adapter, with everything it makes on the server beginning with `prefix`.
    async fn adapter(&self, prefix: &str) -> Result<Arc<dyn Broker>>;

    /// The broker's own client, with everything it makes on the server beginning with `prefix`, ready to be measured:
    /// what must be declared is declared.
    async fn client(&self, prefix: &str) -> Result<Box<dyn Client>>;

    /// What stands in the table for a client that also keeps copies out, where the broker does not do that by itself.
    fn careful_client_name(&self) -> Option<&'static str> {
        None
    }

    /// That client. It only publishes.
    async fn careful_client(&self, prefix: &str) -> Result<Box<dyn Client>> {
        self.client(prefix).await
    }
}

/// Whoever does the work, most of all a broker's own client without Landfall: the same payloads, keys and headers, the same acknowledgements waited for.
#[async_trait]
pub(crate) trait Client: Send {
    /// Publishes all of it, as fast as the client can, and waits until the broker has all of it.
    async fn publish(&mut self, messages: &[Message]) -> Result<()>;

    /// Takes `count` messages that were published, and acknowledges each.
    async fn consume(&mut self, count: u64) -> Result<()>;
}

/// Everything about the brokers that are wanted, and by name those that cannot be started here.
pub(crate) async fn measure(wanted: &[Which], total: Duration) -> Result<(Vec<Row>, Vec<String>, Vec<String>)> {
    let (mut rows, mut software, mut not_run) = (Vec::new(), Vec::new(), Vec::new());
    for which in Which::value_variants().iter().filter(|which| wanted.is_empty() || wanted.contains(which)) {
        let Some(contender) = which.start().await? else {
            not_run.push(format!("everything on {which:?}"));
            continue;
        };
        software.push(contender.name());
        rows.extend(publish::throughput(&*contender, total).await?);
        rows.extend(publish::latency(&*contender, total).await?);
        rows.extend(consume::throughput(&*contender, total).await?);
        match path::latency(&*contender, total).await? {
            Some(found) => rows.extend(found),
            None => not_run.push(format!("commit → effect over {which:?}: there is no PostgreSQL")),
        }
    }
    Ok((rows, software, not_run))
}

/// Who does the work: the adapter, or the broker's own client, alone or with care.
#[derive(Debug, Clone, Copy)]
enum Side {
    Adapter,
    Client,
    Careful,
}

impl Side {
    /// Ready to work, with names on the server that nobody used before.
    async fn fresh(self, contender: &dyn Contender) -> Result<Box<dyn Client>> {
        match self {
            Self::Adapter => Ok(Box::new(adapter::ThroughAdapter::new(fresh_adapter(contender).await?))),
            Self::Client => contender.client(&fresh_prefix()).await,
            Self::Careful => contender.careful_client(&fresh_prefix()).await,
        }
    }
}

fn fresh_prefix() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("bench-{}-{}-", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// An adapter with names of its own, whose group is there: some brokers keep nothing for those who come later.
async fn fresh_adapter(contender: &dyn Contender) -> Result<Arc<dyn Broker>> {
    let broker = contender.adapter(&fresh_prefix()).await?;
    broker.subscribe(&topic()?, &group()?).await?.close().await?;
    Ok(broker)
}

fn messages(count: u64) -> Result<Vec<Message>> {
    (0..count).map(|number| message(number, PAYLOAD_BYTES)).collect()
}
