//! Writing to the outbox: atomically with the caller's transaction.

use landfall_core::{Database, ErrorKind, Limits, Message, Mode, OutboxFilter, OutboxQueue, OutboxView, OutboxWriter};

use super::{DatabaseFixture, Harness};
use crate::conformance::sample::{elaborate, ids, keyed, keyless, series, topic};

pub async fn rolled_back_transaction_publishes_nothing<F: DatabaseFixture>(harness: Harness<F>) {
    let message = keyed("a", 1);
    let mut transaction = harness.database.begin().await.unwrap();
    harness.fixture.insert_effect(&mut transaction, &(&message).into()).await;
    harness.database.enqueue(&mut transaction, std::slice::from_ref(&message)).await.unwrap();
    drop(transaction);

    let leases = harness.lease_all("one").await;
    assert!(harness.due(&leases).await.is_empty());
    assert_eq!(harness.database.stats().await.unwrap().pending, 0);
    assert!(harness.effects().await.is_empty());
}

pub async fn committed_transaction_stores_message_and_effect<F: DatabaseFixture>(harness: Harness<F>) {
    let message = keyed("a", 1);
    let mut transaction = harness.database.begin().await.unwrap();
    harness.fixture.insert_effect(&mut transaction, &(&message).into()).await;
    harness.database.enqueue(&mut transaction, std::slice::from_ref(&message)).await.unwrap();
    harness.database.commit(transaction).await.unwrap();

    let leases = harness.lease_all("one").await;
    let due = harness.due(&leases).await;
    assert_eq!(due.len(), 1);
    assert_eq!((due[0].message_id, due[0].attempts), (message.id, 0));
    let stats = harness.database.stats().await.unwrap();
    assert_eq!((stats.pending, stats.retrying, stats.parked, stats.published), (1, 0, 0, 0));
    assert!(stats.oldest_seconds >= 0.0 && stats.oldest_seconds < 60.0, "{stats:?}");
    assert_eq!(harness.effects().await, [(&message).into()]);
}

pub async fn all_message_fields_survive_the_outbox<F: DatabaseFixture>(harness: Harness<F>) {
    let mut messages = vec![elaborate(), keyless(), Message::new(topic("empty"), Vec::new())];
    messages.extend(Mode::ALL.map(|mode| keyed("modes", 1).with_mode(mode)));
    messages.push(Message::new(topic("large"), vec![7; Limits::default().payload_bytes]).with_sequence(i64::MAX));
    harness.enqueue(&messages[..3]).await;
    harness.database.append(&messages[3..]).await.unwrap();

    let leases = harness.lease_all("one").await;
    let mut found: Vec<Message> = harness.due(&leases).await.into_iter().map(|entry| entry.message.unwrap()).collect();
    found.sort_by_key(|message| messages.iter().position(|sent| sent.id == message.id));
    // Compared one by one without `assert_eq!`, so that a failure does not print a mebibyte.
    assert_eq!(ids(&found), ids(&messages));
    for (found, sent) in found.iter().zip(&messages) {
        assert!(found == sent, "message {} on {} changed", sent.id, sent.topic);
    }
}

pub async fn oversized_payload_is_refused_and_nothing_is_written<F: DatabaseFixture>(harness: Harness<F>) {
    let too_large = Message::new(topic("orders"), vec![0; Limits::default().payload_bytes + 1]);
    let mut transaction = harness.database.begin().await.unwrap();
    let error = harness.database.enqueue(&mut transaction, &[keyed("a", 1), too_large]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);

    // No statement reached the server, so the caller's transaction is still usable.
    let effect = (&keyed("b", 1)).into();
    harness.fixture.insert_effect(&mut transaction, &effect).await;
    harness.database.commit(transaction).await.unwrap();
    assert_eq!(harness.effects().await, [effect]);
    assert!(harness.database.list(&OutboxFilter::default(), 10).await.unwrap().is_empty());
}

pub async fn append_is_all_or_nothing<F: DatabaseFixture>(harness: Harness<F>) {
    let too_large = Message::new(topic("orders"), vec![0; Limits::default().payload_bytes + 1]);
    let error = harness.database.append(&[keyed("a", 1), too_large]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(harness.database.list(&OutboxFilter::default(), 10).await.unwrap().is_empty());

    let messages = series("a", 3);
    harness.database.append(&messages).await.unwrap();
    let leases = harness.lease_all("one").await;
    assert_eq!(harness.due_ids(&leases).await, ids(&messages));
}

pub async fn empty_batch_changes_nothing<F: DatabaseFixture>(harness: Harness<F>) {
    harness.enqueue(&[]).await;
    harness.database.append(&[]).await.unwrap();
    let leases = harness.lease_all("one").await;
    assert!(harness.database.settle(&leases, &[]).await.unwrap().is_empty());
    assert!(harness.database.list(&OutboxFilter::default(), 10).await.unwrap().is_empty());
}

pub async fn outbox_does_not_deduplicate_ids<F: DatabaseFixture>(harness: Harness<F>) {
    let message = keyed("a", 1);
    harness.enqueue(&[message.clone(), message.clone()]).await;
    harness.enqueue(std::slice::from_ref(&message)).await;
    let leases = harness.lease_all("one").await;
    assert_eq!(harness.due_ids(&leases).await, [message.id; 3]);
}
