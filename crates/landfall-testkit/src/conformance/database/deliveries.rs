//! Deliveries that failed and are attempted again, as operators see them.

use std::time::Duration;

use landfall_core::adapter::Retry;
use landfall_core::{Deliveries, DeliveryFilter, Expiring, GroupName, Housekeeping, Key, Message, Timestamp};

use super::harness::{LONG, TIMEOUT};
use super::{DatabaseFixture, Harness};
use crate::conformance::sample::{failure, group, keyed, keyless, topic};
use crate::eventually;

async fn fail<F: DatabaseFixture>(harness: &Harness<F>, group: &GroupName, message: &Message, attempts: u32) {
    let failure = failure();
    let retry = Retry { attempts, failure: &failure, after: LONG };
    harness.database.record_retry(group, message, retry).await.unwrap();
}

async fn all<F: DatabaseFixture>(harness: &Harness<F>) -> usize {
    harness.database.retrying(&DeliveryFilter::default(), 100).await.unwrap().len()
}

pub async fn failed_delivery_is_listed_until_it_is_cleared<F: DatabaseFixture>(harness: Harness<F>) {
    let (mailer, message) = (group("mailer"), keyed("a", 1));
    let before = Timestamp::now();
    fail(&harness, &mailer, &message, 1).await;
    fail(&harness, &mailer, &message, 2).await;
    let found = harness.database.retrying(&DeliveryFilter::default(), 10).await.unwrap();
    assert_eq!(found.len(), 1, "a second failure is not another delivery: {found:?}");
    let delivery = &found[0];
    assert_eq!((delivery.message_id, &delivery.topic, &delivery.group), (message.id, &message.topic, &mailer));
    assert_eq!((&delivery.key, delivery.attempts), (&message.key, 2));
    assert_eq!((delivery.error_code.as_str(), &delivery.error), (failure().code.as_str(), &failure().error));
    assert!(delivery.first_failed <= delivery.last_attempt, "{delivery:?}");
    let wait = delivery.next_attempt.as_millis() - before.as_millis();
    assert!((3_500_000..3_900_000).contains(&wait), "the next attempt is due after {wait} ms, not after an hour");
    assert_eq!(harness.database.retrying_counts().await.unwrap(), [(message.topic.clone(), mailer.clone(), 1)]);

    harness.database.clear_retry(&mailer, &message).await.unwrap();
    harness.database.clear_retry(&mailer, &message).await.unwrap();
    assert_eq!(all(&harness).await, 0);
    assert!(harness.database.retrying_counts().await.unwrap().is_empty());
}

pub async fn delivery_filters_return_matching_deliveries<F: DatabaseFixture>(harness: Harness<F>) {
    let (mailer, stock) = (group("mailer"), group("stock"));
    let (keyed, keyless) = (keyed("a", 1), keyless());
    let other = Message::new(topic("payments"), "p").with_key(Key::new("a").unwrap());
    for (group, message) in [(&mailer, &keyed), (&stock, &keyed), (&mailer, &keyless), (&mailer, &other)] {
        fail(&harness, group, message, 1).await;
    }
    for (filter, expected) in [
        (DeliveryFilter::default(), 4),
        (DeliveryFilter { group: Some(mailer.clone()), ..Default::default() }, 3),
        (DeliveryFilter { topic: Some(topic("payments")), ..Default::default() }, 1),
        (DeliveryFilter { key: keyed.key.clone(), ..Default::default() }, 3),
        (DeliveryFilter { message_id: Some(keyed.id), ..Default::default() }, 2),
        (DeliveryFilter { message_id: Some(keyed.id), group: Some(stock), ..Default::default() }, 1),
    ] {
        let found = harness.database.retrying(&filter, 100).await.unwrap();
        assert_eq!(found.len(), expected, "{filter:?}: {found:?}");
    }
    let first = harness.database.retrying(&DeliveryFilter::default(), 2).await.unwrap();
    assert_eq!(first.len(), 2);
    assert_eq!(harness.database.retrying_counts().await.unwrap().len(), 3);
}

pub async fn handled_delivery_is_hidden_and_removed<F: DatabaseFixture>(harness: Harness<F>) {
    let (mailer, stock, message, other) = (group("mailer"), group("stock"), keyed("a", 1), keyed("b", 1));
    for (group, message) in [(&mailer, &message), (&stock, &message), (&mailer, &other)] {
        fail(&harness, group, message, 1).await;
    }
    // As after a crash: another consumer handled it and knows nothing of the record.
    harness.handle(&mailer, &message).await;
    harness.park(&stock, &message).await;
    let left = harness.database.retrying(&DeliveryFilter::default(), 10).await.unwrap();
    assert_eq!(left.iter().map(|delivery| delivery.message_id).collect::<Vec<_>>(), [other.id]);
    assert_eq!(harness.database.retrying_counts().await.unwrap(), [(other.topic.clone(), mailer, 1)]);
    assert_eq!(harness.database.remove_expired(Expiring::Retries, LONG, 100).await.unwrap(), 2);
    assert_eq!(all(&harness).await, 1);
}

pub async fn overdue_delivery_records_are_removed<F: DatabaseFixture>(harness: Harness<F>) {
    let (mailer, failure) = (group("mailer"), failure());
    for message in [keyed("a", 1), keyed("b", 1), keyed("c", 1)] {
        let retry = Retry { attempts: 1, failure: &failure, after: Duration::ZERO };
        harness.database.record_retry(&mailer, &message, retry).await.unwrap();
    }
    fail(&harness, &mailer, &keyed("d", 1), 1).await;
    assert_eq!(harness.database.remove_expired(Expiring::Retries, LONG, 100).await.unwrap(), 0);
    let mut removed = 0;
    eventually(TIMEOUT, "the overdue records are removed", async || {
        let step = harness.database.remove_expired(Expiring::Retries, Duration::ZERO, 2).await.unwrap();
        assert!(step <= 2, "a step removed too many records: {step}");
        removed += step;
        removed == 3
    })
    .await;
    assert_eq!(all(&harness).await, 1, "a record that is not due was removed");
}

pub async fn admitted_message_names_its_groups<F: DatabaseFixture>(harness: Harness<F>) {
    let (mailer, stock, billing) = (group("mailer"), group("stock"), group("billing"));
    let (message, other) = (keyed("a", 1), keyed("b", 1));
    assert!(harness.database.admitted_by(message.id).await.unwrap().is_empty(), "an empty inbox");
    let before = Timestamp::now();
    harness.handle(&mailer, &message).await;
    harness.park(&stock, &message).await;
    harness.handle(&billing, &other).await;
    let admitted = harness.database.admitted_by(message.id).await.unwrap();
    assert_eq!(admitted.iter().map(|(group, _)| group).collect::<Vec<_>>(), [&mailer, &stock]);
    for (group, time) in admitted {
        let late = time.as_millis() - before.as_millis();
        assert!((-60_000..600_000).contains(&late), "{group} admitted it {late} ms after it was sent");
    }
    assert!(harness.database.admitted_by(keyless().id).await.unwrap().is_empty(), "an unknown message");
}
