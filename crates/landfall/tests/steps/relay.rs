//! The relay against a real outbox: order, backoff, parking, outages and the three modes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::stage::{PATIENCE, Stage, Watched, message, topic};
use landfall::relay::Relay;
use landfall::{Broker, DeadLetterFilter, DeadLetters, ErrorKind, Message, Mode};
use landfall_testkit::{Fault, eventually};

#[tokio::test(flavor = "multi_thread")]
async fn what_was_committed_is_published_in_order_and_leaves_the_outbox() {
    let stage = Stage::new().await;
    let messages: Vec<_> = (1..=1200).map(|n| message("a", n)).collect();
    stage.append(&messages).await;
    let relay = stage.relay();
    eventually(PATIENCE, "everything published", async || stage.stats().await.published == 1200).await;
    let expected: Vec<_> = (1..=1200).map(|n| format!("a{n}")).collect();
    assert_eq!(stage.published(), expected);
    assert_eq!(stage.stats().await.pending, 0);
    stage.stop.cancel();
    relay.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failing_head_holds_back_its_own_key_and_only_that_key() {
    let stage = Stage::new().await;
    stage.broker.fail_when(|message| message.payload.starts_with(b"a1"), Fault::Refuse);
    stage.append(&[message("a", 1), message("b", 1), message("a", 2), message("b", 2)]).await;
    stage.relay();
    eventually(PATIENCE, "the head is parked", async || stage.stats().await.parked == 1).await;
    eventually(PATIENCE, "the other key passed", async || stage.stats().await.published == 2).await;
    assert_eq!(stage.published(), ["b1", "b2"]);
    assert_eq!(stage.stats().await.pending, 1, "the successor waits behind the parked head");

    let parked = stage.database.find(&DeadLetterFilter::default(), 10).await.unwrap();
    assert_eq!((parked[0].error_code.as_str(), parked[0].attempts, &parked[0].group), ("FULL", 3, &None));

    stage.broker.heal();
    let redriven = stage.database.redrive(&DeadLetterFilter::default(), "test").await.unwrap();
    assert_eq!(redriven.redriven, [parked[0].id]);
    eventually(PATIENCE, "the key drained", async || stage.stats().await.published == 4).await;
    assert_eq!(stage.published(), ["b1", "b2", "a1", "a2"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_outcome_is_sent_again_under_the_same_id() {
    let stage = Stage::new().await;
    stage.broker.fail_next(1, Fault::UnknownAndStored);
    let sent = message("a", 1);
    stage.append(std::slice::from_ref(&sent)).await;
    stage.relay();
    eventually(PATIENCE, "published", async || stage.stats().await.published == 1).await;
    assert!(stage.broker.published().iter().all(|(_, message)| message.id == sent.id));
    assert!(!stage.broker.published().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_of_the_broker_spends_no_attempts() {
    let stage = Stage::new().await;
    // Far more refusals than a message has attempts.
    stage.broker.fail_next(30, Fault::Unavailable);
    stage.append(&[message("a", 1), message("a", 2), message("b", 1)]).await;
    stage.relay();
    eventually(PATIENCE, "published after the outage", async || stage.stats().await.published == 3).await;
    assert_eq!(stage.parked().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_at_most_once_message_is_never_tried_twice() {
    let stage = Stage::new().await;
    stage.broker.fail_next(1, Fault::Refuse);
    let once = Message::new(topic(), "lost").with_mode(Mode::AtMostOnce);
    stage.append(std::slice::from_ref(&once)).await;
    stage.relay();
    eventually(PATIENCE, "gone from the outbox", async || stage.stats().await.published == 1).await;
    stage.append(&[message("a", 1)]).await;
    eventually(PATIENCE, "the next one", async || stage.stats().await.published == 2).await;
    assert_eq!(stage.published(), ["a1"]);
    assert_eq!(stage.parked().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_plain_sql_wrote_wrongly_is_parked_and_holds_its_key() {
    let stage = Stage::new().await;
    let insert = "INSERT INTO landfall_outbox (topic, key, headers, payload) VALUES ('orders', 'a', ?, ?)";
    sqlx::query(insert).bind(r#"{"x": "a\r\nb"}"#).bind("bad").execute(stage.database.pool()).await.unwrap();
    sqlx::query(insert).bind("{}").bind(vec![b'x'; 2 * 1024 * 1024]).execute(stage.database.pool()).await.unwrap();
    stage.append(&[message("a", 1), message("b", 1)]).await;
    stage.relay();
    eventually(PATIENCE, "the good one", async || stage.stats().await.published == 1).await;
    eventually(PATIENCE, "the bad one is parked", async || stage.parked().await >= 1).await;
    assert_eq!(stage.published(), ["b1"]);
    let parked = stage.database.find(&DeadLetterFilter::default(), 10).await.unwrap();
    assert_eq!(parked[0].error_code, "VALIDATION_ERROR");
    assert!(parked[0].error.contains("CR, LF and NUL"), "{}", parked[0].error);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_relays_share_the_work_and_publish_nothing_twice_while_both_live() {
    let stage = Stage::new().await;
    let (first, second) = (stage.relay(), stage.relay());
    for n in 1..=200 {
        stage.append(&[message("a", n), message("b", n)]).await;
    }
    eventually(PATIENCE, "published", async || stage.stats().await.published == 400).await;
    assert_eq!(stage.published().len(), 400);
    stage.stop.cancel();
    first.await.unwrap().unwrap();
    second.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_that_is_given_up_half_way_leaves_its_shards_to_others() {
    let stage = Stage::new().await;
    let given_up = stage.relay();
    stage.append(&[message("a", 1)]).await;
    eventually(PATIENCE, "it works", async || stage.stats().await.published == 1).await;
    // Nobody tells it to stop: it is dropped where it stands.
    given_up.abort();
    assert!(given_up.await.unwrap_err().is_cancelled());
    let keys: Vec<_> = (0..40).map(|key| message(&format!("key-{key}"), 1)).collect();
    stage.append(&keys).await;
    stage.relay();
    eventually(PATIENCE, "every shard is somebody's", async || stage.stats().await.published == 41).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_that_nobody_keeps_the_leases_of_ends_with_an_error() {
    let stage = Stage::new().await;
    let asked = AtomicU32::new(0);
    let breaks_down = move || assert!(asked.fetch_add(1, Ordering::Relaxed) < 20, "a fault in the program");
    let leases = Arc::new(Watched { leases: stage.database.clone(), asked: breaks_down });
    let queue = Arc::new(stage.database.clone());
    let relay = Relay::builder_from_parts(queue, leases, stage.broker.publisher()).build().unwrap();
    let ended = tokio::time::timeout(PATIENCE, relay.run(stage.stop.clone())).await.expect("it does not stand still");
    assert_eq!(ended.unwrap_err().kind(), ErrorKind::Internal);
    assert!(!stage.stop.is_cancelled(), "that is for whoever started it to decide");
}
