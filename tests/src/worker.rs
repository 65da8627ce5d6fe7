//! A whole service in one process: opens both databases and the broker, and plays the roles it was given until it is
//! told to stop (SIGTERM), its parent is gone, or it dies at a failpoint.

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
    GroupName, InboxView, Leases, OutboxQueue, OutboxView, OutboxWriter, Publisher, Result, Schema, Sequences,
    TopicName, log, mysql, postgres, sqlite,
};
use landfall_testkit::remote::RemotePublisher;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::books::Books;
use crate::guards::Guards;
use crate::handler::AppendEffect;
use crate::history::Event;
use crate::plant::{plant_in_broker, plant_in_publisher};
use crate::service;
use crate::setup::{BrokerAddress, GROUP, Role, Setup, TOPIC};
use crate::writer::Writer;

/// Everything that the harness asks of a database adapter.
pub trait Adapter:
    Books
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
    + Schema
{
    fn open(url: &str) -> impl Future<Output = Result<Self>> + Send;

    /// Closes every connection.
    fn close(self) -> impl Future<Output = ()> + Send;
}

/// Few connections: a process that lives for some hundred milliseconds must not spend them on connecting.
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

/// Plays the roles; returns when `stop` is cancelled and all of them have ended in good order.
pub async fn run(setup: Setup, stop: CancellationToken) -> Result<()> {
    if let Some(failpoint) = setup.failpoint.clone() {
        failpoint.arm()?;
    }
    if setup.producer.starts_with("sqlite:") {
        Worker::<Sqlite>::open(setup).await?.play(stop).await
    } else if setup.producer.starts_with("mysql:") {
        Worker::<MySql>::open(setup).await?.play(stop).await
    } else {
        Worker::<Postgres>::open(setup).await?.play(stop).await
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

    async fn play(&self, stop: CancellationToken) -> Result<()> {
        let (broker, publisher) = self.connect_broker().await?;
        let mut roles = JoinSet::new();
        for role in &self.setup.roles {
            match role {
                Role::Write => self.write(&mut roles, &stop)?,
                Role::Relay => {
                    roles.spawn(self.relay(publisher.clone())?.run(stop.clone()));
                }
                Role::Consume => {
                    let broker = broker.clone().ok_or_else(|| unsupported("a remote broker cannot be read"))?;
                    let (service, backoff) = (self.setup.service.clone(), self.setup.backoff());
                    roles.spawn(service::run(service, self.consumer.clone(), broker, backoff, stop.clone()));
                }
                Role::Operate => {
                    roles.spawn(operate(self.producer.clone(), self.consumer.clone(), stop.clone()));
                }
            }
        }
        Event::Ready.say();
        while let Some(ended) = roles.join_next().await {
            // A role that gives up, or panics, takes the process down: the test shall see it.
            ended.map_err(|error| Error::new(ErrorKind::Internal, "a role panicked").with_source(error))??;
        }
        stop.cancelled().await;
        Event::Stopped.say();
        Ok(())
    }

    async fn connect_broker(&self) -> Result<(Option<Arc<dyn Broker>>, Arc<dyn Publisher>)> {
        let plant = self.setup.plant;
        match &self.setup.broker {
            BrokerAddress::Log(folder) => {
                // Small segments, so that processes die while one is finished and the next one begun.
                // And no look at ids: what a relay sends twice shall reach the inbox, as it does with most brokers.
                let topic = log::TopicSettings { deduplicate: false, ..Default::default() };
                let options = log::Options { segment_bytes: 32 * 1024, topic, ..Default::default() };
                let broker: Arc<dyn Broker> = Arc::new(Log::open(folder, options)?);
                let publisher = plant_in_publisher(broker.publisher(), plant);
                Ok((Some(plant_in_broker(broker, plant)), publisher))
            }
            BrokerAddress::Remote(address) => Ok((None, Arc::new(RemotePublisher::connect(*address).await?))),
        }
    }

    fn write(&self, roles: &mut JoinSet<Result<()>>, stop: &CancellationToken) -> Result<()> {
        for number in 0..self.setup.keys {
            let tell = Arc::new(|event: Event| event.say());
            let writer = Writer::new(self.producer.clone(), &self.setup, number, tell)?;
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
        Ok(Relay::builder(self.producer.clone(), publisher).options(options).build()?)
    }
}

/// The consuming service, in whatever process.
pub fn consumer<D: Adapter>(database: D, broker: Arc<dyn Broker>, backoff: Backoff) -> Result<Consumer<D>> {
    let options = consumer_options(backoff);
    let (topic, group) = (TopicName::new(TOPIC)?, GroupName::new(GROUP)?);
    let handler = AppendEffect(database.clone());
    Ok(Consumer::builder(database, broker).topic(topic).group(group).handler(handler).options(options).build()?)
}

pub(crate) fn consumer_options(backoff: Backoff) -> consume::Options {
    let redrive_poll = Duration::from_millis(20);
    consume::Options { concurrency: 4, batch: 8, backoff, redrive_poll, ..Default::default() }
}

/// A person who redrives everything that is parked, again and again, in no hurry: successors shall pile up behind it.
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
