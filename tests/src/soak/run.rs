//! Runs one soak from start to result.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use landfall::adapter::Shard;
use landfall::mysql::MySql;
use landfall::postgres::Postgres;
use landfall::sqlite::Sqlite;
use landfall::{Error, ErrorKind, Holder, Message, Position, Result};
use rand::SeedableRng;
use rand::rngs::StdRng;

use super::broker::SoakBroker;
use super::broker_kind::BrokerKind;
use super::check::{check_history, disorder_at_broker};
use super::database_kind::DatabaseKind;
use super::doubled;
use super::environment::Environment;
use super::fault_injector::{FaultCounts, FaultInjector};
use super::figures::Figures;
use super::ledger::Ledger;
use super::options::Options;
use super::order::Order;
use super::process_config::{ProcessConfig, ProcessRole};
use super::processes::Processes;
use super::push_receiver::{PUSH_GROUP, PushReceiver};
use crate::setup::GROUP;
use crate::undelivered::Undelivered;
use crate::worker::Adapter;

const ACCOUNTS: u32 = 24;
const WRITER_PROCESSES: u32 = 2;
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
    broker: &'a SoakBroker,
    /// Receives the pushes of the daemons.
    receiver: Option<&'a PushReceiver>,
    database: std::marker::PhantomData<D>,
}

