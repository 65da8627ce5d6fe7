//! Whoever kills, pauses, restarts and cuts, at random and from a seed.

use std::time::{Duration, Instant};

use landfall::{Error, ErrorKind, Result};
use landfall_testkit::proxy::{Moment, Proxy, Trigger};
use landfall_testkit::{Fault, MemoryBroker};
use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use serde::Serialize;
use tokio::task::JoinHandle;

use super::actor::Cast;
use super::ground::{Ground, Stop};
use super::part::Play;

/// What was done to everybody.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Blows {
    /// Processes that got SIGKILL, and of these, relays.
    pub kills: u32,
    pub relay_kills: u32,
    /// Processes that got SIGSTOP, and of these, relays that stood still for longer than their lease.
    pub pauses: u32,
    pub lease_pauses: u32,
    /// Times the database server went down and up again.
    pub restarts: u32,
    /// Messages that the broker refused, or took and gave no answer.
    pub broker_faults: u32,
    /// Ids of the outbox that were used up, so that its parts are filled and emptied (PostgreSQL).
    pub ids_skipped: i64,
}

/// What kind of trouble there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Focus {
    #[default]
    Everything,
    /// Relays are killed and paused, and nothing else happens.
    Relays,
    /// The broker fails, and nothing else does.
    Broker,
    /// Connections are cut under a commit, and nothing else happens.
    Commits,
}

impl Focus {
    fn allows(self, blow: Blow) -> bool {
        match self {
            Focus::Everything => true,
            Focus::Relays => matches!(blow, Blow::Kill(like) | Blow::Pause(like) if like(Play::Relay(0))),
            Focus::Broker => matches!(blow, Blow::FailBroker),
            Focus::Commits => matches!(blow, Blow::CutCommits),
        }
    }
}

pub struct Trouble<'a> {
    pub random: StdRng,
    pub focus: Focus,
    pub ground: &'a Ground,
    pub broker: MemoryBroker,
    pub lease: Duration,
    pub blows: Blows,
    strikes: u32,
    later: Vec<(Instant, Later)>,
    next: Instant,
    /// The server is on its way down and up again.
    restarting: Option<JoinHandle<Result<()>>>,
}

/// What ends a fault, or follows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Later {
    Resume(usize),
    Start(usize),
    HealProxies,
}

#[derive(Debug, Clone, Copy)]
enum Blow {
    Kill(fn(Play) -> bool),
    Pause(fn(Play) -> bool),
    RestartServer,
    CutCommits,
    CutOne,
    CutAll,
    Delay,
    Refuse,
    SkipIds,
    FailBroker,
}

impl Blow {
    fn needs_server(self) -> bool {
        !matches!(self, Blow::Kill(_) | Blow::Pause(_) | Blow::FailBroker)
    }
}

/// Each with its weight.
const BLOWS: [(Blow, u32); 15] = [
    (Blow::Kill(is_relay), 20),
    (Blow::Pause(is_relay), 20),
    (Blow::Kill(is_writer), 8),
    (Blow::Pause(is_writer), 6),
    (Blow::Kill(is_consumer), 8),
    (Blow::Pause(is_consumer), 4),
    (Blow::Kill(is_operator), 2),
    (Blow::FailBroker, 10),
    (Blow::RestartServer, 5),
    (Blow::CutCommits, 20),
    (Blow::CutOne, 10),
    (Blow::CutAll, 4),
    (Blow::Delay, 3),
    (Blow::Refuse, 3),
    (Blow::SkipIds, 8),
];

impl<'a> Trouble<'a> {
    pub fn new(random: StdRng, focus: Focus, ground: &'a Ground, broker: MemoryBroker, lease: Duration) -> Self {
        let (later, next) = (Vec::new(), Instant::now());
        Self {
            random,
            focus,
            ground,
            broker,
            lease,
            blows: Blows::default(),
            strikes: 0,
            later,
            next,
            restarting: None,
        }
    }

    /// Does what is due, and strikes if it is time to.
    pub async fn go_on(&mut self, cast: &mut Cast) -> Result<()> {
        if self.restarting.as_ref().is_some_and(JoinHandle::is_finished) {
            self.server_is_back().await?;
        }
        let now = Instant::now();
        let (due, later) = self.later.iter().partition(|(when, _)| *when <= now);
        self.later = later;
        let due: Vec<(Instant, Later)> = due;
        for (_, later) in due {
            self.follow_up(cast, later).await?;
        }
        if now >= self.next {
            self.strike(cast).await?;
            self.next = Instant::now() + self.between(50, 600);
        }
        Ok(())
    }

    /// Ends every fault: everybody is alive and awake, and everything answers.
    pub async fn heal(&mut self, cast: &mut Cast) -> Result<()> {
        self.ground.proxies.iter().for_each(Proxy::heal);
        self.broker.heal();
        self.server_is_back().await?;
        for (_, later) in std::mem::take(&mut self.later) {
            self.follow_up(cast, later).await?;
        }
        Ok(())
    }

    async fn follow_up(&mut self, cast: &mut Cast, later: Later) -> Result<()> {
        match later {
            Later::Resume(number) => cast.resume(number),
            Later::Start(number) => cast.start(number)?,
            Later::HealProxies => self.ground.proxies.iter().for_each(Proxy::heal),
        }
        Ok(())
    }

