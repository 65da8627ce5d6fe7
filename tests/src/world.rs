//! The test's side: makes a small world of two databases and a broker, lets workers live and die in it, and judges.
#![allow(clippy::expect_used, clippy::print_stdout, reason = "a test whose world cannot be made has failed")]

use std::collections::HashSet;
use std::marker::PhantomData;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use landfall::mysql::MySql;
use landfall::postgres::Postgres;
use landfall::sqlite::Sqlite;
use landfall_testkit::eventually;
use landfall_testkit::servers::{fresh_mysql_database, fresh_postgres_database};
use tempfile::TempDir;

use crate::failpoint::Failpoint;
use crate::history::Event;
use crate::life::{Death, Life, PATIENCE};
use crate::remains::Remains;
use crate::service::Service;
use crate::setup::{BrokerAddress, Role, Setup};
use crate::verdict::Verdict;
use crate::worker::Adapter;

/// How long a world may take to drain, on a machine that is busy with something else.
const DRAINED_WITHIN: Duration = Duration::from_secs(180);

/// Two databases, a log, and the history of everybody who lived there.
#[derive(Debug)]
pub struct World<D> {
    /// What the next worker is told; a test changes it as it likes.
    pub setup: Setup,
    /// How long nothing may move before a world that does not drain is judged as it is.
    pub standstill: Duration,
    /// What every worker said, in the order of their deaths.
    pub history: Vec<Event>,
    /// What the last one wrote to stderr.
    complaints: Vec<String>,
    program: PathBuf,
    /// Holds the log and SQLite's files; removed with the world.
    _folder: TempDir,
    database: PhantomData<D>,
}

impl World<Sqlite> {
    pub async fn sqlite(program: &str, seed: u64) -> Self {
        let folder = TempDir::new().expect("there is room for a temporary folder");
        let url = |name: &str| format!("sqlite:{}", folder.path().join(name).display());
        let (producer, consumer) = (url("producer.db"), url("consumer.db"));
        Self::create(program, seed, folder, producer, consumer).await
    }
}

impl World<Postgres> {
    /// `None` where there is no PostgreSQL; it has been said then.
    pub async fn postgres(program: &str, seed: u64) -> Option<Self> {
        let (producer, consumer) = (fresh_postgres_database().await?, fresh_postgres_database().await?);
        let folder = TempDir::new().expect("there is room for a temporary folder");
        Some(Self::create(program, seed, folder, producer, consumer).await)
    }
}

impl World<MySql> {
    /// `None` where there is no MariaDB; it has been said then.
    pub async fn mysql(program: &str, seed: u64) -> Option<Self> {
        let (producer, consumer) = (fresh_mysql_database().await?, fresh_mysql_database().await?);
        let folder = TempDir::new().expect("there is room for a temporary folder");
        Some(Self::create(program, seed, folder, producer, consumer).await)
    }
}

impl<D: Adapter> World<D> {
    async fn create(program: &str, seed: u64, folder: TempDir, producer: String, consumer: String) -> Self {
        println!("seed {seed}");
        for url in [&producer, &consumer] {
            let database = D::open(url).await.expect("a new database opens");
            database.migrate().await.expect("a new database takes the tables");
            database.create_books().await.expect("a new database takes the service's tables");
            database.create_guards().await.expect("a new database takes the service's guards");
            database.close().await;
        }
        let setup = Setup {
            producer,
            consumer,
            broker: BrokerAddress::Log(folder.path().join("log")),
            roles: Role::ALL.to_vec(),
            seed,
            keys: 6,
            writes: None,
            trouble: true,
            lease_ms: 250,
            batch: 50,
            backoff_ms: 10,
            max_attempts: 5,
            service: Service::Batches,
            failpoint: None,
            plant: None,
        };
        Self {
            setup,
            standstill: Duration::from_secs(20),
            history: Vec::new(),
            complaints: Vec::new(),
            program: program.into(),
            _folder: folder,
            database: PhantomData,
        }
    }

    /// Starts a worker. Each gets its own seed, in the order in which they are started.
    pub fn begin(&mut self) -> Life {
        self.begin_with(|_| {})
    }

    /// Starts a worker that is told something else than the others.
    pub fn begin_with(&mut self, change: impl FnOnce(&mut Setup)) -> Life {
        self.setup.seed += 1;
        let mut setup = self.setup.clone();
        change(&mut setup);
        Life::begin(&self.program, &setup).expect("the worker can be started")
    }

