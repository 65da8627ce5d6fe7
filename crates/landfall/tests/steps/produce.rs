//! The ids of produced messages, from the outbox to the broker.

use std::sync::Arc;

use landfall::log::Log;
use landfall::produce::{Outbox, Snowflake};
use landfall::{Broker, Outcome, TopicName};
use landfall_testkit::eventually;

use crate::fixture::{Fixture, TIMEOUT, topic};

#[tokio::test(flavor = "multi_thread")]
async fn snowflake_ids_reach_the_broker_in_ascending_order() {
    let fixture = Fixture::new().await;
    let ids = Arc::new(Snowflake::for_topic(3, 7).unwrap());
    let outbox = Outbox::new(fixture.database.clone()).with_snowflakes(topic(), ids);
    let mut sent = Vec::new();
    for number in 0..5 {
        let message = outbox.message(topic(), format!("{number}")).unwrap();
        sent.push(message.id);
        outbox.execute_with_message(message, async |_| Ok::<_, landfall::Error>(())).await.unwrap();
    }
    let other = outbox.message(TopicName::new("other").unwrap(), "").unwrap();
    assert_eq!((other.id.as_snowflake(), other.id.as_uuid().get_version_num()), (None, 7), "only the selected topic");

    fixture.relay();
    eventually(TIMEOUT, "published", async || fixture.stats().await.published == 5).await;
    let mut published: Vec<_> = fixture.broker.published().iter().map(|(_, message)| message.id).collect();
    published.sort();
    assert_eq!(published, sent, "ascending, and the same in outbox and broker");
    for id in published {
        assert_eq!(id.as_snowflake().map(|number| (number >> 12) & 0x3ff), Some(32 * 3 + 7));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn log_stores_a_resent_snowflake_once() {
    let fixture = Fixture::new().await;
    let outbox =
        Outbox::new(fixture.database.clone()).with_snowflakes(topic(), Arc::new(Snowflake::for_topic(0, 0).unwrap()));
    let message = [outbox.message(topic(), "order").unwrap()];
    let folder = tempfile::tempdir().unwrap();
    let mut positions = Vec::new();
    for _ in 0..2 {
        // Reopened in between: the log remembers the id across a restart.
        let log = Log::open(folder.path(), Default::default()).unwrap();
        let outcomes = log.publisher().publish(&message).await;
        let [Outcome::Accepted(position)] = outcomes[..] else { panic!("{outcomes:?}") };
        positions.push(position);
    }
    assert_eq!(positions[0], positions[1]);
}
