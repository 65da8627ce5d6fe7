//! Decides what becomes of each alert.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use super::condition::{AlertCondition, alert_conditions};
use super::notice::NoticeKind;
use super::observation::AlertObservations;
use super::rule::{AlertKind, AlertRule};
use super::{AlertChange, AlertId, AlertState};
use crate::{Alert, Timestamp};

/// How often the value of an alert is stored while nothing else changes.
const REFRESH: Duration = Duration::from_secs(60);

/// How often an alert about an error that is known is stored, so that housekeeping keeps it while letters have it.
pub const ALERT_MEMORY: Duration = Duration::from_secs(12 * 3600);

/// A time that is further in the future was stored under a wrong clock.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(60);

/// The conditions of every rule that is known: what [`evaluate_alerts`] compares with the stored alerts.
#[derive(Debug, Clone, Default)]
pub struct AlertConditions(BTreeMap<String, Vec<AlertCondition>>);

impl AlertConditions {
    pub fn new(rules: &[AlertRule], seen: &AlertObservations, now: Timestamp) -> Self {
        let known = rules.iter().filter_map(|rule| Some((rule.name.clone(), alert_conditions(rule, seen, now)?)));
        Self(known.collect())
    }

    /// Returns the ids of the alerts whose condition holds.
    pub fn ids(&self) -> Vec<AlertId> {
        self.0.values().flatten().map(|condition| condition.id).collect()
    }
}

/// Returns the changes of alerts that follow from `conditions`. `stored` must contain every open alert, every row of a
/// rule, and every alert of [`AlertConditions::ids`] that exists.
pub fn evaluate_alerts(
    rules: &[AlertRule],
    conditions: &AlertConditions,
    stored: &[Alert],
    now: Timestamp,
) -> Vec<AlertChange> {
    let by_id: HashMap<AlertId, &Alert> = stored.iter().map(|alert| (alert.id, alert)).collect();
    let mut changes = Vec::new();
    for rule in rules {
        let Some(held) = conditions.0.get(&rule.name) else { continue };
        let row = by_id.get(&Alert::id_of_rule(&rule.name)).copied();
        let judge =
            Judge { rule, is_first: is_first(rule, row), muted_until: row.and_then(|row| row.muted_until), now };
        changes.extend(held.iter().filter_map(|one| judge.hold(by_id.get(&one.id).copied(), one)));
        let ended = stored.iter().filter(|alert| alert.rule == rule.name && held.iter().all(|one| one.id != alert.id));
        changes.extend(ended.filter_map(|alert| judge.clear(alert)));
        changes.extend(judge.begin(row));
    }
    // A rule that is no longer configured has no channels to tell.
    let orphans = stored.iter().filter(|alert| rules.iter().all(|rule| rule.name != alert.rule));
    changes.extend(orphans.filter_map(|alert| resolved(alert, now)));
    changes
}

/// Whether a rule that looks for new errors has never run. What it finds then is not new.
fn is_first(rule: &AlertRule, row: Option<&Alert>) -> bool {
    rule.kind == AlertKind::NewGroup && row.is_none_or(|row| row.value == 0)
}

struct Judge<'a> {
    rule: &'a AlertRule,
    is_first: bool,
    /// Of the whole rule.
    muted_until: Option<Timestamp>,
    now: Timestamp,
}

