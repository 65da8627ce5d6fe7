//! Kills, pauses, restarts and cuts at random, from a seed.

use std::time::{Duration, Instant};

use landfall::{Error, ErrorKind, Result};
use landfall_testkit::proxy::{CutPoint, Proxy, Trigger};
use landfall_testkit::{Fault, MemoryBroker};
use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use serde::Serialize;
use tokio::task::JoinHandle;

use super::environment::{Environment, StopMode};
use super::process_config::ProcessRole;
use super::processes::Processes;

/// The faults that were injected.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct FaultCounts {
    /// Processes that got SIGKILL, and the relays among them.
    pub kills: u32,
    pub relay_kills: u32,
    /// Processes that got SIGSTOP, and the relays among them that were paused for longer than their lease.
    pub pauses: u32,
    pub lease_pauses: u32,
    /// Restarts of the database server.
    pub restarts: u32,
    /// Messages that the broker refused, or accepted without a response.
    pub broker_faults: u32,
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
            Focus::Broker => matches!(kind, FaultKind::FailBroker),
            Focus::Commits => matches!(kind, FaultKind::CutCommits),
        }
    }
}

pub struct FaultInjector<'a> {
    pub random: StdRng,
    pub focus: Focus,
    pub environment: &'a Environment,
    pub broker: MemoryBroker,
    pub lease: Duration,
    pub counts: FaultCounts,
    injected: u32,
    follow_ups: Vec<(Instant, FollowUp)>,
    next: Instant,
    /// A restart of the server that is in progress.
    restarting: Option<JoinHandle<Result<()>>>,
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
    CutCommits,
    CutOne,
    CutAll,
    Delay,
    Refuse,
    SkipIds,
    FailBroker,
}

impl FaultKind {
    fn needs_server(self) -> bool {
        !matches!(self, FaultKind::Kill(_) | FaultKind::Pause(_) | FaultKind::FailBroker)
    }
}

/// The faults with their weights.
const FAULTS: [(FaultKind, u32); 15] = [
    (FaultKind::Kill(is_relay), 20),
    (FaultKind::Pause(is_relay), 20),
    (FaultKind::Kill(is_writer), 8),
    (FaultKind::Pause(is_writer), 6),
    (FaultKind::Kill(is_consumer), 8),
    (FaultKind::Pause(is_consumer), 4),
    (FaultKind::Kill(is_operator), 2),
    (FaultKind::FailBroker, 10),
    (FaultKind::RestartServer, 5),
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
        broker: MemoryBroker,
        lease: Duration,
    ) -> Self {
        let (follow_ups, next) = (Vec::new(), Instant::now());
        Self {
            random,
            focus,
            environment,
            broker,
            lease,
            counts: FaultCounts::default(),
            injected: 0,
            follow_ups,
            next,
            restarting: None,
        }
    }

    /// Executes due follow-ups, and injects the next fault if it is time.
    pub async fn tick(&mut self, processes: &mut Processes) -> Result<()> {
        if self.restarting.as_ref().is_some_and(JoinHandle::is_finished) {
            self.finish_restart().await?;
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
            self.next = Instant::now() + self.between(50, 600);
        }
        Ok(())
    }

    /// Ends all faults: all processes are running, and all servers respond.
    pub async fn heal(&mut self, processes: &mut Processes) -> Result<()> {
        self.environment.proxies.iter().for_each(Proxy::heal);
        self.broker.heal();
        self.finish_restart().await?;
        for (_, follow_up) in std::mem::take(&mut self.follow_ups) {
            self.execute(processes, follow_up).await?;
        }
        Ok(())
    }

    async fn execute(&mut self, processes: &mut Processes, follow_up: FollowUp) -> Result<()> {
        match follow_up {
            FollowUp::Resume(number) => processes.resume(number),
            FollowUp::Start(number) => processes.start(number)?,
            FollowUp::HealProxies => self.environment.proxies.iter().for_each(Proxy::heal),
        }
        Ok(())
    }

    async fn inject(&mut self, processes: &mut Processes) -> Result<()> {
        let (focus, has_server) = (self.focus, self.environment.has_server());
        let weight =
            |(kind, weight): &(FaultKind, u32)| match focus.allows(*kind) && (has_server || !kind.needs_server()) {
                true => *weight,
                false => 0,
            };
        self.injected += 1;
        // A restart is rare, but every run has at least one.
        let is_overdue = focus == Focus::Everything && has_server && self.counts.restarts == 0 && self.injected > 60;
        let kind = match FAULTS.choose_weighted(&mut self.random, weight) {
            Ok(_) if is_overdue => FaultKind::RestartServer,
            Ok((kind, _)) => *kind,
            Err(_) => return Ok(()),
        };
        match kind {
            FaultKind::Kill(like) => self.kill(processes, like).await,
            FaultKind::Pause(like) => self.pause(processes, like).await,
            FaultKind::RestartServer => self.restart_server(),
            FaultKind::FailBroker => self.fail_broker(),
            FaultKind::SkipIds => {
                let count = self.random.random_range(1_000..70_000);
                self.counts.ids_skipped += self.environment.skip_ids(count).await;
            }
            kind => {
                if let Some(proxy) = self.environment.proxies.choose(&mut self.random) {
                    self.disturb_connections(proxy, kind);
                }
            }
        }
        Ok(())
    }

    async fn kill(&mut self, processes: &mut Processes, like: fn(ProcessRole) -> bool) {
        let Some(number) = processes.running(like).choose(&mut self.random).copied() else { return };
        self.counts.kills += 1;
        self.counts.relay_kills += u32::from(processes.running(is_relay).contains(&number));
        processes.kill(number).await;
        self.after(0, 800, FollowUp::Start(number));
    }

    /// Mostly for longer than a lease: a relay that resumes then has lost its leases and does not know it.
    async fn pause(&mut self, processes: &mut Processes, like: fn(ProcessRole) -> bool) {
        let Some(number) = processes.running(like).choose(&mut self.random).copied() else { return };
        let is_long = self.random.random_bool(0.7);
        let length =
            if is_long { self.lease.mul_f64(self.random.random_range(1.2..2.5)) } else { self.between(10, 300) };
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

    /// Waits for a restart in progress. A server that does not come back aborts the soak.
    async fn finish_restart(&mut self) -> Result<()> {
        match self.restarting.take() {
            Some(restart) => restart
                .await
                .map_err(|error| Error::new(ErrorKind::Internal, "the restart task panicked").with_source(error))?,
            None => Ok(()),
        }
    }

    fn fail_broker(&mut self) {
        let faults = [
            Fault::Refuse,
            Fault::Unavailable,
            Fault::RefusePermanently,
            Fault::UnknownAndLost,
            Fault::UnknownAndStored,
        ];
        let count = self.random.random_range(1..6);
        if let Some(fault) = faults.choose(&mut self.random) {
            self.broker.fail_next(count, *fault);
            self.counts.broker_faults += count as u32;
        }
    }

    fn disturb_connections(&mut self, proxy: &Proxy, kind: FaultKind) {
        match kind {
            FaultKind::CutCommits => {
                for _ in 0..self.random.random_range(1..4) {
                    let moment = if self.random.random_bool(0.5) {
                        CutPoint::BeforeForwarding
                    } else {
                        CutPoint::BeforeResponse
                    };
                    proxy.cut_next(Trigger::word("COMMIT"), moment);
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

fn is_relay(role: ProcessRole) -> bool {
    matches!(role, ProcessRole::Relay(_))
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
