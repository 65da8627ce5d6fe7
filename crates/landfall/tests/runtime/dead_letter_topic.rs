//! The dead-letter topic.

use landfall::consume::{Consumer, SequenceCheck, plain};
use landfall::relay::Relay;
use landfall::{Broker, DeadLetterFilter, Message, SystemHeader, TopicName};
use landfall_testkit::eventually;
use tokio_util::sync::CancellationToken;

use crate::batches::{apply, batched};
use crate::database::TestDatabase;
use crate::fixture::{Fixture, TIMEOUT, group, message, topic};
use crate::on_every_database;

on_every_database!(parked_message_is_published_to_the_dlq_topic_with_its_failure);

async fn parked_message_is_published_to_the_dlq_topic_with_its_failure<D: TestDatabase>(fixture: Fixture<D>) {
    let stop = CancellationToken::new();
    let relay = Relay::builder(fixture.database.clone(), fixture.broker.publisher()).build().unwrap();
    let relay = tokio::spawn(relay.run(stop.clone()));
    let (database, broker) = (fixture.database.clone(), fixture.broker.clone());
    let consumer = Consumer::builder(database, broker)
        .topic(topic())
        .group(group())
        .handler(plain(apply::<D>))
        .options(batched(5, 1))
        .sequence_check(SequenceCheck::Newest)
        .dead_letter_topic()
        .build()
        .unwrap();
    let consumer = tokio::spawn(consumer.run(stop.clone()));

    let mut poison = message("a", 7, "poison");
    poison.headers.insert("tenant", "北京").unwrap();
    let failing = Message { payload: "line\nbreak".into(), ..message("b", 1, "failing") };
    let waiting = message("a", 8, "good");
    let stale = message("c", 2, "good");
    // Offset 5 is stale; the duplicate of the poison message makes no second dead letter.
    let sent =
        [poison.clone(), failing.clone(), waiting.clone(), poison.clone(), message("c", 3, "good"), stale.clone()];
    fixture.publish(&sent).await;

    let letters = TopicName::new("orders.dlq").unwrap();
    let found = || -> Vec<Message> {
        let all = fixture.broker.published().into_iter().map(|(_, message)| message);
        all.filter(|message| message.topic == letters).collect()
    };
    eventually(TIMEOUT, "three letters", async || found().len() == 3).await;
    fixture.settle(5).await;
    assert_eq!(found().len(), 3, "one for each parked message, none for a waiting one: {:?}", found());
    // A redrive fails: it is parked and published again.
    let again = DeadLetterFilter { message_id: Some(poison.id), ..Default::default() };
    fixture.database.redrive(&again, "test").await.unwrap();
    eventually(TIMEOUT, "a fourth letter", async || found().len() == 4).await;
    let attempts = |letter: &Message| letter.headers.noted(SystemHeader::Attempts).map(ToOwned::to_owned);
    assert_eq!(attempts(&found()[3]).as_deref(), Some("2"), "all attempts are counted");
    stop.cancel();
    consumer.await.unwrap().unwrap();
    relay.await.unwrap().unwrap();

    let found = found();
    assert_eq!(found.len(), 4);
    let letter = |of: &Message| found.iter().find(|letter| letter.id == of.id).unwrap();
    let header = |of: &Message, name: &str| letter(of).headers.get(name).map(ToOwned::to_owned);
    assert_eq!((&letter(&poison).key, &letter(&poison).payload), (&poison.key, &poison.payload));
    assert_eq!(header(&poison, "tenant").as_deref(), Some("北京"));
    for (name, value) in [
        ("landfall-attempts", "1"),
        ("landfall-group", "stock"),
        ("landfall-original-topic", "orders"),
        ("landfall-original-partition", "0"),
        ("landfall-original-offset", "0"),
        ("landfall-error-code", "POISON"),
        ("landfall-error", "it is poison"),
    ] {
        assert_eq!(header(&poison, name).as_deref(), Some(value), "{name}");
    }
    assert!(header(&poison, "landfall-failed-at").is_some());
    assert_eq!(header(&failing, "landfall-attempts").as_deref(), Some("3"));
    assert_eq!(header(&stale, "landfall-error-code").as_deref(), Some("VERSION_CONFLICT"));
    assert_eq!(header(&stale, "landfall-original-offset").as_deref(), Some("5"));
}
