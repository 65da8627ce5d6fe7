//! Conditions: what of the observations a rule is about, and above its threshold.

use std::time::Duration;

use super::observation::{AlertObservations, LetterObservations, ObservedGroup, RATE_BASELINE, RATE_WINDOW};
use super::rule::{AlertKind, AlertRule};
use super::{AlertId, AlertLabels};
use crate::{Alert, DeadLetterId, Timestamp};

/// The fewest letters in a window that a rate counts, so that two letters after a quiet night are no alert.
const FEWEST_FOR_RATE: u64 = 10;

/// The most characters of an error in a summary.
const ERROR_CHARACTERS: usize = 300;

/// A condition that holds now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AlertCondition {
    pub id: AlertId,
    pub labels: AlertLabels,
    pub value: u64,
    pub summary: String,
    pub sample: Option<DeadLetterId>,
}

/// Returns the conditions of `rule` that hold, or `None` if what it looks at is unknown.
pub fn alert_conditions(rule: &AlertRule, seen: &AlertObservations, now: Timestamp) -> Option<Vec<AlertCondition>> {
    let letters = seen.letters.as_ref();
    Some(match rule.kind {
        AlertKind::DeadLetter => parked(rule, letters?),
        AlertKind::NewGroup => groups(rule, letters?),
        AlertKind::DeadLetterRate => rates(rule, letters?),
        AlertKind::DeadLetterAge => ages(rule, letters?, now),
        AlertKind::KeyParked => keys(rule, letters?, now),
        AlertKind::OutboxAge => {
            let age = seen.outbox_oldest?;
            let summary = format!("the oldest message of the outbox is {} old", shown(age));
            single(rule, age.as_secs(), summary)
        }
        AlertKind::ConsumerLag => lags(rule, seen.lags.as_deref()?),
        AlertKind::IdempotencyUncertain => {
            let count = seen.uncertain_records?;
            single(rule, count, format!("{count} idempotency records are uncertain and need a person"))
        }
        AlertKind::HalfMessage => {
            let count = seen.half_messages?;
            single(rule, count, format!("{count} half messages are parked or contradicted and need a person"))
        }
    })
}

fn parked(rule: &AlertRule, letters: &LetterObservations) -> Vec<AlertCondition> {
    let selected = letters.parked.iter().filter(|one| rule.selects(&one.topic, &one.group));
    let above = selected.filter(|one| one.count > rule.threshold);
    let condition = above.map(|one| {
        let place = place(&one.topic, &one.group);
        let summary = format!("{} {place} {} parked", counted(one.count), if one.count == 1 { "is" } else { "are" });
        condition(rule, pair(&one.topic, &one.group), one.count, summary, Some(one.newest))
    });
    condition.collect()
}

fn groups(rule: &AlertRule, letters: &LetterObservations) -> Vec<AlertCondition> {
    let found = letters.groups.get(&rule.name).map(Vec::as_slice).unwrap_or_default();
    let condition = found.iter().map(|one| {
        let ObservedGroup { fingerprint, count, sample, topic, group, error_code, error } = one;
        let error: String = error.chars().take(ERROR_CHARACTERS).collect();
        let summary = format!("new error {error_code} {}: {error}", place(topic, group));
        let labels = AlertLabels::from([("fingerprint".to_owned(), fingerprint.clone())]);
        condition(rule, labels, *count, summary, Some(*sample))
    });
    condition.collect()
}

fn rates(rule: &AlertRule, letters: &LetterObservations) -> Vec<AlertCondition> {
    let windows = RATE_BASELINE.as_secs() / RATE_WINDOW.as_secs();
    let selected = letters.recorded.iter().filter(|one| rule.selects(&one.topic, &one.group));
    let above = selected.filter(|one| {
        // recent > threshold * usual, without a division.
        let is_many = one.recent.saturating_mul(windows) > rule.threshold.saturating_mul(one.before);
        one.recent >= FEWEST_FOR_RATE && is_many
    });
    let condition = above.map(|one| {
        let usual = one.before as f64 / windows as f64;
        let window = shown(RATE_WINDOW);
        let letters = counted(one.recent);
        let place = place(&one.topic, &one.group);
        let summary = format!("{letters} {place} were recorded in {window}, and {usual:.1} are usual");
        condition(rule, pair(&one.topic, &one.group), one.recent, summary, Some(one.newest))
    });
    condition.collect()
}

fn ages(rule: &AlertRule, letters: &LetterObservations, now: Timestamp) -> Vec<AlertCondition> {
    let selected = letters.parked.iter().filter(|one| rule.selects(&one.topic, &one.group));
    let aged = selected.map(|one| (one, one.oldest_at.elapsed_since(now)));
    let above = aged.filter(|(_, age)| age.as_secs() > rule.threshold);
    let condition = above.map(|(one, age)| {
        let summary = format!("the oldest dead letter {} is {} old", place(&one.topic, &one.group), shown(age));
        condition(rule, pair(&one.topic, &one.group), age.as_secs(), summary, Some(one.oldest))
    });
    condition.collect()
}

fn keys(rule: &AlertRule, letters: &LetterObservations, now: Timestamp) -> Vec<AlertCondition> {
    let selected = letters.keys.iter().filter(|one| rule.selects(&one.topic, &one.group));
    let aged = selected.map(|one| (one, one.oldest_at.elapsed_since(now)));
    let above = aged.filter(|(_, age)| age.as_secs() > rule.threshold);
    let condition = above.map(|(one, age)| {
        let place = place(&one.topic, &one.group);
        let summary = format!("key {} {place} has been parked for {}", one.key, shown(age));
        let mut labels = pair(&one.topic, &one.group);
        labels.insert("key".to_owned(), one.key.clone());
        condition(rule, labels, age.as_secs(), summary, Some(one.oldest))
    });
    condition.collect()
}

fn lags(rule: &AlertRule, lags: &[(String, String, u64)]) -> Vec<AlertCondition> {
    let selected = lags.iter().filter(|(topic, group, _)| rule.selects(topic, group));
    let above = selected.filter(|(_, _, lag)| *lag > rule.threshold);
    let condition = above.map(|(topic, group, lag)| {
        let summary = format!("group {group} has not finished {lag} messages of {topic}");
        condition(rule, pair(topic, group), *lag, summary, None)
    });
    condition.collect()
}

/// Returns the condition of a rule without topics, if it holds.
fn single(rule: &AlertRule, value: u64, summary: String) -> Vec<AlertCondition> {
    let holds = value > rule.threshold;
    holds.then(|| condition(rule, AlertLabels::new(), value, summary, None)).into_iter().collect()
}

fn condition(
    rule: &AlertRule,
    labels: AlertLabels,
    value: u64,
    summary: String,
    sample: Option<DeadLetterId>,
) -> AlertCondition {
    AlertCondition { id: Alert::id_of(&rule.name, &labels), labels, value, summary, sample }
}

/// Returns the labels of a topic and group; the relay has no group.
fn pair(topic: &str, group: &str) -> AlertLabels {
    let mut labels = AlertLabels::from([("topic".to_owned(), topic.to_owned())]);
    if !group.is_empty() {
        labels.insert("group".to_owned(), group.to_owned());
    }
    labels
}

fn place(topic: &str, group: &str) -> String {
    if group.is_empty() { format!("of topic {topic} (relay)") } else { format!("of topic {topic}, group {group}") }
}

fn counted(count: u64) -> String {
    if count == 1 { "1 dead letter".to_owned() } else { format!("{count} dead letters") }
}

fn shown(age: Duration) -> String {
    humantime::format_duration(Duration::from_secs(age.as_secs())).to_string()
}
