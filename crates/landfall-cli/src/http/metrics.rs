//! `GET /metrics`: the process's counters, and gauges read from the database and the broker at scrape time.

use std::time::Duration;

use axum::http::header;
use axum::response::IntoResponse;
use landfall::idempotency::IdempotencyRecords;
use landfall::{AlertFilter, AlertState, OpenLetters};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};

use super::code_gauge::CodeGauge;
use super::pair_gauge::PairGauge;
use super::{Shared, State, health};
use crate::error::{Error, Result};
use crate::stores::broker::OpenBroker;

/// Time limit for the database calls of a scrape.
const SCRAPE_TIMEOUT: Duration = Duration::from_secs(2);

/// Firing alerts are counted up to this many.
const MOST_ALERTS: usize = 10_000;

/// Histogram buckets from a millisecond, a normal delivery, to minutes, an outage.
const SECONDS: [f64; 14] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0];

/// The metrics recorder of this process.
#[derive(Clone)]
pub(crate) struct Metrics {
    handle: PrometheusHandle,
    retrying: PairGauge,
    dead_letters: PairGauge,
    codes: CodeGauge,
}

impl Metrics {
    /// Installs the recorder. Call it before anything that records metrics starts.
    pub(crate) fn install() -> Result<Self> {
        let failed = |error| Error::failed(format!("cannot install the metrics recorder: {error}"));
        let handle = PrometheusBuilder::new()
            .set_buckets_for_metric(Matcher::Suffix("_seconds".into()), &SECONDS)
            .map_err(failed)?
            .install_recorder()
            .map_err(failed)?;
        metrics::describe_gauge!("landfall_outbox_pending", "Messages in the outbox that never failed.");
        metrics::describe_gauge!("landfall_outbox_retrying", "Messages in the outbox after a failed attempt.");
        metrics::describe_gauge!("landfall_outbox_parked", "Messages that the relay parked and that are not redriven.");
        metrics::describe_gauge!("landfall_outbox_oldest_seconds", "Age of the oldest message in the outbox.");
        metrics::describe_gauge!(
            "landfall_dlq_size",
            "Dead letters that need an operator, by topic and group; the relay has no group."
        );
        metrics::describe_gauge!("landfall_deliveries_retrying", "Deliveries that failed and are attempted again.");
        metrics::describe_gauge!("landfall_delayed", "Failed messages that are retried automatically.");
        metrics::describe_gauge!(
            "landfall_dlq_message_age_p95_seconds",
            "95th percentile of the age of parked dead letters."
        );
        describe_half_messages();
        describe_idempotency();
        describe_alerts();
        metrics::describe_counter!("landfall_published_total", "Messages that this relay published.");
        metrics::describe_histogram!(
            "landfall_delivery_seconds",
            "Time from enqueueing a message to the broker's acknowledgement."
        );
        metrics::describe_gauge!(
            "landfall_dlq_top_error_code",
            "Parked dead letters with one of the most frequent codes."
        );
        metrics::describe_counter!("landfall_dlq_in_total", "Messages that became dead letters.");
        metrics::describe_counter!(
            "landfall_at_most_once_lost_total",
            "At-most-once messages that the broker did not accept; they are not sent again."
        );
        metrics::describe_counter!(
            "landfall_housekeeping_removed_total",
            "Expired rows that were removed: sent, inbox, enqueued_ids, retries, dead_letters, redrives or alerts."
        );
        metrics::describe_counter!(
            "landfall_archived_total",
            "Rows stored in an archive: dead_letters, half_messages."
        );
        metrics::describe_counter!(
            "landfall_archive_failures_total",
            "Failed attempts to archive rows, which stay in the database: dead_letters, half_messages."
        );
        metrics::describe_gauge!("landfall_database_up", "1 if the database responded to this scrape, else 0.");
        metrics::describe_gauge!("landfall_broker_up", "1 if the broker responded and accepts messages, else 0.");
        metrics::describe_gauge!("landfall_topic_messages", "Messages in a partition of the embedded log.");
        metrics::describe_gauge!("landfall_topic_bytes", "Bytes on disk of a partition of the embedded log.");
        metrics::describe_gauge!(
            "landfall_topic_skew",
            "Imbalance of a topic's partitions: 1 if even, the number of partitions if one holds every message."
        );
        metrics::describe_gauge!("landfall_group_lag", "Messages of a topic that a group has not finished.");
        metrics::describe_counter!("landfall_retry_allowed_total", "Retries that the budget of a dependency allowed.");
        metrics::describe_counter!("landfall_retry_exhausted_total", "Retries that the budget did not allow.");
        metrics::describe_counter!("landfall_retry_after_honored_total", "Responses whose Retry-After was honored.");
        metrics::describe_gauge!("landfall_breaker_state", "0 if the breaker is closed, 1 half-open, 2 open.");
        // Present from the first scrape, so that rates start at zero.
        for counter in ["landfall_published_total", "landfall_dlq_in_total", "landfall_at_most_once_lost_total"] {
            metrics::counter!(counter).increment(0);
        }
        Ok(Self {
            handle,
            retrying: PairGauge::new("landfall_deliveries_retrying"),
            dead_letters: PairGauge::new("landfall_dlq_size"),
            codes: CodeGauge::default(),
        })
    }

