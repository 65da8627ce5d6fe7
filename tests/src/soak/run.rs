//! Runs one soak from start to result.

use std::collections::HashSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use landfall::mysql::MySql;
use landfall::postgres::Postgres;
use landfall::sqlite::Sqlite;
use landfall::{Error, ErrorKind, GroupName, Holder, Result, Shard, TopicName};
use landfall_testkit::MemoryBroker;
use landfall_testkit::remote::{DeliverServer, PublishServer};
use rand::SeedableRng;
use rand::rngs::StdRng;
use serde::{Deserialize, Serialize};

use super::check::{check_history, disorder_at_broker};
use super::doubled;
use super::environment::Environment;
use super::fault_injector::{FaultCounts, FaultInjector, Focus};
use super::figures::Figures;
use super::ledger::Ledger;
use super::order::Order;
use super::planted_bug::SoakBug;
use super::process_config::{ProcessConfig, ProcessRole};
use super::processes::Processes;
use crate::setup::{GROUP, TOPIC};
use crate::undelivered::Undelivered;
use crate::worker::Adapter;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DatabaseKind {
    Sqlite,
    Postgres,
    Mysql,
}

impl DatabaseKind {
    pub const ALL: [DatabaseKind; 3] = [Self::Sqlite, Self::Postgres, Self::Mysql];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
            Self::Mysql => "mysql",
        }
    }

    /// Whether an open transaction does not block other writers.
    pub fn has_concurrent_writers(self) -> bool {
        self != Self::Sqlite
    }

    /// On SQLite an open transaction blocks all other writers, so it is short.
    fn hold_ms(self) -> u64 {
        match self {
            Self::Sqlite => 8,
            Self::Postgres | Self::Mysql => 100,
        }
    }
}

impl std::fmt::Display for DatabaseKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::str::FromStr for DatabaseKind {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let names = Self::ALL.map(Self::as_str).join(", ");
        let found = Self::ALL.into_iter().find(|kind| kind.as_str() == text);
        found.ok_or_else(|| Error::invalid(format!("database {text:?} is none of {names}")))
    }
}

#[derive(Debug, Clone)]
pub struct Options {
    pub database: DatabaseKind,
    /// How long faults are injected.
    pub duration: Duration,
    pub seed: u64,
    pub order: Order,
    /// The program that runs the processes: `program process JSON`.
    pub program: PathBuf,
    pub planted_bug: Option<SoakBug>,
    pub focus: Focus,
    /// How long the drain may make no progress before it is given up.
    pub stall_timeout: Duration,
    /// Called from time to time with the completed share and a description.
    pub progress: fn(f64, &str),
}

impl Options {
    pub fn new(database: DatabaseKind, duration: Duration, seed: u64, program: impl Into<PathBuf>) -> Self {
        Self {
            database,
            duration,
            seed,
            order: Order::Key,
            program: program.into(),
            planted_bug: None,
            focus: Focus::Everything,
            stall_timeout: Duration::from_secs(30),
            progress: |_, _| {},
        }
    }
}

const ACCOUNTS: u32 = 24;
const WRITER_PROCESSES: u32 = 2;
/// Writers of a process, apart from the one that holds transactions open; limited by its connections.
const WRITERS: u32 = 5;
const RELAYS: u32 = 3;
const LEASE: Duration = Duration::from_secs(1);
/// How long the drain may take after the last fault: the bound of L9, on a busy machine.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(180);
/// How often the processes are checked.
const TICK: Duration = Duration::from_millis(20);
const PROGRESS: Duration = Duration::from_secs(2);

/// Runs a whole soak; faults that it finds are in the figures. Errors: `Unavailable` if it could not start (for example
/// without a server), `Internal` if it was aborted, `Unsupported` if the database does not support the order.
pub async fn run(options: &Options) -> Result<Figures> {
    if !options.order.is_possible_on(options.database) {
        let message = format!("relays cannot compete for messages on {}: it has no row locks", options.database);
        return Err(Error::new(ErrorKind::Unsupported, message));
    }
    match options.database {
        DatabaseKind::Sqlite => Soak::<Sqlite>::run(options).await,
        DatabaseKind::Postgres => Soak::<Postgres>::run(options).await,
        DatabaseKind::Mysql => Soak::<MySql>::run(options).await,
    }
}

struct Soak<'a, D> {
    options: &'a Options,
    environment: &'a Environment,
    processes: Processes,
    broker: MemoryBroker,
    database: std::marker::PhantomData<D>,
}

