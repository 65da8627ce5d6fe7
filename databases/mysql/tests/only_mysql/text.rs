//! Keys are bytes: trailing spaces, case and accents distinguish them.

use landfall_core::adapter::{Admission, Decision, Parking};
use landfall_core::{Database, ErrorCode, Failure, GroupName, Inbox, OutboxFilter, OutboxQueue, OutboxView};

use crate::stage::{LONG, due, lease_all, message, migrated, settlement};

const ALIKE: [&str; 6] = ["a", "a ", "a  ", "A", "á", "a\u{301}"];

#[tokio::test]
async fn similar_keys_do_not_block_each_other_in_the_outbox() {
    let Some(database) = migrated().await else { return };
    let messages = ALIKE.map(|key| message(key, 1));
    database.append(&messages).await.unwrap();
    let leases = lease_all(&database, "one", LONG).await;
    let entries = database.next(&leases, 10).await.unwrap();
    assert_eq!(entries.len(), ALIKE.len());
    let park = Decision::Park { code: ErrorCode::TOO_LARGE, error: "too large".into(), holds_key: true };
    let retry = Decision::Retry { after: LONG, error: "later".into() };
    for (first, decision, left) in [(0, park, 5), (1, retry, 4)] {
        database.settle(&leases, &[settlement(&entries[first], decision)]).await.unwrap();
        assert_eq!(due(&database, &leases).await.len(), left);
        database.append(&ALIKE.map(|key| message(key, 2))).await.unwrap();
        assert_eq!(due(&database, &leases).await.len(), left + left, "the new ones of {left} keys");
        sqlx::query("DELETE FROM landfall_outbox WHERE sequence = 2").execute(database.pool()).await.unwrap();
    }
    for (position, key) in ALIKE.iter().enumerate().skip(1) {
        let filter = OutboxFilter { key: Some(landfall_core::Key::new(key).unwrap()), ..Default::default() };
        let rows = database.list(&filter, 10).await.unwrap();
        assert_eq!(rows.iter().map(|row| row.message_id).collect::<Vec<_>>(), [messages[position].id], "{key:?}");
    }
}

#[tokio::test]
async fn similar_keys_do_not_block_each_other_in_the_inbox() {
    let Some(database) = migrated().await else { return };
    let group = GroupName::new("stock").unwrap();
    let mut transaction = database.begin().await.unwrap();
    let first = message(ALIKE[1], 1);
    assert_eq!(database.admit(&mut transaction, &group, &first, None).await.unwrap(), Admission::Fresh);
    let failure = Failure::park(ErrorCode::HANDLER, "not today");
    database.park(&mut transaction, &group, &first, None, Parking::with_key(1, &failure)).await.unwrap();
    database.commit(transaction).await.unwrap();
    for key in ALIKE {
        let mut transaction = database.begin().await.unwrap();
        let verdict = database.admit(&mut transaction, &group, &message(key, 2), None).await.unwrap();
        assert_eq!(verdict == Admission::Held, key == ALIKE[1], "{key:?}");
        database.commit(transaction).await.unwrap();
    }
}

/// Case distinguishes topics and groups, too.
#[tokio::test]
async fn key_is_held_for_one_topic_and_one_group() {
    let Some(database) = migrated().await else { return };
    let mut shouted = message("a", 1);
    shouted.topic = landfall_core::TopicName::new("ORDERS").unwrap();
    database.append(&[message("a", 1), shouted.clone()]).await.unwrap();
    let leases = lease_all(&database, "one", LONG).await;
    let entries = database.next(&leases, 10).await.unwrap();
    let retry = Decision::Retry { after: LONG, error: "later".into() };
    database.settle(&leases, &[settlement(&entries[0], retry)]).await.unwrap();
    assert_eq!(due(&database, &leases).await, [shouted.id]);

    for group in ["stock", "Stock"] {
        let mut transaction = database.begin().await.unwrap();
        let group = GroupName::new(group).unwrap();
        assert_eq!(database.admit(&mut transaction, &group, &shouted, None).await.unwrap(), Admission::Fresh);
        database.commit(transaction).await.unwrap();
    }
}
