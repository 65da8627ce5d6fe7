//! A takeover waits for a settlement in flight. The opposite case is in the suite.

use std::time::Duration;

use landfall_core::adapter::Decision;
use landfall_core::{Database, Holder, Leases, OutboxQueue};

use crate::stage::{LONG, SOON, another, due, lease_all, message, migrated, settlement, until_blocked};

#[tokio::test(flavor = "multi_thread")]
async fn takeover_waits_for_a_settlement_in_flight() {
    let Some(database) = migrated().await else { return };
    database.append(&[message("a", 1)]).await.unwrap();
    let leases = lease_all(&database, "one", Duration::from_millis(1)).await;
    let entry = database.next(&leases, 10).await.unwrap().remove(0);
    let lease = leases.iter().find(|lease| lease.name == entry.shard.lease_name()).unwrap().clone();

    // Another transaction locks the row, so that the settlement waits after it has locked the lease.
    let mut blocker = database.begin().await.unwrap();
    sqlx::query("SELECT 1 FROM landfall_outbox FOR UPDATE").execute(&mut *blocker).await.unwrap();
    let (holder, given, settlements) =
        (database.clone(), leases.clone(), vec![settlement(&entry, Decision::Published)]);
    let settling = tokio::spawn(async move { holder.settle(&given, &settlements).await.unwrap() });
    until_blocked(&database).await;

    let (other, name) = (another(&database).await, lease.name.clone());
    let mut taking = tokio::spawn(async move {
        let taken = other.acquire(&name, &Holder("two".into()), LONG).await.unwrap().expect("the lease has expired");
        (other, taken)
    });
    assert!(tokio::time::timeout(Duration::from_millis(250), &mut taking).await.is_err(), "it waits");
    drop(blocker);
    assert_eq!(tokio::time::timeout(SOON, settling).await.unwrap().unwrap(), [entry.row]);
    let (other, taken) = tokio::time::timeout(SOON, taking).await.unwrap().unwrap();
    assert_eq!(taken.epoch, lease.epoch + 1);
    assert!(due(&other, &[taken]).await.is_empty(), "settled rows are not read again");
}
