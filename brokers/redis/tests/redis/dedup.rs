//! How long duplicates are recognized.

use std::time::Duration;

use landfall_core::{Broker, Message, Outcome};
use landfall_redis::Redis;
use landfall_testkit::eventually;
use landfall_testkit::traffic::{keyed, orders};

use crate::support::{SOON, options_for, shared};

/// Ids are kept in two sets, and the older one is dropped as a whole. An id is kept for at least one window, and
/// expires.
#[tokio::test(flavor = "multi_thread")]
async fn duplicates_are_recognized_after_rotation_and_ids_expire() {
    let Some(server) = shared().await else { return };
    let options = options_for(server.port(), "partitions=1&dedup=4s");
    let shard = format!("{}{{{}/0}}", options.prefix, orders());
    let number = async |command: &str| -> i64 {
        let answer = server.ask(&command.replace("SHARD", &shard)).await.unwrap();
        answer.lines().last().unwrap().trim_start_matches(':').parse().unwrap()
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

    // The first message after a window rotates the sets.
    let mut sent = 1;
    eventually(Duration::from_secs(60), "the recent ids become the older ones", async || {
        sent += 1;
        assert!(publish(&keyed("a", sent)).await.is_accepted());
        number("HGET SHARD:recent since").await > since
    })
    .await;
    assert_eq!(publish(&first).await, accepted, "the duplicate has the position of the original");
    assert_eq!(redis.topics().await.unwrap()[0].messages, sent as u64);
    for ids in ["recent", "older"] {
        let left = number(&format!("PTTL SHARD:{ids}")).await;
        assert!((1..=8_000).contains(&left), "the {ids} ids expire in {left} ms");
    }
    let gone = async || number("EXISTS SHARD:recent SHARD:older").await == 0;
    eventually(SOON, "the ids expire without further messages", gone).await;
}
