//! `GET /metrics`: what the relay counts, and what the database and the broker say at this moment.

use std::time::Duration;

use axum::http::header;
use axum::response::IntoResponse;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};

use super::{Shared, State};
use crate::error::{Error, Result};
use crate::stores::broker::Outlet;

/// A scrape answers within this, whatever the database does.
const PATIENCE: Duration = Duration::from_secs(2);

/// From a millisecond, which is what a commit takes to arrive, to minutes, which is an outage.
const SECONDS: [f64; 14] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0];

/// The process's recorder.
#[derive(Clone)]
pub(crate) struct Metrics(PrometheusHandle);

impl Metrics {
    /// Installs the recorder: before anything that counts is started.
    pub(crate) fn install() -> Result<Self> {
        let failed = |error| Error::not_so(format!("the metrics could not be set up: {error}"));
        let handle = PrometheusBuilder::new()
            .set_buckets_for_metric(Matcher::Suffix("_seconds".into()), &SECONDS)
            .map_err(failed)?
            .install_recorder()
            .map_err(failed)?;
        metrics::describe_gauge!("landfall_outbox_pending", "Messages in the outbox that never failed.");
        metrics::describe_gauge!("landfall_outbox_retrying", "Messages in the outbox after a failed try.");
        metrics::describe_gauge!("landfall_outbox_parked", "Messages that the relay parked and nobody redrove yet.");
        metrics::describe_gauge!("landfall_outbox_oldest_seconds", "Age of the oldest message in the outbox.");
        metrics::describe_gauge!("landfall_dlq_size", "Dead letters that are not done.");
        metrics::describe_gauge!("landfall_delayed", "Messages that failed and are tried again by themselves.");
        metrics::describe_gauge!(
            "landfall_dlq_message_age_p95_seconds",
            "The age that 95 of 100 parked dead letters have not reached."
        );
        metrics::describe_counter!("landfall_published_total", "Messages that this relay published.");
        metrics::describe_histogram!(
            "landfall_delivery_seconds",
            "From the enqueuing of a message to the broker's acknowledgement."
        );
        metrics::describe_counter!("landfall_dlq_in_total", "Messages that became dead letters.");
        metrics::describe_counter!(
            "landfall_housekeeping_removed_total",
            "What was kept long enough and removed: sent, inbox or dead_letters."
        );
        metrics::describe_gauge!("landfall_database_up", "1 if the database answered this scrape, else 0.");
        metrics::describe_gauge!("landfall_topic_messages", "Messages that a partition of the embedded log keeps.");
        metrics::describe_gauge!("landfall_topic_bytes", "Bytes that a partition of the embedded log takes on disk.");
        metrics::describe_gauge!(
            "landfall_topic_skew",
            "How unevenly a topic's messages are spread: 1 if evenly, the number of partitions if one has them all."
        );
        metrics::describe_gauge!("landfall_group_lag", "Messages of a topic that a group has not finished.");
        metrics::describe_counter!("landfall_retry_allowed_total", "Retries that the budget of a dependency allowed.");
        metrics::describe_counter!("landfall_retry_exhausted_total", "Retries that the budget did not allow.");
        metrics::describe_counter!("landfall_retry_after_honored_total", "Answers whose Retry-After was followed.");
        metrics::describe_gauge!("landfall_breaker_state", "0 if the breaker is closed, 1 half-open, 2 open.");
        // There from the first scrape, so that a rate over them begins at zero.
        for counter in ["landfall_published_total", "landfall_dlq_in_total"] {
            metrics::counter!(counter).increment(0);
        }
        Ok(Self(handle))
    }

    /// Keeps what was observed between two scrapes from piling up; never ends by itself.
    pub(crate) async fn keep_tidy(self) {
        let mut every = tokio::time::interval(Duration::from_secs(5));
        loop {
            every.tick().await;
            self.0.run_upkeep();
        }
    }
}

pub(super) async fn render(axum::extract::State(state): Shared) -> impl IntoResponse {
    // Without an answer these keep their last value too.
    if let Err(error) = show_topics(&*state.broker) {
        tracing::warn!(%error, "the broker did not tell about its topics");
    }
    let answered = matches!(tokio::time::timeout(PATIENCE, refresh(&state)).await, Ok(Ok(())));
    // Without an answer the gauges keep their last value; this one says that they are old.
    metrics::gauge!("landfall_database_up").set(if answered { 1.0 } else { 0.0 });
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], state.metrics.0.render())
}

async fn refresh(state: &State) -> landfall::Result<()> {
    let (outbox, dead_letters, age_p95) = tokio::try_join!(
        state.view.stats(),
        state.dead_letters.dead_letter_stats(),
        state.dead_letters.parked_age_p95()
    )?;
    metrics::gauge!("landfall_outbox_pending").set(outbox.pending as f64);
    metrics::gauge!("landfall_outbox_retrying").set(outbox.retrying as f64);
    metrics::gauge!("landfall_outbox_parked").set(outbox.parked as f64);
    metrics::gauge!("landfall_outbox_oldest_seconds").set(outbox.oldest_seconds);
    // What waits where nothing is parked or redriven waits behind what is delayed: no person has to see to it.
    let held = dead_letters.parked + dead_letters.redriving;
    let open = held + if held > 0 { dead_letters.waiting } else { 0 };
    metrics::gauge!("landfall_dlq_size").set(open as f64);
    metrics::gauge!("landfall_delayed").set(dead_letters.delayed as f64);
    metrics::gauge!("landfall_dlq_message_age_p95_seconds").set(age_p95.as_secs_f64());
    Ok(())
}

/// The log is in this process, so that asking it costs next to nothing.
fn show_topics(broker: &dyn Outlet) -> landfall::Result<()> {
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
