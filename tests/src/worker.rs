//! A whole service in one process: opens both databases and the broker, and runs its roles until SIGTERM, the end of
//! its parent, or a failpoint.

use std::sync::Arc;
use std::time::Duration;

use landfall::consume::{self, Consumer};
use landfall::log::Log;
use landfall::mysql::MySql;
use landfall::postgres::Postgres;
use landfall::relay::{self, Relay};
use landfall::sqlite::Sqlite;
use landfall::{
    Backoff, Broker, CompetingQueue, Constraints, DeadLetterFilter, DeadLetterStatus, DeadLetters, Error, ErrorKind,
    GroupName, Housekeeping, InboxView, Leases, OutboxQueue, OutboxView, OutboxWriter, Publisher, Result, Schema,
    Sequences, TopicName, log, mysql, postgres, sqlite,
};
use landfall_testkit::remote::RemotePublisher;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::business_tables::BusinessTables;
use crate::guards::Guards;
use crate::handler::AppendEffect;
use crate::history::Event;
use crate::planted_bug::{with_broker_bug, with_publisher_bug};
use crate::service;
use crate::setup::{BrokerAddress, GROUP, Role, Setup, TOPIC};
use crate::writer::Writer;

/// Everything that the tests require of a database adapter.
pub trait Adapter:
    BusinessTables
    + Guards
    + OutboxWriter
    + InboxView
    + Sequences
    + Constraints
    + OutboxQueue
    + CompetingQueue
    + OutboxView
    + Leases
    + DeadLetters
    + Housekeeping
    + Schema
{
    fn open(url: &str) -> impl Future<Output = Result<Self>> + Send;

    /// Closes every connection.
    fn close(self) -> impl Future<Output = ()> + Send;
}

/// Few connections: a process that lives for a few hundred milliseconds must not spend them on connecting.
const CONNECTIONS: u32 = 6;

impl Adapter for Sqlite {
    async fn open(url: &str) -> Result<Self> {
        Sqlite::open(url, sqlite::Options { max_connections: CONNECTIONS, ..Default::default() }).await
    }

    async fn close(self) {
        self.pool().close().await;
    }
}

impl Adapter for Postgres {
    async fn open(url: &str) -> Result<Self> {
        Postgres::connect(url, postgres::Options { max_connections: CONNECTIONS, ..Default::default() }).await
    }

    async fn close(self) {
        self.pool().close().await;
    }
}

impl Adapter for MySql {
    async fn open(url: &str) -> Result<Self> {
        MySql::connect(url, mysql::Options { max_connections: CONNECTIONS, ..Default::default() }).await
    }

    async fn close(self) {
        self.pool().close().await;
    }
}

/// Runs the roles. Returns when `stop` is cancelled and all of them have shut down gracefully.
pub async fn run(setup: Setup, stop: CancellationToken) -> Result<()> {
    if let Some(failpoint) = setup.failpoint.clone() {
        failpoint.arm()?;
    }
    if setup.producer.starts_with("sqlite:") {
        Worker::<Sqlite>::open(setup).await?.run(stop).await
    } else if setup.producer.starts_with("mysql:") {
        Worker::<MySql>::open(setup).await?.run(stop).await
    } else {
        Worker::<Postgres>::open(setup).await?.run(stop).await
    }
}

struct Worker<D> {
    producer: D,
    consumer: D,
    setup: Setup,
}

impl<D: Adapter> Worker<D> {
    async fn open(setup: Setup) -> Result<Self> {
        let (producer, consumer) = tokio::try_join!(D::open(&setup.producer), D::open(&setup.consumer))?;
        Ok(Self { producer, consumer, setup })
    }