impl<D: Adapter + Ledger> Soak<'_, D> {
    async fn run(options: &Options) -> Result<Figures> {
        let environment = Environment::prepare::<D>(options.database, ACCOUNTS).await?;
        let broker = SoakBroker::start(options.broker).await?;
        let [writers, producer, consumer] = environment.addresses();
        let config = ProcessConfig {
            database: options.database,
            writers,
            producer,
            consumer,
            broker: broker.location(),
            role: ProcessRole::Operate,
            seed: options.seed,
            accounts: ACCOUNTS,
            hold_ms: options.database.hold_ms(),
            lease_ms: options.lease().as_millis() as u64,
            order: options.order,
            planted_bug: options.planted_bug,
        };
        let processes = Processes::new(options.program.clone(), environment.folder().into(), config);
        let receiver = match options.broker {
            BrokerKind::Memory => None,
            _ => Some(PushReceiver::start(options.seed).await?),
        };
        if let Some(receiver) = &receiver {
            receiver.configure(environment.folder())?;
        }
        let (environment, broker, receiver) = (&environment, &broker, receiver.as_ref());
        let soak = Soak::<D> { options, environment, processes, broker, receiver, database: std::marker::PhantomData };
        let aborted = |error| Error::new(ErrorKind::Internal, "the soak was aborted").with_source(error);
        soak.execute().await.map_err(aborted)
    }

    async fn execute(mut self) -> Result<Figures> {
        for role in self.options.processes() {
            self.processes.add(role)?;
        }
        self.processes.add(ProcessRole::Operate)?;
        self.processes.ready().await;
        // Before the first message: a group of RabbitMQ receives what is published after its creation.
        if let Some(server) = self.broker.server() {
            server.wait_until_durable().await?;
        }
        for _ in 0..WRITER_PROCESSES {
            self.processes.add(ProcessRole::Write(self.options.writers()))?;
        }
        self.processes.ready().await;

        let (random, lease) = (StdRng::seed_from_u64(self.options.seed), self.options.lease());
        let mut injector = FaultInjector::new(random, self.options.focus, self.environment, self.broker, lease);
        let (started, mut reported) = (Instant::now(), Instant::now());
        let Options { duration, .. } = *self.options;
        let is_incomplete = |injector: &FaultInjector<'_>| {
            started.elapsed() < duration || started.elapsed() < self.options.longest() && injector.lacks_a_fault()
        };
        while is_incomplete(&injector) && self.processes.failures.is_empty() {
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
        if let Some(receiver) = self.receiver {
            receiver.heal();
        }
        let counts = injector.counts;
        self.processes.stop(|role| matches!(role, ProcessRole::Write(_))).await;
        let is_drained = self.drain().await?;
        let drained_seconds = healed.elapsed().as_secs_f64();
        self.processes.reap().await;
        // Only running processes have a log.
        let consumer_logs = if is_drained { Vec::new() } else { self.processes.consumer_logs() };
        self.processes.stop(|_| true).await;
        let mut figures = self.figures(counts, seconds, drained_seconds, is_drained).await?;
        figures.wrong.extend(consumer_logs);
        Ok(figures)
    }

    fn report_progress(&self, elapsed: Duration, counts: FaultCounts) {
        let FaultCounts { kills, pauses, restarts, broker_restarts, broker_pauses, .. } = counts;
        let counts = self.environment.cuts();
        let cuts = counts.cut + counts.cut_before_forwarding + counts.cut_before_response + self.broker.cuts();
        let (pauses, restarts) = (pauses + broker_pauses, restarts + broker_restarts);
        let line = format!(
            "{} over {}: {:.0} of {:.0} s, {kills} kills, {pauses} pauses, {restarts} restarts, {cuts} cuts",
            self.options.database,
            self.options.broker,
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
        self.processes.stop(|role| matches!(role, ProcessRole::Relay(_) | ProcessRole::Daemon)).await;
        let started = Instant::now();
        while !self.broker.is_drained()? && started.elapsed() < self.options.stall_timeout {
            self.processes.reap().await;
            tokio::time::sleep(TICK).await;
        }
        self.broker.is_drained()
    }

    async fn wait_for_effects(&mut self) -> Result<bool> {
        let (producer, consumer) =
            (D::open(&self.environment.producer).await?, D::open(&self.environment.consumer).await?);
        let sent = producer.sent_count().await?;
        let (started, mut progressed, mut seen) = (Instant::now(), Instant::now(), -1);
        let drained = loop {
            let applied = consumer.applied_count().await?;
            let pushed = self.receiver.map_or(applied, |receiver| receiver.applied_count() as i64);
            let stats = producer.stats().await?;
            if applied.min(pushed) >= sent && stats.pending + stats.retrying + stats.parked == 0 {
                break true;
            }
            if applied + pushed != seen {
                (progressed, seen) = (Instant::now(), applied + pushed);
            }
            self.processes.reap().await;
            if progressed.elapsed() > self.options.stall_timeout || started.elapsed() > DRAIN_TIMEOUT {
                break false;
            }
            let Options { database, broker, progress, .. } = self.options;
            progress(1.0, &format!("{database} over {broker}: draining, {applied} applied, {pushed} pushed of {sent}"));
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
        let pushed = self.receiver.map(PushReceiver::applied);
        let mut effects = vec![(GROUP, &applied[..])];
        effects.extend(pushed.iter().map(|pushed| (PUSH_GROUP, &pushed[..])));
        let soak_report = check_history(self.options.order, &self.processes.histories, &sent, &effects);
        let stats = producer.stats().await?;
        let done = [producer.dead_letter_stats().await?, consumer.dead_letter_stats().await?].map(|stats| stats.done);
        let counts = self.environment.cuts();
        let published = self.broker.published().await?;
        let mut figures = Figures {
            database: self.options.database,
            broker: self.options.broker,
            seed: self.options.seed,
            order: self.options.order,
            seconds,
            drained_seconds,
            effects: applied.len(),
            pushed: pushed.as_ref().map_or(0, Vec::len),
            posts: self.receiver.map_or(0, PushReceiver::posts),
            faults: fault_counts,
            cuts: counts.cut,
            commits_cut_before: counts.cut_before_forwarding,
            commits_cut_after: counts.cut_before_response,
            broker_cuts: self.broker.cuts(),
            takeovers: takeovers(&producer).await?,
            copies: published.as_deref().map(copies),
            redriven: done.iter().sum(),
            wrong: self.processes.failures.clone(),
            ..Figures::default()
        };
        figures.add(&soak_report);
        let doubled: Vec<_> = soak_report.report.doubled.iter().take(20).map(|named| named.id).collect();
        let published = published.unwrap_or_default();
        figures.wrong.extend(doubled::describe(&doubled, &published, &applied, &consumer).await?);
        if figures.out_of_order > 0 && figures.order == Order::Key {
            let disorder = disorder_at_broker(&published);
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

fn copies(published: &[(Position, Message)]) -> usize {
    let messages: HashSet<_> = published.iter().map(|(_, message)| message.id).collect();
    published.len() - messages.len()
}
