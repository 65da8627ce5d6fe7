//! One process of the soak. It opens its database and broker, and waits for a database that is down. It runs its role
//! until SIGTERM, a kill, or the end of its parent.

use std::sync::Arc;
use std::time::Duration;

use landfall::consume::{self, Consumer, Idempotence};
use landfall::housekeeping::{Housekeeper, Policy};
use landfall::mysql::MySql;
use landfall::postgres::Postgres;
use landfall::relay::{self, Relay};
use landfall::sqlite::Sqlite;
use landfall::{Error, ErrorKind, GroupName, Holder, Leases, Publisher, Result, TopicName};
use rand::SeedableRng;
use rand::rngs::StdRng;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::broker::BrokerLocation;
use super::database_kind::DatabaseKind;
use super::handler::Apply;
use super::leases::BlindLeases;
use super::ledger::Ledger;
use super::observed_queue::ObservedQueue;
use super::order::Order;
use super::planted_bug::SoakBug;
use super::process_config::{ProcessConfig, ProcessRole};
use super::writer::SoakWriter;
use crate::history::Event;
use crate::planted_bug::{PlantedBug, with_broker_bug};
use crate::setup::{GROUP, TOPIC};
use crate::worker::{Adapter, operate};

pub async fn run(config: ProcessConfig, stop: CancellationToken) -> Result<()> {
    match config.database {
        DatabaseKind::Sqlite => run_on::<Sqlite>(config, stop).await,
        DatabaseKind::Postgres => run_on::<Postgres>(config, stop).await,
        DatabaseKind::Mysql => run_on::<MySql>(config, stop).await,
    }
}

async fn run_on<D: Adapter + Ledger>(config: ProcessConfig, stop: CancellationToken) -> Result<()> {
    match config.role {
        ProcessRole::Write(writers) => {
            let database: D = open(&config.writers).await?;
            let mut tasks = JoinSet::new();
            for number in 0..writers {
                tasks.spawn(writer(&config, database.clone(), number).run(stop.clone()));
            }
            if config.database.has_concurrent_writers() {
                tasks.spawn(writer(&config, database, writers).hold_transactions_open(stop.clone()));
            }
            Event::Ready.print();
            while let Some(ended) = tasks.join_next().await {
                ended.map_err(|error| Error::new(ErrorKind::Internal, "a writer panicked").with_source(error))?;
            }
        }
        ProcessRole::WriteOnce => {
            let database: D = open(&config.writers).await?;
            Event::Ready.print();
            writer(&config, database, 0).run_once().await;
        }
        ProcessRole::Relay(number) => {
            let database: D = open(&config.producer).await?;
            let publisher: Arc<dyn Publisher> = config.broker.connect().await?.publisher();
            let queue = Arc::new(ObservedQueue::new(database.clone(), number, config.planted_bug));
            let leases: Arc<dyn Leases> = match config.planted_bug {
                Some(SoakBug::OneEpochForAll) => Arc::new(BlindLeases(database)),
                _ => Arc::new(database),
            };
            let options = relay_options(&config);
            let builder = Relay::builder_from_parts(queue, leases, publisher).options(options);
            let relay = match config.order {
                Order::Key => builder.build()?,
                Order::None => builder.unordered().build()?,
            };
            Event::Ready.print();
            relay.run(stop.clone()).await?;
        }
        ProcessRole::Consume => {
            let database: D = open(&config.consumer).await?;
            consume(&config, database, &stop).await?;
        }
        ProcessRole::Daemon => return Err(Error::invalid("the daemon is a program of its own")),
        ProcessRole::Operate => {
            let (producer, consumer): (D, D) = (open(&config.producer).await?, open(&config.consumer).await?);
            Event::Ready.print();
            operate(producer, consumer, stop.clone()).await?;
        }
    }
    stop.cancelled().await;
    Event::Stopped.print();
    Ok(())
}

/// A consumer with its housekeeper.
async fn consume<D: Adapter + Ledger>(config: &ProcessConfig, database: D, stop: &CancellationToken) -> Result<()> {
    let early = (config.planted_bug == Some(SoakBug::AcknowledgeEarly)).then_some(PlantedBug::AcknowledgeEarly);
    let broker = with_broker_bug(config.broker.connect().await?, early);
    let consumer = Consumer::builder(database.clone(), broker)
        .topic(TopicName::new(TOPIC)?)
        .group(GroupName::new(GROUP)?)
        .handler(Apply(database.clone()))
        .options(consumer_options(config))
        .build()?;
    let housekeeper = Housekeeper::new(Arc::new(database.clone()), Arc::new(database), Policy::default())?;
    Event::Ready.print();
    tokio::try_join!(consumer.run(stop.clone()), housekeeper.run(stop.clone()))?;
    Ok(())
}

/// Over a server, the defaults of users, but a redrive at once: the operator redrives all the time.
fn consumer_options(config: &ProcessConfig) -> consume::Options {
    let mut options = consume::Options { redrive_poll: Duration::from_millis(50), ..Default::default() };
    if matches!(config.broker, BrokerLocation::Memory { .. }) {
        (options.concurrency, options.backoff) = (8, config.backoff());
    }
    if config.planted_bug == Some(SoakBug::SkipInbox) {
        options.idempotence = Idempotence::Handler;
    }
    options
}

fn writer<D: Ledger>(config: &ProcessConfig, database: D, number: u32) -> SoakWriter<D> {
    let random = StdRng::seed_from_u64(config.seed.wrapping_mul(1_000).wrapping_add(u64::from(number)));
    SoakWriter { database, random, accounts: config.accounts, hold_ms: config.hold_ms, planted_bug: config.planted_bug }
}

fn relay_options(config: &ProcessConfig) -> relay::Options {
    let mut options =
        relay::Options { batch: 50, lease_ttl: config.lease_ttl(), backoff: config.backoff(), ..Default::default() };
    if matches!(config.planted_bug, Some(SoakBug::OneEpochForAll | SoakBug::SplitRows)) {
        options.holder = Holder("shared".into());
    }
    options
}

/// Opens the database, and waits for it while it is down, like a service that its supervisor restarts.
async fn open<D: Adapter>(url: &str) -> Result<D> {
    loop {
        match D::open(url).await {
            Err(error) if error.is_temporary() => tokio::time::sleep(Duration::from_millis(50)).await,
            opened => return opened,
        }
    }
}