impl Judge<'_> {
    /// The condition holds.
    fn hold(&self, stored: Option<&Alert>, condition: &AlertCondition) -> Option<AlertChange> {
        let (rule, now) = (self.rule, self.now);
        let mut alert = stored.cloned().unwrap_or_else(|| Alert::of_rule(&rule.name, now));
        alert.id = condition.id;
        alert.labels.clone_from(&condition.labels);
        alert.summary.clone_from(&condition.summary);
        (alert.value, alert.threshold, alert.sample) = (condition.value, rule.threshold, condition.sample);
        if rule.kind == AlertKind::NewGroup {
            match stored {
                Some(known) if known.state == AlertState::Resolved => {
                    return (known.updated_at.elapsed_since(now) >= ALERT_MEMORY)
                        .then(|| changed(alert, Vec::new(), now));
                }
                None if self.is_first => {
                    (alert.state, alert.resolved_at) = (AlertState::Resolved, Some(now));
                    return Some(changed(alert, Vec::new(), now));
                }
                _ => {}
            }
        }
        if !matches!(alert.state, AlertState::Pending | AlertState::Firing) {
            (alert.state, alert.pending_since) = (AlertState::Pending, Some(now));
            (alert.firing_since, alert.resolved_at) = (None, None);
        }
        let pending_for = alert.pending_since.map_or(Duration::ZERO, |since| elapsed(since, now));
        if alert.state == AlertState::Pending && pending_for >= rule.hold_for {
            (alert.state, alert.firing_since) = (AlertState::Firing, Some(now));
        }
        let mut notices = Vec::new();
        if self.is_due(&alert) {
            notices = self.notices(NoticeKind::Firing);
            alert.notified_at = Some(now);
            (alert.notified_value, alert.notified_sample) = (alert.value, alert.sample);
        }
        let is_changed = stored.is_none_or(|known| {
            let is_stale = known.updated_at.elapsed_since(now) >= REFRESH;
            known.state != alert.state || (is_stale && known != &alert)
        });
        (is_changed || !notices.is_empty()).then(|| changed(alert, notices, now))
    }

    /// Whether a notice that it fires is due.
    fn is_due(&self, alert: &Alert) -> bool {
        let is_muted = [self.muted_until, alert.muted_until].into_iter().flatten().any(|until| until > self.now);
        let (AlertState::Firing, false, false) = (alert.state, is_muted, self.rule.channels.is_empty()) else {
            return false;
        };
        let Some(notified_at) = alert.notified_at else { return true };
        let elapsed = elapsed(notified_at, self.now);
        if !was_notified(alert) {
            return elapsed >= self.rule.quiet;
        }
        // Each further letter counts as recorded. The newest may be fewer than before, if others were redriven.
        let has_grown = alert.value > alert.notified_value || alert.sample > alert.notified_sample;
        let is_news = self.rule.kind == AlertKind::DeadLetter && has_grown;
        self.rule.repeat.is_some_and(|repeat| elapsed >= repeat) || (is_news && elapsed >= self.rule.quiet)
    }

    /// The condition does not hold.
    fn clear(&self, alert: &Alert) -> Option<AlertChange> {
        let mut change = resolved(alert, self.now)?;
        // A mute does not hide that what was notified is over.
        if alert.state == AlertState::Firing && was_notified(alert) {
            change.notices = self.notices(NoticeKind::Resolved);
        }
        Some(change)
    }

    /// Remembers that a rule that looks for new errors has run.
    fn begin(&self, row: Option<&Alert>) -> Option<AlertChange> {
        let mut row = row.cloned().unwrap_or_else(|| Alert::of_rule(&self.rule.name, self.now));
        row.value = 1;
        self.is_first.then(|| changed(row, Vec::new(), self.now))
    }

    fn notices(&self, kind: NoticeKind) -> Vec<(String, NoticeKind)> {
        self.rule.channels.iter().map(|channel| (channel.clone(), kind)).collect()
    }
}

/// Returns the time since `at`. A time of a wrong clock is long ago: it may delay no notice.
fn elapsed(at: Timestamp, now: Timestamp) -> Duration {
    let is_wrong = at.as_millis() > now.as_millis() + CLOCK_TOLERANCE.as_millis() as i64;
    if is_wrong { Duration::MAX } else { at.elapsed_since(now) }
}

/// Whether a notice was made since the alert began to fire.
fn was_notified(alert: &Alert) -> bool {
    alert.notified_at.zip(alert.firing_since).is_some_and(|(notified, firing)| notified >= firing)
}

fn resolved(alert: &Alert, now: Timestamp) -> Option<AlertChange> {
    let is_open = matches!(alert.state, AlertState::Pending | AlertState::Firing);
    is_open.then(|| {
        let ended = Alert { state: AlertState::Resolved, resolved_at: Some(now), ..alert.clone() };
        changed(ended, Vec::new(), now)
    })
}

fn changed(alert: Alert, notices: Vec<(String, NoticeKind)>, now: Timestamp) -> AlertChange {
    AlertChange { alert: Alert { version: alert.version + 1, updated_at: now, ..alert }, notices }
}

#[cfg(test)]
#[path = "evaluate_tests.rs"]
mod tests;
