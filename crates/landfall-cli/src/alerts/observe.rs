//! What the rules look at.

use std::sync::Arc;
use std::time::Duration;

use landfall::idempotency::OneTimeTokens;
use landfall::{
    AlertKind, AlertObservations, AlertQueue, AlertRule, GroupQuery, HalfMessages, LetterQuery, OutboxView, Result,
    Timestamp,
};

use crate::stores::broker::OpenBroker;

/// The most keys that are reported, and the most new errors of one look.
const MOST_KEYS: usize = 100;
const MOST_GROUPS: usize = 500;

/// Time limit of one look at the database.
const LIMIT: Duration = Duration::from_secs(30);

/// Where observations come from.
pub(crate) struct Sources {
    pub(crate) view: Arc<dyn OutboxView>,
    pub(crate) half: Arc<dyn HalfMessages>,
    pub(crate) records: Arc<dyn OneTimeTokens>,
    pub(crate) broker: Arc<dyn OpenBroker>,
}

impl Sources {
    /// Observes what some rule needs. What fails is unknown.
    pub(super) async fn observe(
        &self,
        queue: &dyn AlertQueue,
        rules: &[AlertRule],
        now: Timestamp,
    ) -> AlertObservations {
        let needs = |kinds: &[AlertKind]| rules.iter().any(|rule| kinds.contains(&rule.kind));
        let mut seen = AlertObservations::default();
        let of_letters = [
            AlertKind::DeadLetter,
            AlertKind::NewGroup,
            AlertKind::DeadLetterRate,
            AlertKind::DeadLetterAge,
            AlertKind::KeyParked,
        ];
        if needs(&of_letters) {
            let query = letter_query(rules, now);
            seen.letters = known("dead letters", queue.observe_letters(&query)).await;
        }
        if needs(&[AlertKind::OutboxAge]) {
            let stats = known("the outbox", self.view.stats()).await;
            seen.outbox_oldest =
                stats.map(|stats| Duration::try_from_secs_f64(stats.oldest_seconds).unwrap_or_default());
        }
        if needs(&[AlertKind::IdempotencyUncertain]) {
            let stats = known("idempotency records", self.records.record_stats()).await;
            seen.uncertain_records = stats.map(|stats| stats.uncertain);
        }
        if needs(&[AlertKind::HalfMessage]) {
            let stats = known("half messages", self.half.half_message_stats()).await;
            seen.half_messages = stats.map(|stats| stats.parked + stats.contradicted);
        }
        if needs(&[AlertKind::ConsumerLag]) {
            seen.lags = known("consumer groups", async { self.lags() }).await;
        }
        seen
    }

    /// Returns the lag of every group that the broker reports without a remote call.
    fn lags(&self) -> Result<Vec<(String, String, u64)>> {
        let mut lags = Vec::new();
        for topic in self.broker.topics()? {
            let groups = topic.groups.iter();
            lags.extend(groups.map(|group| (topic.topic.to_string(), group.group.to_string(), group.lag)));
        }
        Ok(lags)
    }
}

fn letter_query(rules: &[AlertRule], now: Timestamp) -> LetterQuery {
    let of_kind = |kind| rules.iter().filter(move |rule| rule.kind == kind);
    let shortest = of_kind(AlertKind::KeyParked).map(|rule| rule.threshold).min();
    let age = i64::try_from(shortest.unwrap_or_default()).unwrap_or(i64::MAX).saturating_mul(1000);
    LetterQuery {
        keys_before: Timestamp::from_millis(now.as_millis().saturating_sub(age).max(0)),
        most_keys: if shortest.is_some() { MOST_KEYS } else { 0 },
        now,
        groups: of_kind(AlertKind::NewGroup)
            .map(|rule| GroupQuery {
                rule: rule.name.clone(),
                topic: rule.topic.clone(),
                group: rule.group.clone(),
                most: MOST_GROUPS,
            })
            .collect(),
    }
}

/// Returns what was observed, or `None` with a warning.
async fn known<T>(what: &'static str, observing: impl Future<Output = Result<T>>) -> Option<T> {
    match tokio::time::timeout(LIMIT, observing).await {
        Ok(Ok(seen)) => Some(seen),
        Ok(Err(error)) => {
            tracing::warn!(what, %error, "cannot observe for alerts");
            None
        }
        Err(_) => {
            tracing::warn!(what, limit_s = LIMIT.as_secs(), "observing for alerts took too long");
            None
        }
    }
}
