//! Group members: how they share streams, and takeover of unacknowledged messages.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use landfall_core::adapter::{Delivery, Subscriber};
use landfall_core::{Broker, GroupName, Message, TopicAdministration};
use landfall_redis::Redis;
use landfall_testkit::eventually;
use landfall_testkit::proxy::Proxy;
use landfall_testkit::servers::RedisServer;
use landfall_testkit::traffic::{keyed, orders, stock};

use crate::support::{SOON, connect, options_for, own, shared};

async fn join(redis: &Redis) -> Box<dyn Subscriber> {
    redis.subscribe(&orders(), &stock()).await.unwrap()
}

async fn next(subscriber: &mut Box<dyn Subscriber>) -> Delivery {
    tokio::time::timeout(SOON, subscriber.next()).await.expect("a delivery arrives in time").unwrap().unwrap()
}

async fn publish(redis: &Redis, messages: &[Message]) {
    let outcomes = redis.publisher().publish(messages).await;
    assert!(outcomes.iter().all(landfall_core::Outcome::is_accepted), "{outcomes:?}");
}

/// One message for each of `count` keys, which cover all partitions.
fn spread(count: i64, sequence: i64) -> Vec<Message> {
    (0..count).map(|n| keyed(&format!("key-{n}"), sequence)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn members_share_partitions_exclusively() {
    let Some(server) = shared().await else { return };
    let options = options_for(server.port(), "lease=1s");
    let redis = Redis::connect(options).await.unwrap();
    let (mut one, mut two) = (join(&redis).await, join(&redis).await);
    let mut sequence = 0;
    // Both members acknowledge at once, so that partitions can move between them.
    let shares = async |one: &mut Box<dyn Subscriber>, two: &mut Box<dyn Subscriber>, sequence: i64| {
        publish(&redis, &spread(64, sequence)).await;
        let (mut of_one, mut of_two, mut seen) = (BTreeSet::new(), BTreeSet::new(), 0);
        while seen < 64 {
            let (delivery, partitions) = tokio::select! {
                delivery = next(one) => (delivery, &mut of_one),
                delivery = next(two) => (delivery, &mut of_two),
            };
            partitions.insert(delivery.position.partition);
            delivery.ack().await.unwrap();
            seen += 1;
        }
        (of_one, of_two)
    };
    eventually(SOON, "each has half of the partitions", async || {
        sequence += 1;
        let (of_one, of_two) = shares(&mut one, &mut two, sequence).await;
        of_one.len() == 4 && of_two.len() == 4 && of_one.is_disjoint(&of_two)
    })
    .await;

    // One member leaves, and the other takes over all partitions.
    one.close().await.unwrap();
    publish(&redis, &spread(64, sequence + 1)).await;
    let mut partitions = BTreeSet::new();
    for _ in 0..64 {
        let delivery = next(&mut two).await;
        partitions.insert(delivery.position.partition);
        delivery.ack().await.unwrap();
    }
    assert_eq!(partitions.len(), 8);
}

#[tokio::test(flavor = "multi_thread")]
async fn late_acknowledgement_of_a_lost_member_is_harmless() {
    let Some(server) = shared().await else { return };
    let proxy = Proxy::start(SocketAddr::from((Ipv4Addr::LOCALHOST, server.port()))).await.unwrap();
    let parameters = "lease=1s&timeout=5s&connect_timeout=5s&in_flight=4&partitions=1";
    let mut options = options_for(server.port(), parameters);
    let healthy = Redis::connect(options.clone()).await.unwrap();
    options.hosts = vec![("127.0.0.1".into(), proxy.address().port())];
    let cut_off = Redis::connect(options).await.unwrap();

    let messages: Vec<_> = (1..=10).map(|n| keyed("a", n)).collect();
    publish(&healthy, &messages).await;
    let mut stale = join(&cut_off).await;
    let mut unacknowledged = Vec::new();
    for _ in 0..4 {
        unacknowledged.push(next(&mut stale).await);
    }
    proxy.refuse();
    proxy.cut_all();

    // Another member waits until the lease expires, and then receives everything in order.
    let mut other = join(&healthy).await;
    let mut numbers = Vec::new();
    for _ in 0..4 {
        let delivery = next(&mut other).await;
        numbers.push(delivery.message.as_ref().unwrap().sequence.unwrap());
        delivery.ack().await.unwrap();
    }
    // The disconnected member acknowledges its deliveries, and reconnects.
    for delivery in unacknowledged {
        delivery.ack().await.unwrap();
    }
    proxy.heal();
    publish(&healthy, &[keyed("a", 11)]).await;
    // Eventually it regains the partition, because it is the older member.
    while numbers.len() < 11 {
        let delivery = tokio::select! {
            delivery = next(&mut other) => delivery,
            delivery = next(&mut stale) => delivery,
        };
        let number = delivery.message.as_ref().unwrap().sequence.unwrap();
        if !numbers.contains(&number) {
            numbers.push(number);
        }
        delivery.ack().await.unwrap();
    }
    assert_eq!(numbers, (1..=11).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn member_without_its_lease_reads_nothing() {
    let Some(server) = shared().await else { return };
    let options = options_for(server.port(), "partitions=1&lease=30s");
    let redis = Redis::connect(options.clone()).await.unwrap();
    let mut subscriber = join(&redis).await;
    publish(&redis, &[keyed("a", 1)]).await;
    next(&mut subscriber).await.ack().await.unwrap();
    // Another member suddenly holds the lease, as after a long pause of this process.
    let lease = format!("{}{{orders/0}}:lease:stock", options.prefix);
    assert!(server.ask(&format!("SET {lease} other-member PX 60000")).await.unwrap().starts_with("+OK"));
    publish(&redis, &[keyed("a", 2)]).await;
    let stream = format!("{}{{orders/0}}", options.prefix);
    let early = tokio::time::timeout(Duration::from_millis(500), subscriber.next()).await;
    assert!(early.is_err(), "{early:?}");
    // No entry became pending either.
    let pending = server.ask(&format!("XPENDING {stream} stock")).await.unwrap();
    assert!(pending.starts_with("*4\r\n:0\r\n"), "{pending}");
    server.ask(&format!("DEL {lease}")).await.unwrap();
    assert_eq!(
        next(&mut subscriber).await.message.as_ref().unwrap().sequence,
        Some(2),
        "delivered after the lease expired"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn deliveries_stop_at_the_in_flight_limit() {
    let Some(server) = shared().await else { return };
    let redis = connect(server.port(), "in_flight=5").await;
    publish(&redis, &spread(20, 1)).await;
    let mut subscriber = join(&redis).await;
    let mut unacknowledged = Vec::new();
    for _ in 0..5 {
        unacknowledged.push(next(&mut subscriber).await);
    }
    let more = tokio::time::timeout(Duration::from_millis(300), subscriber.next()).await;
    assert!(more.is_err(), "{more:?}");
    for delivery in unacknowledged {
        delivery.ack().await.unwrap();
    }
    for _ in 0..15 {
        next(&mut subscriber).await.ack().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_group_is_created_again() {
    let Some(server) = own().await else { return };
    let redis = connect(server.port(), "lease=1s").await;
    let mut subscriber = join(&redis).await;
    publish(&redis, &spread(8, 1)).await;
    for _ in 0..8 {
        next(&mut subscriber).await.ack().await.unwrap();
    }
    server.flush().await.unwrap();
    publish(&redis, &spread(8, 2)).await;
    for _ in 0..8 {
        let delivery = next(&mut subscriber).await;
        assert_eq!(delivery.message.as_ref().unwrap().sequence, Some(2));
        delivery.ack().await.unwrap();
    }
    assert_eq!(redis.topics().await.unwrap()[0].messages, 8);
}

#[tokio::test(flavor = "multi_thread")]
async fn trimming_keeps_messages_that_a_group_needs() {
    // A server of its own, because the test counts commands. A member that lost its lease would get message 300 twice.
    let Some(server) = own().await else { return };
    let redis = connect(server.port(), "retention=0&trim_every=300ms&lease=15s&partitions=1&in_flight=2000").await;
    let mut stock = join(&redis).await;
    let payment = redis.subscribe(&orders(), &GroupName::new("payment").unwrap()).await.unwrap();
    payment.close().await.unwrap();
    let messages: Vec<_> = (1..=1_000).map(|n| keyed("a", n)).collect();
    publish(&redis, &messages).await;
    let left = async || redis.topics().await.unwrap()[0].messages;

    // One group has acknowledged everything and the other has read nothing: nothing is removed.
    for _ in 0..1_000 {
        next(&mut stock).await.ack().await.unwrap();
    }
    let rounds = trims(&server).await;
    eventually(SOON, "trimming has run", async || trims(&server).await >= rounds + 3).await;
    assert_eq!(left().await, 1_000);

    // The other group has acknowledged all but message 300. Earlier messages may be removed, in whole nodes of the
    // stream; message 300 may not.
    let mut payment = redis.subscribe(&orders(), &GroupName::new("payment").unwrap()).await.unwrap();
    let mut kept = None;
    for number in 1..=1_000 {
        let delivery = next(&mut payment).await;
        match number {
            300 => kept = Some(delivery),
            _ => delivery.ack().await.unwrap(),
        }
    }
    eventually(SOON, "messages that both groups acknowledged are removed", async || left().await < 1_000).await;
    let rounds = trims(&server).await;
    eventually(SOON, "trimming has run again", async || trims(&server).await >= rounds + 3).await;
    assert!((701..=900).contains(&left().await), "{} are left", left().await);
    drop(kept);
    payment.close().await.unwrap();
    let mut payment = redis.subscribe(&orders(), &GroupName::new("payment").unwrap()).await.unwrap();
    let last = next(&mut payment).await;
    assert_eq!(last.message.as_ref().unwrap().sequence, Some(300));
    last.ack().await.unwrap();
    eventually(SOON, "the rest is removed", async || left().await < 200).await;
}

/// Number of XTRIM calls so far.
async fn trims(server: &RedisServer) -> u64 {
    let stats = server.ask("INFO commandstats").await.unwrap();
    let calls = stats.split("cmdstat_xtrim:calls=").nth(1).and_then(|rest| rest.split(',').next());
    calls.and_then(|calls| calls.parse().ok()).unwrap_or(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_entries_do_not_block_the_others() {
    let Some(server) = shared().await else { return };
    let options = options_for(server.port(), "partitions=1&in_flight=3");
    let redis = Redis::connect(options.clone()).await.unwrap();
    publish(&redis, &(1..=6).map(|n| keyed("a", n)).collect::<Vec<_>>()).await;
    let mut subscriber = join(&redis).await;
    let unacknowledged = [next(&mut subscriber).await, next(&mut subscriber).await];
    let id = unacknowledged[1].position.offset;
    let stream = format!("{}{{orders/0}}", options.prefix);
    let deleted = server.ask(&format!("XDEL {stream} {}-{}", id >> 21, id & ((1 << 21) - 1))).await.unwrap();
    assert!(deleted.starts_with(":1"), "{deleted}");
    subscriber.close().await.unwrap();
    drop(unacknowledged);
    let mut subscriber = join(&redis).await;
    let mut numbers = Vec::new();
    for _ in 0..5 {
        let delivery = next(&mut subscriber).await;
        numbers.push(delivery.message.as_ref().unwrap().sequence.unwrap());
        delivery.ack().await.unwrap();
    }
    assert_eq!(numbers, [1, 3, 4, 5, 6]);
}

#[tokio::test(flavor = "multi_thread")]
async fn stopped_clock_does_not_exhaust_the_sequence() {
    let Some(server) = shared().await else { return };
    let options = options_for(server.port(), "partitions=1");
    let redis = Redis::connect(options.clone()).await.unwrap();
    redis.create_topic(&orders(), None).await.unwrap();
    // As if the clock had been an hour ahead, and this many entries had been appended in that millisecond.
    let ahead = landfall_core::Timestamp::now().as_millis() + 3_600_000;
    let stream = format!("{}{{orders/0}}", options.prefix);
    server.ask(&format!("XADD {stream} {ahead}-1048574 x y")).await.unwrap();
    let mut offsets = Vec::new();
    for number in 1..=4 {
        match redis.publisher().publish(&[keyed("a", number)]).await.remove(0) {
            landfall_core::Outcome::Accepted(position) => offsets.push(position.offset),
            other => panic!("{other:?}"),
        }
    }
    let id = |offset: &u64| (offset >> 21, offset & ((1 << 21) - 1));
    let ahead = ahead as u64;
    let expected = [(ahead, 1_048_575), (ahead, 1_048_576), (ahead + 1, 1), (ahead + 1, 2)];
    assert_eq!(offsets.iter().map(id).collect::<Vec<_>>(), expected);
}