    /// A whole life that ends at `failpoint`, and the proof that it did.
    pub async fn die_at(&mut self, failpoint: Failpoint) {
        let death = self.begin_with(|setup| setup.failpoint = Some(failpoint.clone())).ended().await;
        assert!(death.was_at(&failpoint), "not killed at {failpoint:?}: {} {:?}", death.status, death.complaints);
        self.bury(death);
    }

    pub fn bury(&mut self, death: Death) {
        self.history.extend(death.events);
        self.complaints = death.complaints;
    }

    /// Stops a worker in good order.
    pub async fn stop(&mut self, life: Life) {
        let death = life.stopped().await;
        assert!(death.status.success(), "the worker ended with {}: {:?}", death.status, death.complaints);
        assert_eq!(death.events.last(), Some(&Event::Stopped));
        self.bury(death);
    }

    /// One last life without any trouble, in which each writer writes once more; it ends when every committed order
    /// has had its effect, or when nothing moves any more.
    ///
    /// The last message of a key comes after every copy of its other messages: when it has had its effect, so has
    /// whatever was still on its way and might have shown up twice.
    pub async fn drain(&mut self) {
        let life = self.begin_with(|setup| {
            setup.roles = Role::ALL.to_vec();
            setup.writes = Some(1);
            setup.trouble = false;
        });
        life.ready().await;
        self.wait_for_effects(&life).await;
        self.stop(life).await;
    }

    async fn wait_for_effects(&self, life: &Life) {
        let (producer, consumer) = (self.producer().await, self.consumer().await);
        let (started, mut moved, mut seen) = (Instant::now(), Instant::now(), 0);
        let mut tick = tokio::time::interval(Duration::from_millis(25));
        while moved.elapsed() < self.standstill && started.elapsed() < DRAINED_WITHIN {
            tick.tick().await;
            let effects = consumer.count_effects().await.expect("the consumer's database answers");
            if effects != seen {
                (moved, seen) = (Instant::now(), effects);
            }
            let written = life.count(|event| matches!(event, Event::Ok { .. }));
            let orders = producer.count_orders().await.expect("the producer's database answers");
            if written == self.setup.keys as usize && effects >= orders && is_covered(&producer, &consumer).await {
                break;
            }
        }
        producer.close().await;
        consumer.close().await;
    }

    /// Judges what is left.
    pub async fn judge(&self) -> Verdict {
        let (producer, consumer) = (self.producer().await, self.consumer().await);
        let orders = producer.orders().await.expect("the producer's database answers");
        let effects = consumer.effects().await.expect("the consumer's database answers");
        let mut remains = Remains::look(&producer, &consumer).await.expect("both databases answer");
        remains.complaints.clone_from(&self.complaints);
        producer.close().await;
        consumer.close().await;
        Verdict::new(&self.history, &orders, &effects, remains)
    }

    /// How many dead letters were redriven and have had their effect.
    pub async fn count_redriven(&self) -> u64 {
        let consumer = self.consumer().await;
        let stats = consumer.dead_letter_stats().await.expect("the consumer's database answers");
        consumer.close().await;
        stats.done
    }

    /// How many effects there are.
    pub async fn count_effects(&self) -> i64 {
        let consumer = self.consumer().await;
        let effects = consumer.count_effects().await.expect("the consumer's database answers");
        consumer.close().await;
        effects
    }

    /// Waits until each writer has written what it was asked for, and the relay has published all of it.
    pub async fn wait_until_published(&self, life: &Life) {
        let asked = (self.setup.keys * self.setup.writes.unwrap_or_default()) as usize;
        let producer = self.producer().await;
        eventually(PATIENCE, "everything is published", async || {
            let stats = producer.stats().await.expect("the producer's database answers");
            life.count(|event| matches!(event, Event::Ok { .. })) == asked && stats.pending + stats.retrying == 0
        })
        .await;
        producer.close().await;
    }

    /// Opened for a moment only: while a test holds a file open, SQLite never has to recover it.
    pub async fn producer(&self) -> D {
        D::open(&self.setup.producer).await.expect("the producer's database opens")
    }

    pub async fn consumer(&self) -> D {
        D::open(&self.setup.consumer).await.expect("the consumer's database opens")
    }
}

/// Whether every committed order has had its effect.
async fn is_covered<D: Adapter>(producer: &D, consumer: &D) -> bool {
    let effects = consumer.effects().await.expect("the consumer's database answers");
    let effects: HashSet<_> = effects.into_iter().map(|effect| effect.message_id).collect();
    let orders = producer.orders().await.expect("the producer's database answers");
    orders.iter().all(|order| effects.contains(&order.message_id))
}
