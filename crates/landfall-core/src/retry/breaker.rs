use std::time::{Duration, Instant};

use super::window::{BUCKETS, SlidingWindow};
use crate::Backoff;

/// A circuit breaker: stops calls to a failing dependency and probes it until it recovers.
///
/// ```text
///            failure rate exceeded                        open time over
///   Closed ─────────────────────────────────▶ Open ─────────────────▶ HalfOpen
///      ▲                                        ▲    a probe failed      │
///      │                                        └────────────────────────┤
///      └─────────────────────────────────────────────────────────────────┘  enough probes succeeded
/// ```
///
/// Pure: the caller supplies time and random numbers. Every call is [admitted](Self::admit) first and reported with its
/// ticket afterwards.
#[derive(Debug, Clone)]
pub struct Breaker {
    options: BreakerOptions,
    phase: Phase,
    /// Grows with each change of phase, so that the result of a call from an earlier phase is ignored.
    generation: u64,
    /// How often it opened since it was last closed; each time it stays open for longer.
    openings: u32,
    /// Calls and failed calls while closed.
    calls: SlidingWindow<2>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BreakerOptions {
    /// The time over which calls and failures are counted.
    pub window: Duration,
    /// The breaker stays closed below this number of calls within the window.
    pub minimum_calls: u32,
    /// The breaker opens at this share of failed calls, in `0.0..=1.0`. A value above 1 never opens it.
    pub failure_rate: f64,
    /// How long it stays open: the first time, and at most after repeated openings.
    pub open_first: Duration,
    pub open_cap: Duration,
    /// Concurrent calls while half-open.
    pub probes: u32,
    /// The least time between the beginnings of two probes, so that a recovering dependency is not flooded by fast
    /// ones; one second is one probe per second. Zero does not limit their rate.
    pub probe_interval: Duration,
    /// Consecutive successful probes that close it.
    pub successes_to_close: u32,
    /// A probe that has not reported by then loses its place to another.
    pub probe_timeout: Duration,
}

impl Default for BreakerOptions {
    fn default() -> Self {
        Self {
            window: Duration::from_secs(10),
            minimum_calls: 20,
            failure_rate: 0.5,
            open_first: Duration::from_secs(1),
            open_cap: Duration::from_secs(30),
            probes: 1,
            probe_interval: Duration::from_millis(100),
            successes_to_close: 2,
            probe_timeout: Duration::from_secs(60),
        }
    }
}

/// The state of a breaker, for metrics and people.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BreakerState {
    Closed,
    HalfOpen,
    Open,
}

/// Permission for one call; returned with its result.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub struct Ticket {
    generation: u64,
    probe: Option<u64>,
}

/// The call must not be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rejected {
    /// When to ask again; `None` while every probe that is allowed is in flight.
    pub retry_after: Option<Duration>,
}

#[derive(Debug, Clone)]
enum Phase {
    Closed,
    Open { until: Instant },
    HalfOpen(HalfOpen),
}

#[derive(Debug, Clone, Default)]
struct HalfOpen {
    probes: Vec<Probe>,
    begun: u64,
    succeeded: u32,
    /// When the next probe may begin.
    next_probe: Option<Instant>,
}

#[derive(Debug, Clone)]
struct Probe {
    number: u64,
    expires: Instant,
}

impl Breaker {
    pub fn new(options: BreakerOptions) -> Self {
        let calls = SlidingWindow::new(options.window, BUCKETS);
        Self { options, phase: Phase::Closed, generation: 0, openings: 0, calls }
    }

    /// Admits a call, or rejects it while the breaker is open or all probes are in flight.
    pub fn admit(&mut self, now: Instant) -> Result<Ticket, Rejected> {
        self.pass_time(now);
        let generation = self.generation;
        match &mut self.phase {
            Phase::Closed => Ok(Ticket { generation, probe: None }),
            Phase::Open { until } => Err(Rejected { retry_after: Some(until.saturating_duration_since(now)) }),
            Phase::HalfOpen(half) => {
                let probe = Some(half.begin_probe(&self.options, now)?);
                Ok(Ticket { generation, probe })
            }
        }
    }

