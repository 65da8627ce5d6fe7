//! Kills, pauses, restarts and cuts at random, from a seed.

use std::time::{Duration, Instant};

use landfall::{Error, ErrorKind, Result};
use landfall_testkit::Fault;
use landfall_testkit::proxy::{CutPoint, Proxy, Trigger};
use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use serde::Serialize;
use tokio::task::JoinHandle;

use super::broker::SoakBroker;
use super::environment::{Environment, StopMode};
use super::process_config::ProcessRole;
use super::processes::Processes;

/// The faults that were injected.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct FaultCounts {
    /// Processes that got SIGKILL, and the relays and consumers among them.
    pub kills: u32,
    pub relay_kills: u32,
    pub consumer_kills: u32,
    /// Processes that got SIGSTOP, and the relays among them that were paused for longer than their lease.
    pub pauses: u32,
    pub lease_pauses: u32,
    /// Restarts of the database server.
    pub restarts: u32,
    /// Messages that the in-memory broker refused, or accepted without a response.
    pub broker_faults: u32,
    /// How often the broker's server got SIGKILL and was restarted, and how often SIGSTOP.
    pub broker_restarts: u32,
    pub broker_pauses: u32,
    /// How often all connections to the broker's server fell silent.
    pub broker_blackholes: u32,
    /// Ids of the outbox that were consumed, so that its partitions are filled and truncated (PostgreSQL).
    pub ids_skipped: i64,
}

/// Which faults are injected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Focus {
    #[default]
    Everything,
    /// Only kills and pauses of relays.
    Relays,
    /// Only kills of consumers.
    Consumers,
    /// Only broker faults.
    Broker,
    /// Only cuts during a commit.
    Commits,
}

impl Focus {
    fn allows(self, kind: FaultKind) -> bool {
        match self {
            Focus::Everything => true,
            Focus::Relays => {
                matches!(kind, FaultKind::Kill(like) | FaultKind::Pause(like) if like(ProcessRole::Relay(0)))
            }
            Focus::Consumers => matches!(kind, FaultKind::Kill(like) if like(ProcessRole::Consume)),
            Focus::Broker => matches!(kind, FaultKind::FailBroker),
            Focus::Commits => matches!(kind, FaultKind::CutCommits),
        }
    }
}

pub struct FaultInjector<'a> {
    pub random: StdRng,
    pub focus: Focus,
    pub environment: &'a Environment,
    pub broker: &'a SoakBroker,
    pub lease: Duration,
    pub counts: FaultCounts,
    injected: u32,
    follow_ups: Vec<(Instant, FollowUp)>,
    next: Instant,
    /// A restart of the database server that is in progress.
    restarting: Option<JoinHandle<Result<()>>>,
    /// A restart or pause of the broker's server that is in progress.
    disturbing_broker: Option<JoinHandle<Result<()>>>,
}

/// The end of a fault, or its consequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FollowUp {
    Resume(usize),
    Start(usize),
    HealProxies,
}

#[derive(Debug, Clone, Copy)]
enum FaultKind {
    Kill(fn(ProcessRole) -> bool),
    Pause(fn(ProcessRole) -> bool),
    RestartServer,
    RestartBroker,
    PauseBroker,
    BlackholeBroker,
    CutBroker,
    CutCommits,
    CutOne,
    CutAll,
    Delay,
    Refuse,
    SkipIds,
    FailBroker,
}

/// The faults with their weights.
const FAULTS: [(FaultKind, u32); 18] = [
    (FaultKind::Kill(is_relay), 20),
    (FaultKind::Pause(is_relay), 20),
    (FaultKind::Kill(is_writer), 8),
    (FaultKind::Pause(is_writer), 6),
    (FaultKind::Kill(is_consumer), 12),
    (FaultKind::Pause(is_consumer), 4),
    (FaultKind::Kill(is_operator), 2),
    (FaultKind::FailBroker, 10),
    (FaultKind::RestartServer, 5),
    (FaultKind::RestartBroker, 3),
    (FaultKind::PauseBroker, 3),
    (FaultKind::BlackholeBroker, 3),
    (FaultKind::CutCommits, 20),
    (FaultKind::CutOne, 10),
    (FaultKind::CutAll, 4),
    (FaultKind::Delay, 3),
    (FaultKind::Refuse, 3),
    (FaultKind::SkipIds, 8),
];

