//! One process of the soak: opens what its part needs, waiting for a database that is down, and plays it until it is
//! told to stop (SIGTERM), is killed, or its parent is gone.

use std::sync::Arc;
use std::time::Duration;

use landfall::consume::{self, Consumer};
use landfall::mysql::MySql;
use landfall::postgres::Postgres;
use landfall::relay::{self, Relay};
use landfall::sqlite::Sqlite;
use landfall::{Error, ErrorKind, GroupName, Holder, Leases, Publisher, Result, TopicName};
use landfall_testkit::remote::{RemoteBroker, RemotePublisher};
use rand::SeedableRng;
use rand::rngs::StdRng;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::handler::Apply;
use super::leases::Unseeing;
use super::ledger::Ledger;
use super::order::Order;
use super::part::{Part, Play};
use super::plant::SoakPlant;
use super::run::DatabaseKind;
use super::watch::Watched;
use super::writer::SoakWriter;
use crate::history::Event;
use crate::setup::{GROUP, TOPIC};
use crate::worker::{Adapter, operate};

pub async fn play(part: Part, stop: CancellationToken) -> Result<()> {
    match part.database {
        DatabaseKind::Sqlite => play_on::<Sqlite>(part, stop).await,
        DatabaseKind::Postgres => play_on::<Postgres>(part, stop).await,
        DatabaseKind::Mysql => play_on::<MySql>(part, stop).await,
    }
}

async fn play_on<D: Adapter + Ledger>(part: Part, stop: CancellationToken) -> Result<()> {
    match part.play {
        Play::Write(writers) => {
            let database: D = open(&part.writers).await?;
            let mut tasks = JoinSet::new();
            for number in 0..writers {
                tasks.spawn(writer(&part, database.clone(), number).run(stop.clone()));
            }
            if part.database.has_concurrent_writers() {
                tasks.spawn(writer(&part, database, writers).dawdle(stop.clone()));
            }
            Event::Ready.say();
            while let Some(ended) = tasks.join_next().await {
                ended.map_err(|error| Error::new(ErrorKind::Internal, "a writer panicked").with_source(error))?;
            }
        }
        Play::WriteOnce => {
            let database: D = open(&part.writers).await?;
            Event::Ready.say();
            writer(&part, database, 0).run_once().await;
        }
        Play::Relay(number) => {
            let database: D = open(&part.producer).await?;
            let publisher: Arc<dyn Publisher> = Arc::new(RemotePublisher::connect(part.publish).await?);
            let queue = Arc::new(Watched::new(database.clone(), number, part.plant));
            let leases: Arc<dyn Leases> = match part.plant {
                Some(SoakPlant::OneEpochForAll) => Arc::new(Unseeing(database)),
                _ => Arc::new(database),
            };
            let options = relay_options(&part);
            let builder = Relay::builder_from_parts(queue, leases, publisher).options(options);
            let relay = match part.order {
                Order::Key => builder.build()?,
                Order::None => builder.unordered().build()?,
            };
            Event::Ready.say();
            relay.run(stop.clone()).await?;
        }
        Play::Consume => {
            let database: D = open(&part.consumer).await?;
            let broker = Arc::new(RemoteBroker::connect(part.publish, part.deliver).await?);
            let options = consume::Options {
                concurrency: 8,
                backoff: part.backoff(),
                redrive_poll: Duration::from_millis(50),
                ..Default::default()
            };
            let (topic, group) = (TopicName::new(TOPIC)?, GroupName::new(GROUP)?);
            let consumer = Consumer::builder(database.clone(), broker)
                .topic(topic)
                .group(group)
                .handler(Apply(database))
                .options(options)
                .build()?;
            Event::Ready.say();
            consumer.run(stop.clone()).await?;
        }
        Play::Operate => {
            let (producer, consumer): (D, D) = (open(&part.producer).await?, open(&part.consumer).await?);
            Event::Ready.say();
            operate(producer, consumer, stop.clone()).await?;
        }
    }
    stop.cancelled().await;
    Event::Stopped.say();
    Ok(())
}

fn writer<D: Ledger>(part: &Part, database: D, number: u32) -> SoakWriter<D> {
    let random = StdRng::seed_from_u64(part.seed.wrapping_mul(1_000).wrapping_add(u64::from(number)));
    SoakWriter { database, random, accounts: part.accounts, hold_ms: part.hold_ms, plant: part.plant }
}

fn relay_options(part: &Part) -> relay::Options {
    let mut options =
        relay::Options { batch: 50, lease_ttl: part.lease_ttl(), backoff: part.backoff(), ..Default::default() };
    if matches!(part.plant, Some(SoakPlant::OneEpochForAll | SoakPlant::SplitRows)) {
        options.holder = Holder("everybody".into());
    }
    options
}

/// A process that starts while the database is down waits for it, like a service that its supervisor starts again.
async fn open<D: Adapter>(url: &str) -> Result<D> {
    loop {
        match D::open(url).await {
            Err(error) if error.is_temporary() => tokio::time::sleep(Duration::from_millis(50)).await,
            opened => return opened,
        }
    }
}