    /// Drains the histograms between scrapes so that they do not grow. Never returns.
    pub(crate) async fn run_upkeep(self) {
        let mut every = tokio::time::interval(Duration::from_secs(5));
        loop {
            every.tick().await;
            self.handle.run_upkeep();
        }
    }
}

/// Describes the metrics of half messages.
fn describe_idempotency() {
    metrics::describe_gauge!(
        "landfall_idempotency_records",
        "Idempotency records in flight, and uncertain ones that need a person."
    );
    metrics::describe_gauge!(
        "landfall_idempotency_oldest_uncertain_seconds",
        "Age of the oldest uncertain idempotency record."
    );
    metrics::describe_counter!("landfall_idempotency_total", "Idempotent calls by result and business type.");
}

fn describe_alerts() {
    metrics::describe_gauge!("landfall_alerts_firing", "Alerts that fire, by rule.");
    metrics::describe_counter!("landfall_alert_notices_total", "Attempts to deliver notices of alerts, by outcome.");
}

fn describe_half_messages() {
    metrics::describe_gauge!("landfall_half_messages", "Undecided half messages: prepared, or parked for a person.");
    metrics::describe_gauge!(
        "landfall_half_contradicted",
        "Half messages whose first verdict a later decision contradicts, and no person has acknowledged."
    );
    metrics::describe_gauge!("landfall_half_early_commits", "Commits whose half message was never prepared.");
    metrics::describe_gauge!("landfall_half_oldest_undecided_seconds", "Age of the oldest undecided half message.");
    metrics::describe_counter!("landfall_half_prepared_total", "Half messages prepared.");
    metrics::describe_counter!("landfall_half_parked_total", "Half messages parked after the last check-back.");
    metrics::describe_counter!("landfall_half_decided_total", "Half messages decided, by verdict and by whom.");
    metrics::describe_counter!("landfall_half_checks_total", "Check-backs by answer.");
}

pub(super) async fn render(axum::extract::State(state): Shared) -> impl IntoResponse {
    // On error these gauges keep their last value too.
    if let Err(error) = refresh_topics(&*state.broker) {
        tracing::warn!(%error, "reading topics for metrics failed");
    }
    let database = tokio::time::timeout(SCRAPE_TIMEOUT, refresh(&state));
    let (database, broker) = tokio::join!(database, health::ask_broker(&state));
    let is_up = matches!(database, Ok(Ok(())));
    metrics::gauge!("landfall_broker_up").set(if broker.is_ok() { 1.0 } else { 0.0 });
    // On failure the gauges keep their last value; this one marks them as stale.
    metrics::gauge!("landfall_database_up").set(if is_up { 1.0 } else { 0.0 });
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], state.metrics.handle.render())
}

