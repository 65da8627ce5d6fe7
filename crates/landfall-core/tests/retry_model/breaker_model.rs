//! The model of a breaker: a list of all calls, evaluated from the beginning every time.

use landfall_core::{BreakerOptions, BreakerState};

pub(crate) struct Model {
    options: BreakerOptions,
    state: State,
    openings: u32,
    /// The number of the state; results of calls from an earlier state are ignored.
    age: u32,
}

enum State {
    /// When each call ended (milliseconds), and whether it failed.
    Closed(Vec<(u64, bool)>),
    Open {
        until: f64,
    },
    /// The probes in flight with their expiry, when the last one began, and how many succeeded.
    HalfOpen {
        probes: Vec<(usize, u64)>,
        last: Option<u64>,
        succeeded: u32,
    },
}

impl Model {
    pub(crate) fn new(options: BreakerOptions) -> Self {
        Self { options, state: State::Closed(Vec::new()), openings: 0, age: 0 }
    }

    pub(crate) fn state(&self) -> BreakerState {
        match self.state {
            State::Closed(_) => BreakerState::Closed,
            State::Open { .. } => BreakerState::Open,
            State::HalfOpen { .. } => BreakerState::HalfOpen,
        }
    }

    pub(crate) fn pass(&mut self, now: u64) {
        match &mut self.state {
            State::Open { until } if now as f64 >= *until => {
                self.become_(State::HalfOpen { probes: Vec::new(), last: None, succeeded: 0 });
            }
            State::HalfOpen { probes, .. } => probes.retain(|(_, given_up)| *given_up > now),
            _ => {}
        }
    }

    /// Returns the age to report with, if the call is admitted.
    pub(crate) fn admit(&mut self, call: usize, now: u64) -> Option<u32> {
        match &mut self.state {
            State::Closed(_) => Some(self.age),
            State::Open { .. } => None,
            State::HalfOpen { probes, last, .. } => {
                let interval = self.options.probe_interval.as_millis() as u64;
                let room = probes.len() < self.options.probes as usize;
                let in_time = last.is_none_or(|last| now >= last + interval);
                (room && in_time).then(|| *last = Some(now))?;
                room.then(|| probes.push((call, now + self.options.probe_timeout.as_millis() as u64)))?;
                Some(self.age)
            }
        }
    }

    pub(crate) fn report(&mut self, call: usize, age: u32, failed: bool, now: u64, random: f64) {
        if age != self.age {
            return;
        }
        match &mut self.state {
            State::Closed(calls) => {
                calls.push((now, failed));
                let bucket = self.options.window.as_millis() as u64 / 10;
                let recent: Vec<_> = calls.iter().filter(|(time, _)| time / bucket + 10 > now / bucket).collect();
                let failures = recent.iter().filter(|(_, failed)| *failed).count();
                let enough = recent.len() >= self.options.minimum_calls as usize;
                if failed && enough && failures as f64 / recent.len() as f64 >= self.options.failure_rate {
                    self.open(now, random);
                }
            }
            State::HalfOpen { probes, succeeded, .. } => {
                let Some(place) = probes.iter().position(|(probe, _)| *probe == call) else { return };
                probes.remove(place);
                if failed {
                    self.open(now, random);
                } else {
                    *succeeded += 1;
                    if *succeeded == self.options.successes_to_close {
                        self.become_(State::Closed(Vec::new()));
                        self.openings = 0;
                    }
                }
            }
            State::Open { .. } => {}
        }
    }

    fn open(&mut self, now: u64, random: f64) {
        let full = self.options.open_first.as_millis() as f64 * f64::from(self.openings).exp2();
        let full = full.min(self.options.open_cap.as_millis() as f64);
        self.openings += 1;
        self.become_(State::Open { until: now as f64 + full * (0.5 + 0.5 * random) });
    }

    fn become_(&mut self, state: State) {
        self.state = state;
        self.age += 1;
    }
}
