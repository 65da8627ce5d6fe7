//! The consumer's metrics, each driven by the event that it counts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use landfall::consume::{Consumer, Context, Options, handler_fn};
use landfall::{DeadLetterFilter, DeadLetters, ErrorCode, Failure};
use landfall_sqlite::Sqlite;
use landfall_testkit::eventually;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};

use crate::fixture::{Fixture, QUICK, TIMEOUT, group, message, topic};

#[test]
fn every_outcome_of_a_consumer_is_counted() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    // A local recorder sees one thread only, so the consumer runs on this one.
    metrics::with_local_recorder(&recorder, || {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(consume(&handle));
    });
}

/// Waits until the metrics contain all `lines`.
async fn shown(metrics: &PrometheusHandle, lines: &[&str]) {
    eventually(TIMEOUT, &format!("{lines:?} in the metrics"), async || {
        let shown = metrics.render();
        lines.iter().all(|line| shown.lines().any(|shown| shown == *line))
    })
    .await;
}

/// One message takes effect and is delivered twice. Another is parked, and its successor waits until the redrive.
async fn consume(metrics: &PrometheusHandle) {
    let fixture = Fixture::new().await;
    let good = message("good", 1);
    fixture.publish(&[good.clone(), good, message("poison", 1), message("poison", 2)]).await;
    let is_broken = Arc::new(AtomicBool::new(true));
    let broken = is_broken.clone();
    let handler = handler_fn::<Sqlite, _>(move |context: Context<'_, Sqlite>| {
        let fails = broken.load(Ordering::SeqCst) && context.message.payload.starts_with(b"poison");
        let outcome = if fails { Err(Failure::park(ErrorCode::new("poison"), "it is poison")) } else { Ok(()) };
        Box::pin(async move { outcome })
    });
    let redrive_poll = Duration::from_millis(10);
    let consumer = Consumer::builder(fixture.database.clone(), fixture.broker.clone())
        .topic(topic())
        .group(group())
        .handler(handler)
        .options(Options { batch: 10, concurrency: 1, backoff: QUICK, redrive_poll, ..Default::default() })
        .build()
        .unwrap();
    let running = tokio::spawn(consumer.run(fixture.stop.clone()));
    let after_delivery = [
        r#"landfall_handled_total{outcome="effect"} 1"#,
        r#"landfall_handled_total{outcome="duplicate"} 1"#,
        r#"landfall_handled_total{outcome="parked"} 1"#,
        r#"landfall_handled_total{outcome="held"} 1"#,
        "landfall_dlq_in_total 1",
        "landfall_batch_fallback_total 1",
        r#"landfall_in_flight{topic="orders",group="stock"} 0"#,
        r#"landfall_lane_depth_max{topic="orders",group="stock"} 0"#,
    ];
    shown(metrics, &after_delivery).await;
    is_broken.store(false, Ordering::SeqCst);
    fixture.database.redrive(&DeadLetterFilter::default(), "test").await.unwrap();
    shown(metrics, &[r#"landfall_redrive_total{outcome="effect"} 2"#]).await;
    fixture.stop.cancel();
    running.await.unwrap().unwrap();
}
