//! A takeover while a settlement is in flight: they meet on the lease's row, and one waits for the other.

use std::time::Duration;

use landfall_core::{Database, Decision, ErrorCode, Holder, Leases, OutboxFilter, OutboxQueue, OutboxView, Shard};

use crate::stage::{LONG, SOON, another, due, lease_all, message, migrated, settlement, somebody_is_blocked};

#[tokio::test(flavor = "multi_thread")]
async fn a_settlement_waits_for_a_takeover_in_flight_and_then_changes_nothing() {
    let Some(database) = migrated().await else { return };
    let decisions = [
        Decision::Published,
        Decision::Retry { after: LONG, error: "late".into() },
        Decision::Park { code: ErrorCode::UNAVAILABLE, error: "late".into(), holds_key: true },
    ];
    database.append(&[message("a", 1)]).await.unwrap();
    for decision in decisions {
        let leases = lease_all(&database, "one", LONG).await;
        let entries = database.next(&leases, 10).await.unwrap();
        let mut takeover = database.pool().begin().await.unwrap();
        sqlx::query("UPDATE landfall_lease SET holder = 'two', epoch = epoch + 1")
            .execute(&mut *takeover)
            .await
            .unwrap();

        let (stale, settlements) = (database.clone(), vec![settlement(&entries[0], decision)]);
        let settling = tokio::spawn(async move { stale.settle(&leases, &settlements).await.unwrap() });
        somebody_is_blocked(&database).await;
        assert!(!settling.is_finished(), "it waits for the takeover");
        takeover.commit().await.unwrap();
        let changed = tokio::time::timeout(SOON, settling).await.unwrap().unwrap();
        assert!(changed.is_empty(), "{changed:?}");
        let rows = database.list(&OutboxFilter::default(), 10).await.unwrap();
        assert_eq!(rows.iter().map(|row| (row.row, row.attempts)).collect::<Vec<_>>(), [(entries[0].row, 0)]);
        sqlx::query("UPDATE landfall_lease SET holder = NULL").execute(database.pool()).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_settlement_goes_on_when_the_takeover_is_rolled_back() {
    let Some(database) = migrated().await else { return };
    database.append(&[message("a", 1)]).await.unwrap();
    let leases = lease_all(&database, "one", LONG).await;
    let entries = database.next(&leases, 10).await.unwrap();
    let mut takeover = database.pool().begin().await.unwrap();
    sqlx::query("UPDATE landfall_lease SET holder = 'two', epoch = epoch + 1").execute(&mut *takeover).await.unwrap();

    let (holder, settlements) = (database.clone(), vec![settlement(&entries[0], Decision::Published)]);
    let settling = tokio::spawn(async move { holder.settle(&leases, &settlements).await.unwrap() });
    somebody_is_blocked(&database).await;
    takeover.rollback().await.unwrap();
    assert_eq!(tokio::time::timeout(SOON, settling).await.unwrap().unwrap(), [entries[0].row]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_takeover_waits_for_a_settlement_in_flight_and_then_sees_it() {
    let Some(database) = migrated().await else { return };
    database.append(&[message("a", 1)]).await.unwrap();
    let leases = lease_all(&database, "one", Duration::from_millis(1)).await;
    let entry = database.next(&leases, 10).await.unwrap().remove(0);
    let lease = leases.iter().find(|lease| lease.name == entry.shard.lease_name()).unwrap().clone();

    // The row is locked by somebody else, so that the settlement stands still after it has locked the lease.
    let mut in_the_way = database.begin().await.unwrap();
    sqlx::query("SELECT 1 FROM landfall_outbox FOR UPDATE").execute(&mut *in_the_way).await.unwrap();
    let (holder, given, settlements) =
        (database.clone(), leases.clone(), vec![settlement(&entry, Decision::Published)]);
    let settling = tokio::spawn(async move { holder.settle(&given, &settlements).await.unwrap() });
    somebody_is_blocked(&database).await;

    let (other, name) = (another(&database).await, lease.name.clone());
    let mut taking = tokio::spawn(async move {
        let taken = other.acquire(&name, &Holder("two".into()), LONG).await.unwrap().expect("it has expired");
        (other, taken)
    });
    assert!(tokio::time::timeout(Duration::from_millis(250), &mut taking).await.is_err(), "it waits");
    drop(in_the_way);
    assert_eq!(tokio::time::timeout(SOON, settling).await.unwrap().unwrap(), [entry.row]);
    let (other, taken) = tokio::time::timeout(SOON, taking).await.unwrap().unwrap();
    assert_eq!(taken.epoch, lease.epoch + 1);
    assert!(due(&other, &[taken]).await.is_empty(), "what was settled is not read again");
}

/// Renewing and settling the same leases at the same time must not wait in a circle.
#[tokio::test(flavor = "multi_thread")]
async fn renewing_and_settling_at_once_do_not_block_each_other_for_good() {
    let Some(database) = migrated().await else { return };
    let mut leases = lease_all(&database, "one", LONG).await;
    leases.reverse();
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..3 {
        let (database, leases) = (database.clone(), leases.clone());
        tasks.spawn(async move {
            for round in 0..40 {
                if n == 0 {
                    assert_eq!(database.renew(&leases, LONG).await.unwrap().len(), leases.len());
                } else {
                    let nothing = landfall_core::Settlement { row: -1, shard: Shard(0), decision: Decision::Published };
                    let mut rotated = leases.clone();
                    rotated.rotate_left(round % leases.len());
                    assert!(database.settle(&rotated, &[nothing]).await.unwrap().is_empty());
                }
            }
        });
    }
    tokio::time::timeout(SOON, tasks.join_all()).await.expect("nobody waits for ever");
}