impl<'a> FaultInjector<'a> {
    pub fn new(
        random: StdRng,
        focus: Focus,
        environment: &'a Environment,
        broker: &'a SoakBroker,
        lease: Duration,
    ) -> Self {
        Self {
            random,
            focus,
            environment,
            broker,
            lease,
            counts: FaultCounts::default(),
            injected: 0,
            follow_ups: Vec::new(),
            next: Instant::now(),
            restarting: None,
            disturbing_broker: None,
        }
    }

    /// Executes due follow-ups, and injects the next fault if it is time.
    pub async fn tick(&mut self, processes: &mut Processes) -> Result<()> {
        for running in [&mut self.restarting, &mut self.disturbing_broker] {
            if running.as_ref().is_some_and(JoinHandle::is_finished) {
                finish(running).await?;
            }
        }
        let now = Instant::now();
        let (due, remaining) = self.follow_ups.iter().partition(|(when, _)| *when <= now);
        self.follow_ups = remaining;
        let due: Vec<(Instant, FollowUp)> = due;
        for (_, follow_up) in due {
            self.execute(processes, follow_up).await?;
        }
        if now >= self.next {
            self.inject(processes).await?;
            // A broker's server needs seconds to recover.
            let longest_ms = if self.broker.server().is_some() { 900 } else { 600 };
            self.next = Instant::now() + self.between(50, longest_ms);
        }
        Ok(())
    }

    /// Ends all faults: all processes are running, and all servers respond.
    pub async fn heal(&mut self, processes: &mut Processes) -> Result<()> {
        self.heal_proxies();
        if let Some(broker) = self.broker.memory() {
            broker.heal();
        }
        finish(&mut self.restarting).await?;
        finish(&mut self.disturbing_broker).await?;
        for (_, follow_up) in std::mem::take(&mut self.follow_ups) {
            self.execute(processes, follow_up).await?;
        }
        Ok(())
    }

    async fn execute(&mut self, processes: &mut Processes, follow_up: FollowUp) -> Result<()> {
        match follow_up {
            FollowUp::Resume(number) => processes.resume(number),
            FollowUp::Start(number) => processes.start(number)?,
            FollowUp::HealProxies => self.heal_proxies(),
        }
        Ok(())
    }

    async fn inject(&mut self, processes: &mut Processes) -> Result<()> {
        self.injected += 1;
        let weights: Vec<(FaultKind, u32)> = FAULTS.into_iter().filter(|(kind, _)| self.is_possible(*kind)).collect();
        let kind = match weights.choose_weighted(&mut self.random, |(_, weight)| *weight) {
            Ok((kind, _)) => self.overdue().unwrap_or(*kind),
            Err(_) => return Ok(()),
        };
        match kind {
            FaultKind::Kill(like) => self.kill(processes, like).await,
            FaultKind::Pause(like) => self.pause(processes, like).await,
            FaultKind::RestartServer => self.restart_server(),
            FaultKind::RestartBroker | FaultKind::PauseBroker => self.disturb_broker(kind),
            FaultKind::BlackholeBroker => {
                let silenced = self.broker.server().map_or(0, |server| server.proxy.blackhole_all());
                self.counts.broker_blackholes += u32::from(silenced > 0);
            }
            FaultKind::CutBroker => drop(self.broker.server().map(|server| server.proxy.cut_all())),
            FaultKind::FailBroker => self.fail_broker(),
            FaultKind::SkipIds => {
                let count = self.random.random_range(1_000..70_000);
                self.counts.ids_skipped += self.environment.skip_ids(count).await;
            }
            kind => {
                if let Some((proxy, request)) = self.proxies().choose(&mut self.random) {
                    self.disturb_connections(proxy, request, kind);
                }
            }
        }
        Ok(())
    }