impl<D: Adapter + Ledger> Soak<'_, D> {
    async fn run(options: &Options) -> Result<Figures> {
        let environment = Environment::prepare::<D>(options.database, ACCOUNTS).await?;
        let broker = MemoryBroker::new();
        let publish = PublishServer::start(broker.clone()).await?;
        let deliver = DeliverServer::start(broker.clone(), TopicName::new(TOPIC)?, GroupName::new(GROUP)?).await?;
        let [writers, producer, consumer] = environment.addresses();
        let config = ProcessConfig {
            database: options.database,
            writers,
            producer,
            consumer,
            publish: publish.address(),
            deliver: deliver.address(),
            role: ProcessRole::Operate,
            seed: options.seed,
            accounts: ACCOUNTS,
            hold_ms: options.database.hold_ms(),
            lease_ms: LEASE.as_millis() as u64,
            order: options.order,
            planted_bug: options.planted_bug,
        };
        let processes = Processes::new(options.program.clone(), config);
        let soak =
            Soak::<D> { options, environment: &environment, processes, broker, database: std::marker::PhantomData };
        let aborted = |error| Error::new(ErrorKind::Internal, "the soak was aborted").with_source(error);
        soak.execute().await.map_err(aborted)
    }

    async fn execute(mut self) -> Result<Figures> {
        for number in 0..RELAYS {
            self.processes.add(ProcessRole::Relay(number))?;
        }
        for role in [ProcessRole::Consume, ProcessRole::Operate] {
            self.processes.add(role)?;
        }
        for _ in 0..WRITER_PROCESSES {
            self.processes.add(ProcessRole::Write(WRITERS))?;
        }
        self.processes.ready().await;

        let random = StdRng::seed_from_u64(self.options.seed);
        let mut injector = FaultInjector::new(random, self.options.focus, self.environment, self.broker.clone(), LEASE);
        let (started, mut reported) = (Instant::now(), Instant::now());
        while started.elapsed() < self.options.duration && self.processes.failures.is_empty() {
            injector.tick(&mut self.processes).await?;
            self.processes.reap().await;
            if reported.elapsed() >= PROGRESS {
                reported = Instant::now();
                self.report_progress(started.elapsed(), injector.counts);
            }
            tokio::time::sleep(TICK).await;
        }
        let (seconds, healed) = (started.elapsed().as_secs_f64(), Instant::now());
        injector.heal(&mut self.processes).await?;
        let counts = injector.counts;
        self.processes.stop(|role| matches!(role, ProcessRole::Write(_))).await;
        let is_drained = self.drain().await?;
        let drained_seconds = healed.elapsed().as_secs_f64();
        self.processes.reap().await;
        self.processes.stop(|_| true).await;
        self.figures(counts, seconds, drained_seconds, is_drained).await
    }

    fn report_progress(&self, elapsed: Duration, counts: FaultCounts) {
        let FaultCounts { kills, pauses, restarts, .. } = counts;
        let counts = self.environment.cuts();
        let cuts = counts.cut + counts.cut_before_forwarding + counts.cut_before_response;
        let line = format!(
            "{}: {:.0} of {:.0} s, {kills} kills, {pauses} pauses, {restarts} restarts, {cuts} cuts",
            self.options.database,
            elapsed.as_secs_f64(),
            self.options.duration.as_secs_f64()
        );
        (self.options.progress)(elapsed.as_secs_f64() / self.options.duration.as_secs_f64(), &line);
    }

    /// Waits until all committed messages have taken effect, and then for a last message of each account. That comes
    /// after all duplicates of earlier messages, so once it has taken effect no duplicate is in flight. Without order a
    /// duplicate may come later, so finally the relays finish their work and the consumer empties the broker. Returns
    /// `false` if the drain stalls.
    async fn drain(&mut self) -> Result<bool> {
        if !self.wait_for_effects().await? {
            return Ok(false);
        }
        let last = self.processes.add(ProcessRole::WriteOnce)?;
        let started = Instant::now();
        while self.processes.count_ok(last) < ACCOUNTS as usize && started.elapsed() < self.options.stall_timeout {
            self.processes.reap().await;
            tokio::time::sleep(TICK).await;
        }
        if !self.wait_for_effects().await? {
            return Ok(false);
        }
        self.processes.stop(|role| matches!(role, ProcessRole::Relay(_))).await;
        let (topic, group, started) = (TopicName::new(TOPIC)?, GroupName::new(GROUP)?, Instant::now());
        while self.broker.unfinished(&topic, &group) > 0 && started.elapsed() < self.options.stall_timeout {
            self.processes.reap().await;
            tokio::time::sleep(TICK).await;
        }
        Ok(self.broker.unfinished(&topic, &group) == 0)
    }

    async fn wait_for_effects(&mut self) -> Result<bool> {
        let (producer, consumer) =
            (D::open(&self.environment.producer).await?, D::open(&self.environment.consumer).await?);
        let sent = producer.sent_count().await?;
        let (started, mut progressed, mut seen) = (Instant::now(), Instant::now(), -1);
        let drained = loop {
            let applied = consumer.applied_count().await?;
            let stats = producer.stats().await?;
            if applied >= sent && stats.pending + stats.retrying + stats.parked == 0 {
                break true;
            }
            if applied != seen {
                (progressed, seen) = (Instant::now(), applied);
            }
            self.processes.reap().await;
            if progressed.elapsed() > self.options.stall_timeout || started.elapsed() > DRAIN_TIMEOUT {
                break false;
            }
            (self.options.progress)(1.0, &format!("{}: draining, {applied} of {sent}", self.options.database));
            tokio::time::sleep(Duration::from_millis(100)).await;
        };
        producer.close().await;
        consumer.close().await;
        Ok(drained)
    }

    async fn figures(
        self,
        fault_counts: FaultCounts,
        seconds: f64,
        drained_seconds: f64,
        is_drained: bool,
    ) -> Result<Figures> {
        let (producer, consumer) =
            (D::open(&self.environment.producer).await?, D::open(&self.environment.consumer).await?);
        let (sent, applied) = (producer.sent().await?, consumer.applied().await?);
        let soak_report = check_history(self.options.order, &self.processes.histories, &sent, &applied);
        let stats = producer.stats().await?;
        let done = [producer.dead_letter_stats().await?, consumer.dead_letter_stats().await?].map(|stats| stats.done);
        let counts = self.environment.cuts();
        let mut figures = Figures {
            database: self.options.database,
            seed: self.options.seed,
            order: self.options.order,
            seconds,
            drained_seconds,
            messages: 0,
            effects: 0,
            rolled_back: 0,
            faults: fault_counts,
            cuts: counts.cut,
            commits_cut_before: counts.cut_before_forwarding,
            commits_cut_after: counts.cut_before_response,
            takeovers: takeovers(&producer).await?,
            copies: copies(&self.broker),
            unknown: 0,
            unknown_committed: 0,
            unanswered: 0,
            unanswered_committed: 0,
            redriven: done.iter().sum(),
            lost: 0,
            phantom: 0,
            doubled: 0,
            out_of_order: 0,
            contradicted: 0,
            shared_epochs: 0,
            unsettled: 0,
            wrong: self.processes.failures.clone(),
        };
        figures.add(&soak_report);
        let doubled: Vec<_> = soak_report.report.doubled.iter().take(20).map(|named| named.id).collect();
        figures.wrong.extend(doubled::describe(&doubled, &self.broker.published(), &applied, &consumer).await?);
        if figures.out_of_order > 0 && figures.order == Order::Key {
            let disorder = disorder_at_broker(&self.broker.published());
            figures.wrong.push(format!("already out of order at the broker: {}", disorder.len()));
            figures.wrong.extend(disorder.into_iter().take(20));
        }
        let left = stats.pending + stats.retrying + stats.parked;
        figures.unsettled =
            left + stats.published.abs_diff(figures.messages as u64 - left.min(figures.messages as u64));
        if figures.unsettled > 0 {
            figures.wrong.push(format!("of {} committed: {stats:?}", figures.messages));
        }
        if !is_drained {
            let undelivered = Undelivered::collect(&producer, &consumer).await?.to_string();
            let lines: Vec<_> = undelivered.lines().take(10).collect();
            figures.wrong.push(format!("not drained; {}", lines.join("\n")));
        }
        producer.close().await;
        consumer.close().await;
        Ok(figures)
    }
}

/// The epoch of a lease increases with each new holder; the last change is our own.
async fn takeovers<D: Adapter>(database: &D) -> Result<i64> {
    let holder = Holder("the check".into());
    let mut takeovers = 0;
    for shard in 0..database.shards() {
        let lease = database.acquire(&Shard(shard).lease_name(), &holder, Duration::from_secs(1)).await?;
        takeovers += lease.map_or(0, |lease| lease.epoch - 1);
    }
    Ok(takeovers)
}

fn copies(broker: &MemoryBroker) -> usize {
    let published = broker.published();
    let messages: HashSet<_> = published.iter().map(|(_, message)| message.id).collect();
    published.len() - messages.len()
}
