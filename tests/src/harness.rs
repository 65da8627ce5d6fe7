//! The harness in the test's own process: creates two databases and a broker, starts and kills workers, and checks the
//! result.
#![allow(clippy::expect_used, clippy::print_stdout, reason = "a test fails by panicking")]

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

use crate::check_report::CheckReport;
use crate::failpoint::Failpoint;
use crate::history::Event;
use crate::service::Service;
use crate::setup::{BrokerAddress, Role, Setup};
use crate::undelivered::Undelivered;
use crate::worker::Adapter;
use crate::worker_process::{TIMEOUT, WorkerExit, WorkerProcess};

/// How long the drain may take on a busy machine.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(180);

/// Two databases, a log, and the events of all workers.
#[derive(Debug)]
pub struct Harness<D> {
    /// The configuration of the next worker; tests may change it.
    pub setup: Setup,
    /// How long the drain may make no progress before it is given up.
    pub stall_timeout: Duration,
    /// The events of all workers, in the order of their exits.
    pub history: Vec<Event>,
    /// The stderr of the last worker.
    stderr: Vec<String>,
    program: PathBuf,
    /// Holds the log and SQLite's files; removed when this is dropped.
    _folder: TempDir,
    database: PhantomData<D>,
}

impl Harness<Sqlite> {
    pub async fn sqlite(program: &str, seed: u64) -> Self {
        let folder = TempDir::new().expect("a temporary folder can be created");
        let url = |name: &str| format!("sqlite:{}", folder.path().join(name).display());
        let (producer, consumer) = (url("producer.db"), url("consumer.db"));
        Self::create(program, seed, folder, producer, consumer).await
    }
}

impl Harness<Postgres> {
    /// Returns `None` without PostgreSQL, after reporting that the test is not run.
    pub async fn postgres(program: &str, seed: u64) -> Option<Self> {
        let (producer, consumer) = (fresh_postgres_database().await?, fresh_postgres_database().await?);
        let folder = TempDir::new().expect("a temporary folder can be created");
        Some(Self::create(program, seed, folder, producer, consumer).await)
    }
}

impl Harness<MySql> {
    /// Returns `None` without MariaDB, after reporting that the test is not run.
    pub async fn mysql(program: &str, seed: u64) -> Option<Self> {
        let (producer, consumer) = (fresh_mysql_database().await?, fresh_mysql_database().await?);
        let folder = TempDir::new().expect("a temporary folder can be created");
        Some(Self::create(program, seed, folder, producer, consumer).await)
    }
}

impl<D: Adapter> Harness<D> {
    async fn create(program: &str, seed: u64, folder: TempDir, producer: String, consumer: String) -> Self {
        println!("seed {seed}");
        for url in [&producer, &consumer] {
            let database = D::open(url).await.expect("a new database opens");
            database.migrate().await.expect("the migration of a new database succeeds");
            database.create_business_tables().await.expect("the service's tables can be created");
            database.create_guards().await.expect("the service's guard tables can be created");
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
            handler_failures: true,
            lease_ms: 250,
            batch: 50,
            backoff_ms: 10,
            max_attempts: 5,
            service: Service::Batches,
            failpoint: None,
            planted_bug: None,
        };
        Self {
            setup,
            // Longer than Landfall waits for a database that does not answer, so that its own recovery is tested.
            stall_timeout: Duration::from_secs(45),
            history: Vec::new(),
            stderr: Vec::new(),
            program: program.into(),
            _folder: folder,
            database: PhantomData,
        }
    }

    /// Starts a worker. Each one gets its own seed.
    pub fn start(&mut self) -> WorkerProcess {
        self.start_with(|_| {})
    }

    /// Starts a worker with a changed configuration.
    pub fn start_with(&mut self, change: impl FnOnce(&mut Setup)) -> WorkerProcess {
        self.setup.seed += 1;
        let mut setup = self.setup.clone();
        change(&mut setup);
        WorkerProcess::start(&self.program, &setup).expect("the worker can be started")
    }

    /// Starts a worker and waits until it has killed itself at `failpoint`.
    pub async fn run_until_killed_at(&mut self, failpoint: Failpoint) {
        let exit = self.start_with(|setup| setup.failpoint = Some(failpoint.clone())).wait().await;
        assert!(exit.was_killed_at(&failpoint), "not killed at {failpoint:?}: {} {:?}", exit.status, exit.stderr);
        self.record_exit(exit);
    }

