//! The consumer's metrics, each driven by the event that it counts.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use landfall::consume::{Consumer, Context, DedupCache, Options, handler_fn};
use landfall::relay::Relay;
use landfall::{
    DeadLetterFilter, DeadLetters, Error, ErrorCode, ErrorKind, Failure, GroupName, Message, MessageId, Mode,
    OutboxQueue, OutboxView, Outcome, Publisher,
};
use landfall_sqlite::Sqlite;
use landfall_testkit::eventually;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use tokio::sync::Semaphore;

use crate::fixture::{Fixture, QUICK, TIMEOUT, group, message, topic};

/// Runs `test` with its own metrics. A local recorder sees one thread only, so the consumer runs on this one.
fn record(test: impl AsyncFnOnce(&PrometheusHandle)) {
    let recorder = PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    metrics::with_local_recorder(&recorder, || {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test(&handle));
    });
}

#[test]
fn every_outcome_of_a_consumer_is_counted() {
    record(consume);
}

#[test]
fn every_result_of_the_dedup_cache_is_counted() {
    record(deduplicate);
}

#[test]
fn lost_and_parked_messages_of_a_relay_are_counted_once() {
    record(relay);
}

/// A broker that refuses everything for good.
struct Refusing;

#[async_trait::async_trait]
impl Publisher for Refusing {
    async fn publish(&self, messages: &[Message]) -> Vec<Outcome> {
        messages.iter().map(|_| Outcome::refuse(ErrorCode::TOO_LARGE, "no")).collect()
    }
}

/// One message must not be sent twice and is lost; another is parked.
async fn relay(metrics: &PrometheusHandle) {
    let fixture = Fixture::new().await;
    let once = message("once", 1).with_mode(Mode::AtMostOnce);
    fixture.database.append(&[once, message("parked", 1)]).await.unwrap();
    let relay = Relay::builder(fixture.database.clone(), Arc::new(Refusing)).build().unwrap();
    let running = tokio::spawn(relay.run(fixture.stop.clone()));
    shown(metrics, &["landfall_at_most_once_lost_total 1", "landfall_dlq_in_total 1"]).await;
    fixture.stop.cancel();
    running.await.unwrap().unwrap();
    let stats = fixture.database.stats().await.unwrap();
    assert_eq!((stats.pending, stats.parked), (0, 1));
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
    let (is_broken, gate) = (Arc::new(AtomicBool::new(true)), Arc::new(Semaphore::new(0)));
    let (broken, closed) = (is_broken.clone(), gate.clone());
    let handler = handler_fn::<Sqlite, _>(move |context: Context<'_, Sqlite>| {
        let fails = broken.load(Ordering::SeqCst) && context.message.payload.starts_with(b"poison");
        let outcome = if fails { Err(Failure::park(ErrorCode::new("poison"), "it is poison")) } else { Ok(()) };
        let closed = closed.clone();
        Box::pin(async move {
            // Fails as soon as the gate is open.
            let _ = closed.acquire().await;
            outcome
        })
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
    let during_delivery = [
        r#"landfall_in_flight{topic="orders",group="stock"} 4"#,
        r#"landfall_lane_depth_max{topic="orders",group="stock"} 2"#,
    ];
    shown(metrics, &during_delivery).await;
    gate.close();
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
    // The successor was not redriven: it takes its turn.
    let after_redrive = [
        r#"landfall_redrive_total{outcome="effect"} 1"#,
        r#"landfall_handled_total{outcome="effect"} 2"#,
        "landfall_dlq_in_total 1",
    ];
    shown(metrics, &after_redrive).await;
    fixture.stop.cancel();
    running.await.unwrap().unwrap();
}

/// A cache that fails until it is up.
#[derive(Clone, Default)]
struct Cache {
    is_up: Arc<AtomicBool>,
    ids: Arc<Mutex<Vec<MessageId>>>,
}

#[async_trait::async_trait]
impl DedupCache for Cache {
    async fn probably_seen(&self, _: &GroupName, ids: &[MessageId]) -> landfall::Result<Vec<MessageId>> {
        if !self.is_up.load(Ordering::SeqCst) {
            return Err(Error::new(ErrorKind::Unavailable, "the cache is down"));
        }
        let known = self.ids.lock().unwrap();
        Ok(ids.iter().copied().filter(|id| known.contains(id)).collect())
    }

    async fn remember(&self, _: &GroupName, ids: &[MessageId]) -> landfall::Result<()> {
        self.ids.lock().unwrap().extend(ids);
        Ok(())
    }
}

/// A message is handled without the cache, and its duplicate is recognized by it.
async fn deduplicate(metrics: &PrometheusHandle) {
    let (fixture, cache, sent) = (Fixture::new().await, Cache::default(), message("a", 1));
    let handler = handler_fn::<Sqlite, _>(|_: Context<'_, Sqlite>| Box::pin(async { Ok(()) }));
    let consumer = Consumer::builder(fixture.database.clone(), fixture.broker.clone())
        .topic(topic())
        .group(group())
        .handler(handler)
        .dedup_cache(cache.clone())
        .build()
        .unwrap();
    let running = tokio::spawn(consumer.run(fixture.stop.clone()));
    fixture.publish(std::slice::from_ref(&sent)).await;
    let effect = r#"landfall_handled_total{outcome="effect"} 1"#;
    shown(metrics, &[r#"landfall_front_total{result="unavailable"} 1"#, effect]).await;
    cache.is_up.store(true, Ordering::SeqCst);
    fixture.publish(std::slice::from_ref(&sent)).await;
    shown(metrics, &[r#"landfall_front_total{result="hit"} 1"#, effect]).await;
    fixture.stop.cancel();
    running.await.unwrap().unwrap();
}
