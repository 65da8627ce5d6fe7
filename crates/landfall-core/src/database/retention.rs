//! The retention solver: how long an id must be remembered so that no duplicate takes effect.
//!
//! ```text
//!   first handled ──▶ retries ──▶ parked: dead-letter retention ──▶ redrive ──▶ redelivery: the last copy arrives
//!   └──────────────────────────── every window must be at least this long ────────────────────────────────┘
//! ```
//!
//! Pure: a plan is built from settings and checked before anything starts.

use std::fmt;

use crate::{Backoff, Error, Result, Span};

/// Retention periods with the names of their settings, so that an error can say what to change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetentionPlan {
    /// Where ids are remembered: the inbox, and a broker that deduplicates.
    pub windows: Vec<Window>,
    /// What retries: the relay and the consumers.
    pub retries: Vec<Retries>,
    /// The longest time that a parked message waits for a person.
    pub dead_letters: Span,
    /// The longest time of a redrive, from the decision to the last effect, plus slack for outages.
    pub redrive: Span,
    /// The longest time after which the broker delivers a handled message again, because its acknowledgement was lost
    /// or the consumer was away.
    pub redelivery: Span,
}

/// The time within which a duplicate is recognised.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Window {
    /// Such as `retention.inbox`.
    pub setting: String,
    pub length: Span,
}

/// A component that retries messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retries {
    /// Such as `the relay's retries`.
    pub whose: String,
    /// Such as `relay.max_attempts, relay.backoff_cap_ms`.
    pub setting: String,
    pub backoff: Backoff,
}

impl RetentionPlan {
    /// Returns the longest time between the first and the last delivery of a message.
    pub fn needed(&self) -> Span {
        let retries = self.retries.iter().map(|retries| Span::Time(retries.backoff.longest()));
        retries.fold(self.dead_letters.plus(self.redrive).plus(self.redelivery), Span::plus)
    }

    /// Returns the windows that are shorter than [`needed`](Self::needed).
    pub fn too_short(&self) -> impl Iterator<Item = &Window> {
        let needed = self.needed();
        self.windows.iter().filter(move |window| window.length < needed)
    }

    /// Refuses (kind `Invalid`) a plan with a window that is too short. The error shows the arithmetic line by line.
    pub fn check(&self) -> Result<()> {
        let names: Vec<&str> = self.too_short().map(|window| window.setting.as_str()).collect();
        if names.is_empty() {
            return Ok(());
        }
        let (are, they) = if names.len() == 1 { ("is", "it") } else { ("are", "they") };
        let names = names.join(" and ");
        Err(Error::invalid(format!(
            "{names} {are} too short: a duplicate could arrive after {they} ended and take effect again\n{self}"
        )))
    }
}