    fn is_possible(&self, kind: FaultKind) -> bool {
        self.focus.allows(kind)
            && match kind {
                FaultKind::Kill(_) | FaultKind::Pause(_) => true,
                FaultKind::FailBroker => self.broker.memory().is_some(),
                FaultKind::RestartBroker
                | FaultKind::PauseBroker
                | FaultKind::BlackholeBroker
                | FaultKind::CutBroker => self.broker.server().is_some(),
                FaultKind::RestartServer | FaultKind::SkipIds => self.environment.has_server(),
                _ => !self.proxies().is_empty(),
            }
    }

    /// How often each fault has occurred that every run must have, and after how many others it is overdue.
    fn required(&self) -> impl Iterator<Item = (FaultKind, u32, u32)> + '_ {
        let counts = self.counts;
        let consumer_kills = if self.broker.server().is_some() { counts.consumer_kills } else { 1 };
        let required = [
            (FaultKind::RestartBroker, counts.broker_restarts, 10),
            (FaultKind::BlackholeBroker, counts.broker_blackholes, 20),
            (FaultKind::Kill(is_relay), counts.relay_kills, 25),
            (FaultKind::PauseBroker, counts.broker_pauses, 30),
            (FaultKind::Pause(is_relay), counts.lease_pauses, 35),
            (FaultKind::RestartServer, counts.restarts, 40),
            (FaultKind::CutBroker, u32::from(self.broker.cuts() > 0), 45),
            (FaultKind::Kill(is_consumer), consumer_kills, 50),
        ];
        required.into_iter().filter(|(kind, ..)| self.focus == Focus::Everything && self.is_possible(*kind))
    }

    fn overdue(&self) -> Option<FaultKind> {
        let overdue = |(_, count, after): &(FaultKind, u32, u32)| *count == 0 && self.injected > *after;
        self.required().find(overdue).map(|(kind, ..)| kind)
    }

    /// Whether a fault that every run must have has not occurred yet.
    pub fn lacks_a_fault(&self) -> bool {
        self.required().any(|(_, count, _)| count == 0)
    }

    /// Each proxy, with a word in the requests whose lost response matters most: a commit, or a message of an account.
    fn proxies(&self) -> Vec<(&'a Proxy, &'static str)> {
        let databases = self.environment.proxies.iter().map(|proxy| (proxy, "COMMIT"));
        databases.chain(self.broker.server().map(|server| (&server.proxy, "account"))).collect()
    }

    fn heal_proxies(&self) {
        self.proxies().into_iter().for_each(|(proxy, _)| proxy.heal());
    }

    async fn kill(&mut self, processes: &mut Processes, like: fn(ProcessRole) -> bool) {
        let Some(number) = processes.running(like).choose(&mut self.random).copied() else { return };
        self.counts.kills += 1;
        self.counts.relay_kills += u32::from(processes.running(is_relay).contains(&number));
        self.counts.consumer_kills += u32::from(processes.running(is_consumer).contains(&number));
        processes.kill(number).await;
        self.after(0, 800, FollowUp::Start(number));
    }

    /// Mostly for longer than a lease: a relay that resumes then has lost its leases and does not know it. A
    /// consumer of a server has a session instead.
    async fn pause(&mut self, processes: &mut Processes, like: fn(ProcessRole) -> bool) {
        let Some(number) = processes.running(like).choose(&mut self.random).copied() else { return };
        let is_long = self.random.random_bool(0.7);
        let session = self.broker.server().map_or(self.lease, |server| server.kind().session());
        let lease = if like(ProcessRole::Consume) { session } else { self.lease };
        let length = if is_long { lease.mul_f64(self.random.random_range(1.2..2.5)) } else { self.between(10, 300) };
        self.counts.pauses += 1;
        self.counts.lease_pauses += u32::from(is_long && processes.running(is_relay).contains(&number));
        processes.pause(number).await;
        self.follow_ups.push((Instant::now() + length, FollowUp::Resume(number)));
    }

    fn restart_server(&mut self) {
        let Some(how) = StopMode::ALL.choose(&mut self.random).copied() else { return };
        let pause = self.between(0, 600);
        if self.restarting.is_none() {
            self.counts.restarts += 1;
            self.restarting = Some(self.environment.restart(how, pause));
        }
    }

    /// Kills and restarts the broker's server, or pauses it, mostly for longer than the timeouts of its clients.
    fn disturb_broker(&mut self, kind: FaultKind) {
        let Some(server) = self.broker.server() else { return };
        if self.disturbing_broker.is_some() {
            return;
        }
        self.disturbing_broker = Some(if matches!(kind, FaultKind::RestartBroker) {
            self.counts.broker_restarts += 1;
            server.restart(self.between(0, 2_000))
        } else {
            self.counts.broker_pauses += 1;
            server.pause(server.kind().session().mul_f64(self.random.random_range(0.5..2.0)))
        });
    }

    fn fail_broker(&mut self) {
        let Some(broker) = self.broker.memory() else { return };
        let faults = [
            Fault::Refuse,
            Fault::Unavailable,
            Fault::RefusePermanently,
            Fault::UnknownAndLost,
            Fault::UnknownAndStored,
        ];
        let count = self.random.random_range(1..6);
        if let Some(fault) = faults.choose(&mut self.random) {
            broker.fail_next(count, *fault);
            self.counts.broker_faults += count as u32;
        }
    }

    fn disturb_connections(&mut self, proxy: &Proxy, request: &str, kind: FaultKind) {
        match kind {
            FaultKind::CutCommits => {
                for _ in 0..self.random.random_range(1..4) {
                    let moment = if self.random.random_bool(0.5) {
                        CutPoint::BeforeForwarding
                    } else {
                        CutPoint::BeforeResponse
                    };
                    proxy.cut_next(Trigger::word(request), moment);
                }
            }
            FaultKind::CutOne => drop(proxy.cut_one(self.random.random_range(0..1_000))),
            FaultKind::CutAll => drop(proxy.cut_all()),
            FaultKind::Delay => {
                proxy.delay(self.between(5, 50));
                self.after(100, 1_000, FollowUp::HealProxies);
            }
            _ => {
                proxy.refuse();
                self.after(100, 1_000, FollowUp::HealProxies);
            }
        }
    }

    fn after(&mut self, shortest_ms: u64, longest_ms: u64, follow_up: FollowUp) {
        let when = Instant::now() + self.between(shortest_ms, longest_ms);
        self.follow_ups.push((when, follow_up));
    }

    fn between(&mut self, shortest_ms: u64, longest_ms: u64) -> Duration {
        Duration::from_millis(self.random.random_range(shortest_ms..longest_ms))
    }
}

/// Waits for a fault of a server that is in progress. A server that does not come back aborts the soak.
async fn finish(running: &mut Option<JoinHandle<Result<()>>>) -> Result<()> {
    match running.take() {
        Some(running) => running
            .await
            .map_err(|error| Error::new(ErrorKind::Internal, "the task of a fault panicked").with_source(error))?,
        None => Ok(()),
    }
}

fn is_relay(role: ProcessRole) -> bool {
    matches!(role, ProcessRole::Relay(_) | ProcessRole::Daemon)
}

fn is_writer(role: ProcessRole) -> bool {
    matches!(role, ProcessRole::Write(_))
}

fn is_consumer(role: ProcessRole) -> bool {
    role == ProcessRole::Consume
}

fn is_operator(role: ProcessRole) -> bool {
    role == ProcessRole::Operate
}

impl std::fmt::Debug for FaultInjector<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FaultInjector")
            .field("counts", &self.counts)
            .field("follow_ups", &self.follow_ups)
            .finish_non_exhaustive()
    }
}
