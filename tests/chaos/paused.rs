//! A relay that is paused past its lease and resumes as if nothing had happened (L4, L7).
//!
//! Meanwhile two others have taken over its shards. The paused relay may publish what it had already started to
//! publish: these are duplicates, which the inbox rejects. It must not publish a batch that it knows to be stale, and
//! it can settle nothing. The soak shows that no key is ever out of order, wherever relays are paused.

use std::time::Duration;

use landfall::{OutboxFilter, OutboxView};
use landfall_system_tests::{Failpoint, TIMEOUT};
use landfall_testkit::{Fault, eventually};

use crate::scenario::Scenario;

const LEASE: Duration = Duration::from_secs(1);

/// The relay has claimed a batch but not started to publish it: it notices that its lease expired, and drops the batch.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn relay_paused_with_a_claimed_batch_does_not_publish_it() {
    let Some(mut scenario) = Scenario::start(32, LEASE).await else { return };
    // Enough keys that every shard has some: the first batch is not empty, whichever shards it leases.
    scenario.harness.setup.keys = 120;
    scenario.write(1).await;
    assert_eq!(shards_with_messages(&scenario).await, 16);

    let asleep = Failpoint::stop("relay.after-claim", 1);
    let paused = scenario.relay_with(&asleep);
    paused.wait_until_stopped_at(&asleep).await;
    assert!(scenario.broker.published().is_empty());
    let others = [scenario.relay(), scenario.relay()];
    scenario.wait_until_shared_by(2).await;
    scenario.wait_for_effects(|_| true).await;
    // Settled messages are never published again, whatever happens to a lease.
    eventually(TIMEOUT, "all messages are settled", async || scenario.producer.stats().await.unwrap().pending == 0)
        .await;
    let before = scenario.broker.published();

    paused.resume();
    scenario.wait_until_shared_by(3).await;
    // The next messages of its shards can only come from this relay, after it has handled its claimed batch.
    scenario.write(1).await;
    scenario.wait_for_effects(|_| true).await;
    let after = scenario.broker.published().split_off(before.len());
    let stale = after.iter().filter(|(_, late)| before.iter().any(|(_, message)| message.id == late.id)).count();
    assert_eq!(stale, 0, "of {} messages published after it resumed", after.len());
    scenario.check(others.into_iter().chain([paused])).await.assert_clean();
}

/// The relay has published a batch but not settled it. The broker refuses one of its messages to the successors, so the
/// row is waiting for its next attempt when the late settlement arrives. The row must not change.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn late_settlement_of_a_paused_relay_is_rejected() {
    let Some(mut scenario) = Scenario::start(33, LEASE).await else { return };
    // Longer than the test takes, so that the row does not change otherwise.
    scenario.harness.setup.backoff_ms = 120_000;
    scenario.harness.setup.keys = 120;
    scenario.write(1).await;

    let asleep = Failpoint::stop("relay.after-publish", 1);
    let paused = scenario.relay_with(&asleep);
    paused.wait_until_stopped_at(&asleep).await;
    let published = scenario.broker.published();
    let contested = published.first().expect("the relay published before it stopped").1.clone();
    let id = contested.id;
    scenario.broker.fail_when(move |message| message.id == id, Fault::UnknownAndLost);

    let others = [scenario.relay(), scenario.relay()];
    scenario.wait_until_shared_by(2).await;
    eventually(TIMEOUT, "only the contested row is left, after a failed attempt", async || {
        let rows = scenario.producer.list(&OutboxFilter::default(), 10).await.unwrap();
        rows.len() == 1 && rows[0].message_id == id && rows[0].attempts == 1
    })
    .await;
    let before = everything(&scenario).await;

    paused.resume();
    eventually(TIMEOUT, "the late settlement is rejected", async || {
        paused.has_logged("lease lost; the relay that took over")
    })
    .await;
    assert_eq!(everything(&scenario).await, before);

    scenario.broker.heal();
    sqlx::query("UPDATE landfall_outbox_waiting SET next_attempt_at = now()")
        .execute(scenario.producer.pool())
        .await
        .unwrap();
    scenario.check(others.into_iter().chain([paused])).await.assert_clean();
    assert_eq!(published.iter().filter(|(_, message)| message.id == id).count(), 1);
}

/// Every row of the outbox with all its columns, and the number of published messages.
async fn everything(scenario: &Scenario) -> (Vec<String>, u64) {
    let rows = sqlx::query_scalar("SELECT to_jsonb(o)::text FROM landfall_outbox_status o ORDER BY id")
        .fetch_all(scenario.producer.pool())
        .await
        .unwrap();
    (rows, scenario.producer.stats().await.unwrap().published)
}

async fn shards_with_messages(scenario: &Scenario) -> i64 {
    sqlx::query_scalar("SELECT count(DISTINCT landfall_shard_of(key, id)) FROM landfall_outbox_unsettled")
        .fetch_one(scenario.producer.pool())
        .await
        .unwrap()
}
