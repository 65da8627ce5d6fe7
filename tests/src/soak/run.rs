//! One soak from its beginning to its verdict.

use std::collections::HashSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use landfall::adapter::Shard;
use landfall::mysql::MySql;
use landfall::postgres::Postgres;
use landfall::sqlite::Sqlite;
use landfall::{Error, ErrorKind, GroupName, Holder, Result, TopicName};
use landfall_testkit::MemoryBroker;
use landfall_testkit::remote::{DeliverServer, PublishServer};
use rand::SeedableRng;
use rand::rngs::StdRng;
use serde::{Deserialize, Serialize};

use super::actor::Cast;
use super::doubled;
use super::figures::Figures;
use super::ground::Ground;
use super::judge::{disorder_at_broker, judge};
use super::ledger::Ledger;
use super::order::Order;
use super::part::{Part, Play};
use super::plant::SoakPlant;
use super::trouble::{Blows, Focus, Trouble};
use crate::remains::Remains;
use crate::setup::{GROUP, TOPIC};
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

    /// Whether one who leaves a transaction open is in nobody's way.
    pub fn has_concurrent_writers(self) -> bool {
        self != Self::Sqlite
    }

    /// While one transaction is open on SQLite nobody else writes, so there it is short.
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
    /// How long there is trouble.
    pub duration: Duration,
    pub seed: u64,
    pub order: Order,
    /// The program that plays the parts: `program play JSON`.
    pub program: PathBuf,
    pub plant: Option<SoakPlant>,
    pub focus: Focus,
    /// How long nothing may move before what does not drain is judged as it is.
    pub standstill: Duration,
    /// Told now and then how far it is, with the share that is done.
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
            plant: None,
            focus: Focus::Everything,
            standstill: Duration::from_secs(30),
            progress: |_, _| {},
        }
    }
}

const ACCOUNTS: u32 = 24;
const WRITER_PROCESSES: u32 = 2;
/// And one that dawdles; as many as a process has connections.
const WRITERS: u32 = 5;
const RELAYS: u32 = 3;
const LEASE: Duration = Duration::from_secs(1);
/// How long everything may take to drain after the faults have healed: the bound of L9, on a busy machine.
const DRAINED_WITHIN: Duration = Duration::from_secs(180);
/// How often somebody looks after the processes.
const TICK: Duration = Duration::from_millis(20);
const PROGRESS: Duration = Duration::from_secs(2);

/// Runs a whole soak; what it found is in the figures. `Err` of kind `Unavailable` if it could not begin (no server…), of
/// kind `Internal` if it broke off, of kind `Unsupported` if the database cannot work in that order.
pub async fn run(options: &Options) -> Result<Figures> {
    if !options.order.is_possible_on(options.database) {
        let sentence = format!("relays cannot compete for messages on {}: it locks no rows", options.database);
        return Err(Error::new(ErrorKind::Unsupported, sentence));
    }
    match options.database {
        DatabaseKind::Sqlite => Soak::<Sqlite>::run(options).await,
        DatabaseKind::Postgres => Soak::<Postgres>::run(options).await,
        DatabaseKind::Mysql => Soak::<MySql>::run(options).await,
    }
}

struct Soak<'a, D> {
    options: &'a Options,
    ground: &'a Ground,
    cast: Cast,
    broker: MemoryBroker,
    database: std::marker::PhantomData<D>,
}