async fn refresh(state: &State) -> landfall::Result<()> {
    let firing = AlertFilter { state: Some(AlertState::Firing), ..AlertFilter::default() };
    let (outbox, dead_letters, codes, age_p95, retrying, half, records, firing) = tokio::try_join!(
        state.view.stats(),
        state.dead_letters.open_letters(),
        state.dead_letters.top_error_codes(CodeGauge::TOP),
        state.dead_letters.parked_age_p95(),
        state.deliveries.retrying_counts(),
        state.half.half_message_stats(),
        state.records.record_stats(),
        state.alerts.alerts(&firing, MOST_ALERTS)
    )?;
    for rule in &state.alert_rules {
        let count = firing.iter().filter(|alert| alert.rule == *rule).count();
        metrics::gauge!("landfall_alerts_firing", "rule" => rule.clone()).set(count as f64);
    }
    let retrying =
        retrying.into_iter().map(|(topic, group, count)| ([topic.to_string(), group.to_string()], count as f64));
    state.metrics.retrying.set(retrying);
    for (state, count) in [("prepared", half.prepared), ("parked", half.parked)] {
        metrics::gauge!("landfall_half_messages", "state" => state).set(count as f64);
    }
    metrics::gauge!("landfall_half_contradicted").set(half.contradicted as f64);
    metrics::gauge!("landfall_half_early_commits").set(half.early_commits as f64);
    metrics::gauge!("landfall_half_oldest_undecided_seconds").set(half.oldest_undecided_seconds as f64);
    for (state, count) in [("in_flight", records.in_flight), ("uncertain", records.uncertain)] {
        metrics::gauge!("landfall_idempotency_records", "state" => state).set(count as f64);
    }
    metrics::gauge!("landfall_idempotency_oldest_uncertain_seconds").set(records.oldest_uncertain_seconds as f64);
    metrics::gauge!("landfall_outbox_pending").set(outbox.pending as f64);
    metrics::gauge!("landfall_outbox_retrying").set(outbox.retrying as f64);
    metrics::gauge!("landfall_outbox_parked").set(outbox.parked as f64);
    metrics::gauge!("landfall_outbox_oldest_seconds").set(outbox.oldest_seconds);
    let delayed: u64 = dead_letters.iter().map(|letters| letters.stats.delayed).sum();
    metrics::gauge!("landfall_delayed").set(delayed as f64);
    let sizes = dead_letters.into_iter().map(|OpenLetters { topic, group, stats }| {
        // The relay has no group; the label stays empty.
        let group = group.map_or_else(String::new, |group| group.to_string());
        ([topic.to_string(), group], stats.needing_action() as f64)
    });
    state.metrics.dead_letters.set(sizes);
    state.metrics.codes.set(codes);
    metrics::gauge!("landfall_dlq_message_age_p95_seconds").set(age_p95.as_secs_f64());
    Ok(())
}

/// Updates the gauges of topics and groups. Cheap, since only the embedded log reports topics here.
fn refresh_topics(broker: &dyn OpenBroker) -> landfall::Result<()> {
    for topic in broker.topics()? {
        let name = topic.topic.to_string();
        for partition in &topic.partitions {
            let labels = [("topic", name.clone()), ("partition", partition.partition.to_string())];
            metrics::gauge!("landfall_topic_messages", &labels).set(partition.messages as f64);
            metrics::gauge!("landfall_topic_bytes", &labels).set(partition.bytes as f64);
        }
        for group in &topic.groups {
            let labels = [("topic", name.clone()), ("group", group.group.to_string())];
            metrics::gauge!("landfall_group_lag", &labels).set(group.lag as f64);
        }
        metrics::gauge!("landfall_topic_skew", "topic" => name).set(topic.skew);
    }
    Ok(())
}
