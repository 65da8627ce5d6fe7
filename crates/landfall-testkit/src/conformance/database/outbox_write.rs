//! What goes into the outbox: with the caller's transaction or not at all.

use landfall_core::{Database, ErrorKind, Limits, Message, Mode, OutboxFilter, OutboxQueue, OutboxView, OutboxWriter};

use super::{DatabaseFixture, Stage};
use crate::conformance::sample::{elaborate, ids, keyed, keyless, series, topic};

pub async fn a_rolled_back_transaction_publishes_nothing<F: DatabaseFixture>(stage: Stage<F>) {
    let message = keyed("a", 1);
    let mut transaction = stage.database.begin().await.unwrap();
    stage.fixture.insert_effect(&mut transaction, &(&message).into()).await;
    stage.database.enqueue(&mut transaction, std::slice::from_ref(&message)).await.unwrap();
    drop(transaction);

    let leases = stage.lease_all("one").await;
    assert!(stage.due(&leases).await.is_empty());
    assert_eq!(stage.database.stats().await.unwrap().pending, 0);
    assert!(stage.effects().await.is_empty());
}

pub async fn a_committed_transaction_is_found_with_its_effect<F: DatabaseFixture>(stage: Stage<F>) {
    let message = keyed("a", 1);
    let mut transaction = stage.database.begin().await.unwrap();
    stage.fixture.insert_effect(&mut transaction, &(&message).into()).await;
    stage.database.enqueue(&mut transaction, std::slice::from_ref(&message)).await.unwrap();
    stage.database.commit(transaction).await.unwrap();

    let leases = stage.lease_all("one").await;
    let due = stage.due(&leases).await;
    assert_eq!(due.len(), 1);
    assert_eq!((due[0].message_id, due[0].attempts), (message.id, 0));
    let stats = stage.database.stats().await.unwrap();
    assert_eq!((stats.pending, stats.retrying, stats.parked, stats.published), (1, 0, 0, 0));
    assert!(stats.oldest_seconds >= 0.0 && stats.oldest_seconds < 60.0, "{stats:?}");
    assert_eq!(stage.effects().await, [(&message).into()]);
}

pub async fn everything_about_a_message_survives_the_outbox<F: DatabaseFixture>(stage: Stage<F>) {
    let mut messages = vec![elaborate(), keyless(), Message::new(topic("empty"), Vec::new())];
    messages.extend(Mode::ALL.map(|mode| keyed("modes", 1).with_mode(mode)));
    messages.push(Message::new(topic("large"), vec![7; Limits::default().payload_bytes]).with_sequence(i64::MAX));
    stage.enqueue(&messages[..3]).await;
    stage.database.append(&messages[3..]).await.unwrap();

    let leases = stage.lease_all("one").await;
    let mut found: Vec<Message> = stage.due(&leases).await.into_iter().map(|entry| entry.message.unwrap()).collect();
    found.sort_by_key(|message| messages.iter().position(|sent| sent.id == message.id));
    // Compared one by one, so that a failure does not print a mebibyte.
    assert_eq!(ids(&found), ids(&messages));
    for (found, sent) in found.iter().zip(&messages) {
        assert!(found == sent, "message {} on {} is not what was sent", sent.id, sent.topic);
    }
}

pub async fn a_payload_beyond_the_limit_is_refused_and_nothing_is_written<F: DatabaseFixture>(stage: Stage<F>) {
    let too_large = Message::new(topic("orders"), vec![0; Limits::default().payload_bytes + 1]);
    let mut transaction = stage.database.begin().await.unwrap();
    let error = stage.database.enqueue(&mut transaction, &[keyed("a", 1), too_large]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);

    // The driver was not asked, so the caller's transaction is as good as before.
    let effect = (&keyed("b", 1)).into();
    stage.fixture.insert_effect(&mut transaction, &effect).await;
    stage.database.commit(transaction).await.unwrap();
    assert_eq!(stage.effects().await, [effect]);
    assert!(stage.database.list(&OutboxFilter::default(), 10).await.unwrap().is_empty());
}

pub async fn append_is_all_or_none<F: DatabaseFixture>(stage: Stage<F>) {
    let too_large = Message::new(topic("orders"), vec![0; Limits::default().payload_bytes + 1]);
    let error = stage.database.append(&[keyed("a", 1), too_large]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(stage.database.list(&OutboxFilter::default(), 10).await.unwrap().is_empty());

    let messages = series("a", 3);
    stage.database.append(&messages).await.unwrap();
    let leases = stage.lease_all("one").await;
    assert_eq!(stage.due_ids(&leases).await, ids(&messages));
}

pub async fn an_empty_batch_changes_nothing<F: DatabaseFixture>(stage: Stage<F>) {
    stage.enqueue(&[]).await;
    stage.database.append(&[]).await.unwrap();
    let leases = stage.lease_all("one").await;
    assert!(stage.database.settle(&leases, &[]).await.unwrap().is_empty());
    assert!(stage.database.list(&OutboxFilter::default(), 10).await.unwrap().is_empty());
}

pub async fn one_id_enqueued_twice_is_there_twice<F: DatabaseFixture>(stage: Stage<F>) {
    let message = keyed("a", 1);
    stage.enqueue(&[message.clone(), message.clone()]).await;
    stage.enqueue(std::slice::from_ref(&message)).await;
    let leases = stage.lease_all("one").await;
    assert_eq!(stage.due_ids(&leases).await, [message.id; 3]);
}