impl fmt::Display for RetentionPlan {
    /// Formats the arithmetic: the summands of the needed time, then every window.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let needed = self.needed();
        let mut lines: Vec<(char, String, Span, String)> = Vec::new();
        for retries in &self.retries {
            let longest = Span::Time(retries.backoff.longest());
            lines.push(('+', retries.whose.clone(), longest, format!("from {}", retries.setting)));
        }
        lines.push(('+', "dead letters wait".into(), self.dead_letters, "retention.dead_letters".into()));
        lines.push(('+', "a redrive takes".into(), self.redrive, "retention.redrive".into()));
        lines.push(('+', "the broker redelivers".into(), self.redelivery, "retention.redelivery".into()));
        lines[0].0 = ' ';
        lines.push(('=', "needed".into(), needed, String::new()));
        for window in &self.windows {
            let verdict = match window.length.short_of(needed) {
                None => "long enough".to_owned(),
                Some(Span::Forever) => "too short: make it forever".to_owned(),
                Some(missing) => format!("too short by {missing}: make it {needed} or longer"),
            };
            lines.push((' ', window.setting.clone(), window.length, verdict));
        }
        let width = |of: fn(&(char, String, Span, String)) -> String| {
            lines.iter().map(|line| of(line).chars().count()).max().unwrap_or_default()
        };
        let (what, time) = (width(|line| line.1.clone()), width(|line| line.2.to_string()));
        for (number, (sign, name, span, note)) in lines.iter().enumerate() {
            let span = span.to_string();
            let line = format!("  {sign} {name:<what$}  {span:>time$}  {note}");
            let end = if number + 1 == lines.len() { "" } else { "\n" };
            write!(f, "{}{end}", line.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::ErrorKind;

    fn retries(whose: &str, backoff: Backoff) -> Retries {
        Retries { whose: whose.into(), setting: format!("{whose}.max_attempts"), backoff }
    }

    fn window(setting: &str, length: Span) -> Window {
        Window { setting: setting.into(), length }
    }

    const RELAY: Backoff =
        Backoff { first: Duration::from_millis(200), cap: Duration::from_secs(30), max_attempts: 10 };

    #[test]
    fn refusal_shows_the_arithmetic_and_a_valid_value() {
        let plan = RetentionPlan {
            windows: vec![window("retention.inbox", Span::days(10)), window("broker.retention", Span::Forever)],
            retries: vec![retries("relay", RELAY)],
            dead_letters: Span::days(30),
            redrive: Span::days(1),
            redelivery: Span::days(7),
        };
        let error = plan.check().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        let expected = "\
retention.inbox is too short: a duplicate could arrive after it ended and take effect again
    relay                      1m 21s  from relay.max_attempts
  + dead letters wait             30d  retention.dead_letters
  + a redrive takes                1d  retention.redrive
  + the broker redelivers          7d  retention.redelivery
  = needed                 38d 1m 21s
    retention.inbox               10d  too short by 28d 1m 21s: make it 38d 1m 21s or longer
    broker.retention          forever  long enough";
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn unlimited_retention_needs_unlimited_windows() {
        let mut plan = RetentionPlan {
            windows: vec![window("retention.inbox", Span::days(100_000))],
            retries: vec![],
            dead_letters: Span::Forever,
            redrive: Span::ZERO,
            redelivery: Span::ZERO,
        };
        assert!(plan.check().unwrap_err().to_string().contains("100000d  too short: make it forever"));
        plan.windows[0].length = Span::Forever;
        plan.check().unwrap();
    }

    fn span() -> impl Strategy<Value = Span> {
        prop_oneof![
            9 => (0..4_000_000_000_u64).prop_map(|millis| Span::Time(Duration::from_millis(millis))),
            1 => Just(Span::Forever),
        ]
    }

    fn backoff() -> impl Strategy<Value = Backoff> {
        (0..100_000_u64, 0..100_000_u64, 0..200_u32).prop_map(|(first, more, max_attempts)| Backoff {
            first: Duration::from_millis(first),
            cap: Duration::from_millis(first + more),
            max_attempts,
        })
    }

    fn plan() -> impl Strategy<Value = RetentionPlan> {
        (prop::collection::vec(span(), 0..4), prop::collection::vec(backoff(), 0..3), span(), span(), span()).prop_map(
            |(windows, backoffs, dead_letters, redrive, redelivery)| RetentionPlan {
                windows: (1..).zip(windows).map(|(n, length)| window(&format!("window.{n}"), length)).collect(),
                retries: (1..).zip(backoffs).map(|(n, backoff)| retries(&format!("step{n}"), backoff)).collect(),
                dead_letters,
                redrive,
                redelivery,
            },
        )
    }

    proptest! {
        #[test]
        fn plan_is_valid_iff_every_window_covers_the_longest_path(plan in plan()) {
            let rest = plan.dead_letters.plus(plan.redrive).plus(plan.redelivery);
            let longest_way = plan.retries.iter().fold(rest, |sum, retries| {
                let tries = (1..retries.backoff.max_attempts).filter_map(|n| retries.backoff.delay_after(n, 1.0));
                sum.plus(Span::Time(tries.sum()))
            });
            prop_assert_eq!(plan.needed(), longest_way);
            let is_covered = plan.windows.iter().all(|window| window.length >= longest_way);
            prop_assert_eq!(plan.check().is_ok(), is_covered);
        }

        #[test]
        fn suggested_value_is_the_shortest_valid_one(mut plan in plan()) {
            let needed = plan.needed();
            let named: Span = needed.to_string().parse().unwrap();
            for window in &mut plan.windows {
                window.length = window.length.max(named);
            }
            plan.check().unwrap();
            if let (Span::Time(time), [first, ..]) = (needed, &mut plan.windows[..]) {
                let Some(shorter) = time.checked_sub(Duration::from_nanos(1)) else { return Ok(()) };
                first.length = Span::Time(shorter);
                let error = plan.check().unwrap_err().to_string();
                prop_assert!(error.starts_with("window.1 is too short"), "{}", error);
            }
        }

        #[test]
        fn arithmetic_names_every_setting(plan in plan()) {
            let shown = plan.to_string();
            let settings = plan.windows.iter().map(|window| &window.setting);
            for setting in settings.chain(plan.retries.iter().map(|retries| &retries.setting)) {
                prop_assert!(shown.contains(setting.as_str()), "{} is missing in\n{}", setting, shown);
            }
            prop_assert_eq!(shown.lines().count(), plan.windows.len() + plan.retries.len() + 4);
        }
    }
}
