//! A takeover waits for a settlement in flight. The opposite case is in the suite.

use std::time::Duration;

use landfall_core::{Holder, Leases, OutboxQueue};

use crate::stage::{LONG, SOON, another, due, lease_all, message, migrated, until_blocked};

#[tokio::test(flavor = "multi_thread")]
async fn takeover_waits_for_a_settlement_in_flight() {
    let Some(database) = migrated().await else { return };
    database.append(&[message("a", 1)]).await.unwrap();
    let leases = lease_all(&database, "one", Duration::from_millis(1)).await;
    let entry = database.next(&leases, 10).await.unwrap().remove(0);
    let lease = leases.iter().find(|lease| lease.name == entry.shard.lease_name()).unwrap().clone();

    let mut settling = database.pool().begin().await.unwrap();
    let verdict: String = sqlx::query_scalar(
        "SELECT verdict FROM landfall_outbox_settle(ARRAY[$1], ARRAY[$2], ARRAY[$3], landfall_outbox_life(),
            (SELECT jsonb_build_array(jsonb_build_object('shards', ARRAY[shard], 'n', n, 'published', 1,
                's1', pg_current_snapshot()::text, 'done', ARRAY[]::bigint[]))
             FROM landfall_outbox_place WHERE shard = $4),
            true, false, '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}')",
    )
    .bind(&lease.name.0)
    .bind(&lease.holder.0)
    .bind(lease.epoch)
    .bind(entry.shard.0 as i16)
    .fetch_one(&mut *settling)
    .await
    .unwrap();
    assert_eq!(verdict, "done");

    let (other, name) = (another(&database).await, lease.name.clone());
    let taking = tokio::spawn(async move {
        let taken = other.acquire(&name, &Holder("two".into()), LONG).await.unwrap().expect("the lease has expired");
        (other, taken)
    });
    until_blocked(&database).await;
    assert!(!taking.is_finished(), "the takeover waits for the settlement");
    settling.commit().await.unwrap();
    let (other, taken) = tokio::time::timeout(SOON, taking).await.unwrap().unwrap();
    assert_eq!(taken.epoch, lease.epoch + 1);
    assert!(due(&other, &[taken]).await.is_empty(), "settled rows are not read again");
}