    async fn run(&self, stop: CancellationToken) -> Result<()> {
        let (broker, publisher) = self.connect_broker().await?;
        let mut roles = JoinSet::new();
        for role in &self.setup.roles {
            match role {
                Role::Write => self.write(&mut roles, &stop)?,
                Role::Relay => {
                    roles.spawn(self.relay(publisher.clone())?.run(stop.clone()));
                }
                Role::Consume => {
                    let broker =
                        broker.clone().ok_or_else(|| unsupported("a remote broker does not deliver messages"))?;
                    let (service, backoff) = (self.setup.service.clone(), self.setup.backoff());
                    roles.spawn(service::run(service, self.consumer.clone(), broker, backoff, stop.clone()));
                }
                Role::Operate => {
                    roles.spawn(operate(self.producer.clone(), self.consumer.clone(), stop.clone()));
                }
            }
        }
        Event::Ready.print();
        while let Some(ended) = roles.join_next().await {
            // A role that fails or panics ends the process, so that the test notices it.
            ended.map_err(|error| Error::new(ErrorKind::Internal, "a role panicked").with_source(error))??;
        }
        stop.cancelled().await;
        Event::Stopped.print();
        Ok(())
    }

    async fn connect_broker(&self) -> Result<(Option<Arc<dyn Broker>>, Arc<dyn Publisher>)> {
        let planted_bug = self.setup.planted_bug;
        match &self.setup.broker {
            BrokerAddress::Log(folder) => {
                // Small segments, so that kills also hit a segment roll. No deduplication, so that duplicates of a
                // relay reach the inbox, as with most brokers.
                let topic = log::TopicSettings { deduplicate: false, ..Default::default() };
                let options = log::Options { segment_bytes: 32 * 1024, topic, ..Default::default() };
                let broker: Arc<dyn Broker> = Arc::new(Log::open(folder, options)?);
                let publisher = with_publisher_bug(broker.publisher(), planted_bug);
                Ok((Some(with_broker_bug(broker, planted_bug)), publisher))
            }
            BrokerAddress::Remote(address) => Ok((None, Arc::new(RemotePublisher::connect(*address).await?))),
        }
    }

    fn write(&self, roles: &mut JoinSet<Result<()>>, stop: &CancellationToken) -> Result<()> {
        for number in 0..self.setup.keys {
            let record = Arc::new(|event: Event| event.print());
            let writer = Writer::new(self.producer.clone(), &self.setup, number, record)?;
            let (writes, stop) = (self.setup.writes, stop.clone());
            roles.spawn(async move {
                writer.run(writes, stop).await;
                Ok(())
            });
        }
        Ok(())
    }

    fn relay(&self, publisher: Arc<dyn Publisher>) -> Result<Relay> {
        let options = relay::Options {
            batch: self.setup.batch,
            lease_ttl: self.setup.lease_ttl(),
            backoff: self.setup.backoff(),
            ..Default::default()
        };
        Relay::builder(self.producer.clone(), publisher).options(options).build()
    }
}

/// The consuming service, in a worker process or inside a test.
pub fn consumer<D: Adapter>(database: D, broker: Arc<dyn Broker>, backoff: Backoff) -> Result<Consumer<D>> {
    let options = consumer_options(backoff);
    let (topic, group) = (TopicName::new(TOPIC)?, GroupName::new(GROUP)?);
    let handler = AppendEffect(database.clone());
    Consumer::builder(database, broker).topic(topic).group(group).handler(handler).options(options).build()
}

pub(crate) fn consumer_options(backoff: Backoff) -> consume::Options {
    let redrive_poll = Duration::from_millis(20);
    consume::Options { concurrency: 4, batch: 8, backoff, redrive_poll, ..Default::default() }
}

/// An operator who redrives all parked messages repeatedly, but slowly, so that successors queue up behind them.
pub async fn operate<D: DeadLetters>(producer: D, consumer: D, stop: CancellationToken) -> Result<()> {
    let parked = DeadLetterFilter { status: Some(DeadLetterStatus::Parked), ..Default::default() };
    while !stop.is_cancelled() {
        for database in [&producer, &consumer] {
            match database.redrive(&parked, "operator").await {
                Err(error) if !error.is_temporary() => return Err(error),
                _ => {}
            }
        }
        tokio::select! { () = tokio::time::sleep(Duration::from_millis(60)) => {}, () = stop.cancelled() => {} }
    }
    Ok(())
}

fn unsupported(text: &str) -> Error {
    Error::new(ErrorKind::Unsupported, text)
}