    /// Reports a call that succeeded, or failed through no fault of the dependency.
    pub fn succeeded(&mut self, ticket: Ticket, now: Instant) {
        self.pass_time(now);
        if !self.takes_back(&ticket) {
            return;
        }
        match &mut self.phase {
            Phase::Closed => {
                self.calls.add(now, [1, 0]);
            }
            Phase::HalfOpen(half) => {
                half.succeeded += 1;
                if half.succeeded >= self.options.successes_to_close {
                    self.enter(Phase::Closed);
                    self.openings = 0;
                    self.calls.clear();
                }
            }
            Phase::Open { .. } => {}
        }
    }

    /// Reports a call that failed or timed out. `random` in `0.0..1.0` spreads the open time.
    pub fn failed(&mut self, ticket: Ticket, now: Instant, random: f64) {
        self.pass_time(now);
        if !self.takes_back(&ticket) {
            return;
        }
        match self.phase {
            Phase::Closed => {
                let [calls, failures] = self.calls.add(now, [1, 1]);
                let enough = calls >= u64::from(self.options.minimum_calls.max(1));
                if enough && failures as f64 >= self.options.failure_rate * calls as f64 {
                    self.open(now, random);
                }
            }
            Phase::HalfOpen(_) => self.open(now, random),
            Phase::Open { .. } => {}
        }
    }

    /// Reports a call without a result: it was cancelled, or never made. Its place becomes free.
    pub fn abandoned(&mut self, ticket: Ticket) {
        self.takes_back(&ticket);
    }

    pub fn state(&mut self, now: Instant) -> BreakerState {
        self.pass_time(now);
        match self.phase {
            Phase::Closed => BreakerState::Closed,
            Phase::Open { .. } => BreakerState::Open,
            Phase::HalfOpen(_) => BreakerState::HalfOpen,
        }
    }

    /// Applies what time alone changes: an open breaker becomes half-open, and overdue probes expire.
    fn pass_time(&mut self, now: Instant) {
        self.calls.count(now);
        match &mut self.phase {
            Phase::Open { until } if now >= *until => {
                self.enter(Phase::HalfOpen(HalfOpen::default()));
            }
            Phase::HalfOpen(half) => half.probes.retain(|probe| probe.expires > now),
            _ => {}
        }
    }

    /// Frees the place of the ticket. Returns whether its result belongs to the current phase.
    fn takes_back(&mut self, ticket: &Ticket) -> bool {
        if ticket.generation != self.generation {
            return false;
        }
        let Phase::HalfOpen(HalfOpen { probes, .. }) = &mut self.phase else { return true };
        let before = probes.len();
        probes.retain(|probe| Some(probe.number) != ticket.probe);
        probes.len() < before
    }

    fn open(&mut self, now: Instant, random: f64) {
        self.openings = self.openings.saturating_add(1);
        let Self { options: BreakerOptions { open_first: first, open_cap: cap, .. }, openings, .. } = *self;
        let open = Backoff { first, cap, max_attempts: u32::MAX }.delay_after(openings, random).unwrap_or(cap);
        self.enter(Phase::Open { until: later(now, open) });
    }

    fn enter(&mut self, phase: Phase) {
        self.phase = phase;
        self.generation += 1;
    }
}

impl HalfOpen {
    /// Begins a probe and returns its number, or rejects it: too many are in flight, or the last began too recently.
    fn begin_probe(&mut self, options: &BreakerOptions, now: Instant) -> Result<u64, Rejected> {
        if self.probes.len() >= options.probes.max(1) as usize {
            return Err(Rejected { retry_after: None });
        }
        if let Some(next) = self.next_probe.filter(|next| *next > now) {
            return Err(Rejected { retry_after: Some(next - now) });
        }
        self.begun += 1;
        self.next_probe = Some(later(now, options.probe_interval));
        self.probes.push(Probe { number: self.begun, expires: later(now, options.probe_timeout) });
        Ok(self.begun)
    }
}

/// Saturates at one year from now.
fn later(now: Instant, time: Duration) -> Instant {
    now.checked_add(time).unwrap_or(now + Duration::from_secs(365 * 86_400))
}
