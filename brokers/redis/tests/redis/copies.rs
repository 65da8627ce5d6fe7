//! How long a copy of a message is known as one.

use std::time::Duration;

use landfall_core::{Broker, Message, Outcome};
use landfall_redis::Redis;
use landfall_testkit::eventually;
use landfall_testkit::traffic::{keyed, orders};

use crate::support::{SOON, options_for, shared};

/// Ids are kept in two sets, of which the older goes as a whole: for one window at least, and not for ever.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_is_known_when_the_recent_ids_have_become_the_older_ones_and_no_id_stays_for_ever() {
    let Some(server) = shared().await else { return };
    let options = options_for(server.port(), "partitions=1&dedup=4s");
    let shard = format!("{}{{{}/0}}", options.prefix, orders());
    let number = async |command: &str| -> i64 {
        let told = server.ask(&command.replace("SHARD", &shard)).await.unwrap();
        told.lines().last().unwrap().trim_start_matches(':').parse().unwrap()
    };
    let redis = Redis::connect(options).await.unwrap();
    let publisher = redis.publisher();
    let publish =
        async |message: &Message| -> Outcome { publisher.publish(std::slice::from_ref(message)).await.remove(0) };
    let first = keyed("a", 1);
    let accepted = publish(&first).await;
    assert!(accepted.is_accepted(), "{accepted:?}");
    let since = number("HGET SHARD:recent since").await;
    assert!((1..=8_000).contains(&number("PTTL SHARD:recent").await));

    // The sets change places with the first message after a window.
    let mut sent = 1;
    eventually(Duration::from_secs(60), "the recent ids are the older ones", async || {
        sent += 1;
        assert!(publish(&keyed("a", sent)).await.is_accepted());
        number("HGET SHARD:recent since").await > since
    })
    .await;
    assert_eq!(publish(&first).await, accepted, "it is where the first one is");
    assert_eq!(redis.topics().await.unwrap()[0].messages, sent as u64);
    for ids in ["recent", "older"] {
        let left = number(&format!("PTTL SHARD:{ids}")).await;
        assert!((1..=8_000).contains(&left), "the {ids} ids stay for {left} ms");
    }
    let gone = async || number("EXISTS SHARD:recent SHARD:older").await == 0;
    eventually(SOON, "nobody publishes any more, and the ids are gone", gone).await;
}
