//! A relay that is paused past its lease and wakes up as if nothing had happened (L4, L7).
//!
//! Two others have taken its shards over in the meantime. It may publish what it had read, since nobody can call that
//! back: copies, which the inbox turns away. It may not publish what it knows to be stale, and it settles nothing. That no
//! key is ever out of order, however often and wherever relays are paused, is shown by the soak.

use std::time::Duration;

use landfall::{OutboxFilter, OutboxView};
use landfall_system_tests::{Failpoint, PATIENCE};
use landfall_testkit::{Fault, eventually};

use crate::stage::Stage;

const LEASE: Duration = Duration::from_secs(1);

/// It has read a batch and has not begun to publish it: it notices that its lease is over, and leaves it alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay_paused_with_a_claimed_batch_publishes_nothing_of_it() {
    let Some(mut stage) = Stage::set(32, LEASE).await else { return };
    // So many keys that every shard has some: whichever it leases first, the batch is not empty.
    stage.world.setup.keys = 120;
    stage.write(1).await;
    assert_eq!(shards_with_messages(&stage).await, 16);

    let asleep = Failpoint::stop("relay.after-claim", 1);
    let paused = stage.relay_with(&asleep);
    paused.asleep_at(&asleep).await;
    assert!(stage.broker.published().is_empty());
    let others = [stage.relay(), stage.relay()];
    stage.is_shared_by(2).await;
    stage.has_effects(|_| true).await;
    // What is settled is published by nobody again, whoever loses a lease.
    eventually(PATIENCE, "all of it is settled", async || stage.producer.stats().await.unwrap().pending == 0).await;
    let before = stage.broker.published();

    paused.resume();
    stage.is_shared_by(3).await;
    // The next messages of its shards can only come from itself, after it is done with what it had claimed.
    stage.write(1).await;
    stage.has_effects(|_| true).await;
    let after = stage.broker.published().split_off(before.len());
    let stale = after.iter().filter(|(_, late)| before.iter().any(|(_, message)| message.id == late.id)).count();
    assert_eq!(stale, 0, "of {} messages published after it woke up", after.len());
    stage.judge(others.into_iter().chain([paused])).await.assert_nothing_is_wrong();
}

/// It has published a batch and has not settled it. One of its messages is refused to those who took over, so its row
/// is there, waiting for its next attempt, when the late settlement arrives: it must stay exactly as it is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_late_settlement_of_a_paused_relay_changes_nothing() {
    let Some(mut stage) = Stage::set(33, LEASE).await else { return };
    // Longer than the test takes, so that the row does not change by itself.
    stage.world.setup.backoff_ms = 120_000;
    stage.world.setup.keys = 120;
    stage.write(1).await;

    let asleep = Failpoint::stop("relay.after-publish", 1);
    let paused = stage.relay_with(&asleep);
    paused.asleep_at(&asleep).await;
    let published = stage.broker.published();
    let contested = published.first().expect("it has published before it fell asleep").1.clone();
    let id = contested.id;
    stage.broker.fail_when(move |message| message.id == id, Fault::UnknownAndLost);

    let others = [stage.relay(), stage.relay()];
    stage.is_shared_by(2).await;
    eventually(PATIENCE, "only the contested row is left, after a failed try", async || {
        let rows = stage.producer.list(&OutboxFilter::default(), 10).await.unwrap();
        rows.len() == 1 && rows[0].message_id == id && rows[0].attempts == 1
    })
    .await;
    let before = everything(&stage).await;

    paused.resume();
    eventually(PATIENCE, "the late settlement is turned away", async || {
        paused.has_complained("another relay has taken over")
    })
    .await;
    assert_eq!(everything(&stage).await, before);

    stage.broker.heal();
    sqlx::query("UPDATE landfall_outbox_waiting SET next_attempt_at = now()")
        .execute(stage.producer.pool())
        .await
        .unwrap();
    stage.judge(others.into_iter().chain([paused])).await.assert_nothing_is_wrong();
    assert_eq!(published.iter().filter(|(_, message)| message.id == id).count(), 1);
}

/// Every row of the outbox with all its columns, and what was counted as published.
async fn everything(stage: &Stage) -> (Vec<String>, u64) {
    let rows = sqlx::query_scalar("SELECT to_jsonb(o)::text FROM landfall_outbox_status o ORDER BY id")
        .fetch_all(stage.producer.pool())
        .await
        .unwrap();
    (rows, stage.producer.stats().await.unwrap().published)
}

async fn shards_with_messages(stage: &Stage) -> i64 {
    sqlx::query_scalar("SELECT count(DISTINCT landfall_shard_of(key, id)) FROM landfall_outbox_unsettled")
        .fetch_one(stage.producer.pool())
        .await
        .unwrap()
}