    async fn strike(&mut self, cast: &mut Cast) -> Result<()> {
        let (focus, has_server) = (self.focus, self.ground.has_server());
        let weight = |(blow, weight): &(Blow, u32)| match focus.allows(*blow) && (has_server || !blow.needs_server()) {
            true => *weight,
            false => 0,
        };
        self.strikes += 1;
        // It is rare, and no run is without it.
        let is_overdue = focus == Focus::Everything && has_server && self.blows.restarts == 0 && self.strikes > 60;
        let blow = match BLOWS.choose_weighted(&mut self.random, weight) {
            Ok(_) if is_overdue => Blow::RestartServer,
            Ok((blow, _)) => *blow,
            Err(_) => return Ok(()),
        };
        match blow {
            Blow::Kill(like) => self.kill(cast, like).await,
            Blow::Pause(like) => self.pause(cast, like).await,
            Blow::RestartServer => self.restart_server(),
            Blow::FailBroker => self.fail_broker(),
            Blow::SkipIds => {
                let count = self.random.random_range(1_000..70_000);
                self.blows.ids_skipped += self.ground.skip_ids(count).await;
            }
            blow => {
                if let Some(proxy) = self.ground.proxies.choose(&mut self.random) {
                    self.trouble_connections(proxy, blow);
                }
            }
        }
        Ok(())
    }

    async fn kill(&mut self, cast: &mut Cast, like: fn(Play) -> bool) {
        let Some(number) = cast.running(like).choose(&mut self.random).copied() else { return };
        self.blows.kills += 1;
        self.blows.relay_kills += u32::from(cast.running(is_relay).contains(&number));
        cast.kill(number).await;
        self.then(0, 800, Later::Start(number));
    }

    /// Mostly for longer than a lease: whoever wakes up then has lost everything and does not know it.
    async fn pause(&mut self, cast: &mut Cast, like: fn(Play) -> bool) {
        let Some(number) = cast.running(like).choose(&mut self.random).copied() else { return };
        let is_long = self.random.random_bool(0.7);
        let length =
            if is_long { self.lease.mul_f64(self.random.random_range(1.2..2.5)) } else { self.between(10, 300) };
        self.blows.pauses += 1;
        self.blows.lease_pauses += u32::from(is_long && cast.running(is_relay).contains(&number));
        cast.pause(number).await;
        self.later.push((Instant::now() + length, Later::Resume(number)));
    }

    fn restart_server(&mut self) {
        let Some(how) = Stop::ALL.choose(&mut self.random).copied() else { return };
        let pause = self.between(0, 600);
        if self.restarting.is_none() {
            self.blows.restarts += 1;
            self.restarting = Some(self.ground.restart(how, pause));
        }
    }

    /// A server that does not come back ends the soak.
    async fn server_is_back(&mut self) -> Result<()> {
        match self.restarting.take() {
            Some(restart) => restart
                .await
                .map_err(|error| Error::new(ErrorKind::Internal, "the restart panicked").with_source(error))?,
            None => Ok(()),
        }
    }

    fn fail_broker(&mut self) {
        let faults =
            [Fault::Refuse, Fault::Unavailable, Fault::RefuseForGood, Fault::UnknownAndLost, Fault::UnknownAndStored];
        let count = self.random.random_range(1..6);
        if let Some(fault) = faults.choose(&mut self.random) {
            self.broker.fail_next(count, *fault);
            self.blows.broker_faults += count as u32;
        }
    }

    fn trouble_connections(&mut self, proxy: &Proxy, blow: Blow) {
        match blow {
            Blow::CutCommits => {
                for _ in 0..self.random.random_range(1..4) {
                    let moment =
                        if self.random.random_bool(0.5) { Moment::BeforeForwarding } else { Moment::BeforeTheAnswer };
                    proxy.cut_next(Trigger::word("COMMIT"), moment);
                }
            }
            Blow::CutOne => drop(proxy.cut_one(self.random.random_range(0..1_000))),
            Blow::CutAll => drop(proxy.cut_all()),
            Blow::Delay => {
                proxy.delay(self.between(5, 50));
                self.then(100, 1_000, Later::HealProxies);
            }
            _ => {
                proxy.refuse();
                self.then(100, 1_000, Later::HealProxies);
            }
        }
    }

    fn then(&mut self, shortest_ms: u64, longest_ms: u64, later: Later) {
        let when = Instant::now() + self.between(shortest_ms, longest_ms);
        self.later.push((when, later));
    }

    fn between(&mut self, shortest_ms: u64, longest_ms: u64) -> Duration {
        Duration::from_millis(self.random.random_range(shortest_ms..longest_ms))
    }
}

fn is_relay(play: Play) -> bool {
    matches!(play, Play::Relay(_))
}

fn is_writer(play: Play) -> bool {
    matches!(play, Play::Write(_))
}

fn is_consumer(play: Play) -> bool {
    play == Play::Consume
}

fn is_operator(play: Play) -> bool {
    play == Play::Operate
}

impl std::fmt::Debug for Trouble<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Trouble").field("blows", &self.blows).field("later", &self.later).finish_non_exhaustive()
    }
}