    pub fn record_exit(&mut self, exit: WorkerExit) {
        self.history.extend(exit.events);
        self.stderr = exit.stderr;
    }

    /// Stops a worker gracefully.
    pub async fn stop(&mut self, worker: WorkerProcess) {
        let exit = worker.terminate().await;
        assert!(exit.status.success(), "the worker exited with {}: {:?}", exit.status, exit.stderr);
        assert_eq!(exit.events.last(), Some(&Event::Stopped));
        self.record_exit(exit);
    }

    /// Runs a last worker without handler failures, in which each writer writes once more. Ends when every committed
    /// order has taken effect, or when the drain stalls.
    ///
    /// The last message of a key comes after all duplicates of its other messages. So once it has taken effect, no
    /// duplicate is in flight.
    pub async fn drain(&mut self) {
        let worker = self.start_with(|setup| {
            setup.roles = Role::ALL.to_vec();
            setup.writes = Some(1);
            setup.handler_failures = false;
        });
        worker.ready().await;
        self.wait_for_effects(&worker).await;
        self.stop(worker).await;
    }

    async fn wait_for_effects(&self, worker: &WorkerProcess) {
        let (producer, consumer) = (self.producer().await, self.consumer().await);
        let (started, mut progressed, mut seen) = (Instant::now(), Instant::now(), 0);
        let mut tick = tokio::time::interval(Duration::from_millis(25));
        while progressed.elapsed() < self.stall_timeout && started.elapsed() < DRAIN_TIMEOUT {
            tick.tick().await;
            let effects = consumer.count_effects().await.expect("the consumer's database answers");
            if effects != seen {
                (progressed, seen) = (Instant::now(), effects);
            }
            let written = worker.count(|event| matches!(event, Event::Ok { .. }));
            let orders = producer.count_orders().await.expect("the producer's database answers");
            if written == self.setup.keys as usize && effects >= orders && have_all_effects(&producer, &consumer).await
            {
                break;
            }
        }
        producer.close().await;
        consumer.close().await;
    }

    /// Checks the history and the tables.
    pub async fn check(&self) -> CheckReport {
        let (producer, consumer) = (self.producer().await, self.consumer().await);
        let orders = producer.orders().await.expect("the producer's database answers");
        let effects = consumer.effects().await.expect("the consumer's database answers");
        let mut undelivered = Undelivered::collect(&producer, &consumer).await.expect("both databases answer");
        undelivered.stderr.clone_from(&self.stderr);
        producer.close().await;
        consumer.close().await;
        CheckReport::new(&self.history, &orders, &effects, undelivered)
    }

    /// The number of dead letters that were redriven and have taken effect.
    pub async fn count_redriven(&self) -> u64 {
        let consumer = self.consumer().await;
        let stats = consumer.dead_letter_stats().await.expect("the consumer's database answers");
        consumer.close().await;
        stats.done
    }

    /// The number of effects.
    pub async fn count_effects(&self) -> i64 {
        let consumer = self.consumer().await;
        let effects = consumer.count_effects().await.expect("the consumer's database answers");
        consumer.close().await;
        effects
    }

    /// Waits until each writer has committed its `writes`, and the relay has published all of them.
    pub async fn wait_until_published(&self, worker: &WorkerProcess) {
        let expected = (self.setup.keys * self.setup.writes.unwrap_or_default()) as usize;
        let producer = self.producer().await;
        eventually(TIMEOUT, "all messages are published", async || {
            let stats = producer.stats().await.expect("the producer's database answers");
            worker.count(|event| matches!(event, Event::Ok { .. })) == expected && stats.pending + stats.retrying == 0
        })
        .await;
        producer.close().await;
    }

    /// Opened only briefly: while a test has the file open, a worker never has to recover SQLite's WAL.
    pub async fn producer(&self) -> D {
        D::open(&self.setup.producer).await.expect("the producer's database opens")
    }

    pub async fn consumer(&self) -> D {
        D::open(&self.setup.consumer).await.expect("the consumer's database opens")
    }
}

/// Whether every committed order has taken effect.
async fn have_all_effects<D: Adapter>(producer: &D, consumer: &D) -> bool {
    let effects = consumer.effects().await.expect("the consumer's database answers");
    let effects: HashSet<_> = effects.into_iter().map(|effect| effect.message_id).collect();
    let orders = producer.orders().await.expect("the producer's database answers");
    orders.iter().all(|order| effects.contains(&order.message_id))
}