impl<D: Adapter + Ledger> Soak<'_, D> {
    async fn run(options: &Options) -> Result<Figures> {
        let ground = Ground::prepare::<D>(options.database, ACCOUNTS).await?;
        let broker = MemoryBroker::new();
        let publish = PublishServer::start(broker.clone()).await?;
        let deliver = DeliverServer::start(broker.clone(), TopicName::new(TOPIC)?, GroupName::new(GROUP)?).await?;
        let [writers, producer, consumer] = ground.addresses();
        let part = Part {
            database: options.database,
            writers,
            producer,
            consumer,
            publish: publish.address(),
            deliver: deliver.address(),
            play: Play::Operate,
            seed: options.seed,
            accounts: ACCOUNTS,
            hold_ms: options.database.hold_ms(),
            lease_ms: LEASE.as_millis() as u64,
            order: options.order,
            plant: options.plant,
        };
        let cast = Cast::new(options.program.clone(), part);
        let soak = Soak::<D> { options, ground: &ground, cast, broker, database: std::marker::PhantomData };
        let broke_off = |error| Error::new(ErrorKind::Internal, "the soak broke off").with_source(error);
        soak.play().await.map_err(broke_off)
    }

    async fn play(mut self) -> Result<Figures> {
        for number in 0..RELAYS {
            self.cast.add(Play::Relay(number))?;
        }
        for play in [Play::Consume, Play::Operate] {
            self.cast.add(play)?;
        }
        for _ in 0..WRITER_PROCESSES {
            self.cast.add(Play::Write(WRITERS))?;
        }
        self.cast.ready().await;

        let random = StdRng::seed_from_u64(self.options.seed);
        let mut trouble = Trouble::new(random, self.options.focus, self.ground, self.broker.clone(), LEASE);
        let (started, mut told) = (Instant::now(), Instant::now());
        while started.elapsed() < self.options.duration && self.cast.gave_up.is_empty() {
            trouble.go_on(&mut self.cast).await?;
            self.cast.look_after().await;
            if told.elapsed() >= PROGRESS {
                told = Instant::now();
                self.tell(started.elapsed(), trouble.blows);
            }
            tokio::time::sleep(TICK).await;
        }
        let (seconds, healed) = (started.elapsed().as_secs_f64(), Instant::now());
        trouble.heal(&mut self.cast).await?;
        let blows = trouble.blows;
        self.cast.stop(|play| matches!(play, Play::Write(_))).await;
        let is_drained = self.drain().await?;
        let drained_seconds = healed.elapsed().as_secs_f64();
        self.cast.look_after().await;
        self.cast.stop(|_| true).await;
        self.figures(blows, seconds, drained_seconds, is_drained).await
    }

    fn tell(&self, elapsed: Duration, blows: Blows) {
        let Blows { kills, pauses, restarts, .. } = blows;
        let counts = self.ground.cuts();
        let cuts = counts.cut + counts.cut_before_forwarding + counts.cut_before_the_answer;
        let line = format!(
            "{}: {:.0} of {:.0} s, {kills} kills, {pauses} pauses, {restarts} restarts, {cuts} cuts",
            self.options.database,
            elapsed.as_secs_f64(),
            self.options.duration.as_secs_f64()
        );
        (self.options.progress)(elapsed.as_secs_f64() / self.options.duration.as_secs_f64(), &line);
    }

    /// Waits until everything that was committed has had its effect, then once more with a last message of each
    /// account: that comes after every copy of its other messages, so when it has had its effect no copy is still on
    /// its way. Where nothing is in order a copy may come later than that, so at last the relays finish what they have in
    /// hand, and the consumer whatever is in the broker. `false` when nothing moves any more.
    async fn drain(&mut self) -> Result<bool> {
        if !self.wait_for_effects().await? {
            return Ok(false);
        }
        let last = self.cast.add(Play::WriteOnce)?;
        let started = Instant::now();
        while self.cast.count_ok(last) < ACCOUNTS as usize && started.elapsed() < self.options.standstill {
            self.cast.look_after().await;
            tokio::time::sleep(TICK).await;
        }
        if !self.wait_for_effects().await? {
            return Ok(false);
        }
        self.cast.stop(|play| matches!(play, Play::Relay(_))).await;
        let (topic, group, started) = (TopicName::new(TOPIC)?, GroupName::new(GROUP)?, Instant::now());
        while self.broker.unfinished(&topic, &group) > 0 && started.elapsed() < self.options.standstill {
            self.cast.look_after().await;
            tokio::time::sleep(TICK).await;
        }
        Ok(self.broker.unfinished(&topic, &group) == 0)
    }

    async fn wait_for_effects(&mut self) -> Result<bool> {
        let (producer, consumer) = (D::open(&self.ground.producer).await?, D::open(&self.ground.consumer).await?);
        let sent = producer.sent_count().await?;
        let (started, mut moved, mut seen) = (Instant::now(), Instant::now(), -1);
        let drained = loop {
            let applied = consumer.applied_count().await?;
            let stats = producer.stats().await?;
            if applied >= sent && stats.pending + stats.retrying + stats.parked == 0 {
                break true;
            }
            if applied != seen {
                (moved, seen) = (Instant::now(), applied);
            }
            self.cast.look_after().await;
            if moved.elapsed() > self.options.standstill || started.elapsed() > DRAINED_WITHIN {
                break false;
            }
            (self.options.progress)(1.0, &format!("{}: draining, {applied} of {sent}", self.options.database));
            tokio::time::sleep(Duration::from_millis(100)).await;
        };
        producer.close().await;
        consumer.close().await;
        Ok(drained)
    }

    async fn figures(self, blows: Blows, seconds: f64, drained_seconds: f64, is_drained: bool) -> Result<Figures> {
        let (producer, consumer) = (D::open(&self.ground.producer).await?, D::open(&self.ground.consumer).await?);
        let (sent, applied) = (producer.sent().await?, consumer.applied().await?);
        let judgement = judge(self.options.order, &self.cast.graves, &sent, &applied);
        let stats = producer.stats().await?;
        let done = [producer.dead_letter_stats().await?, consumer.dead_letter_stats().await?].map(|stats| stats.done);
        let counts = self.ground.cuts();
        let mut figures = Figures {
            database: self.options.database,
            seed: self.options.seed,
            order: self.options.order,
            seconds,
            drained_seconds,
            messages: 0,
            effects: 0,
            rolled_back: 0,
            blows,
            cuts: counts.cut,
            commits_cut_before: counts.cut_before_forwarding,
            commits_cut_after: counts.cut_before_the_answer,
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
            wrong: self.cast.gave_up.clone(),
        };
        figures.take(&judgement);
        let doubled: Vec<_> = judgement.report.doubled.iter().take(20).map(|named| named.id).collect();
        figures.wrong.extend(doubled::accounts(&doubled, &self.broker.published(), &applied, &consumer).await?);
        if figures.out_of_order > 0 && figures.order == Order::Key {
            let disorder = disorder_at_broker(&self.broker.published());
            figures.wrong.push(format!("out of order at the broker already: {}", disorder.len()));
            figures.wrong.extend(disorder.into_iter().take(20));
        }
        let left = stats.pending + stats.retrying + stats.parked;
        figures.unsettled =
            left + stats.published.abs_diff(figures.messages as u64 - left.min(figures.messages as u64));
        if figures.unsettled > 0 {
            figures.wrong.push(format!("of {} committed: {stats:?}", figures.messages));
        }
        if !is_drained {
            let remains = Remains::look(&producer, &consumer).await?.to_string();
            let lines: Vec<_> = remains.lines().take(10).collect();
            figures.wrong.push(format!("not drained; {}", lines.join("\n")));
        }
        producer.close().await;
        consumer.close().await;
        Ok(figures)
    }
}

/// An epoch is one more each time a lease changes hands; the last change is ours.
async fn takeovers<D: Adapter>(database: &D) -> Result<i64> {
    let holder = Holder("the judge".into());
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
