//! Each kind of refusal has its own error code.

use std::sync::Arc;

use landfall_core::adapter::Subscriber;
use landfall_core::{Broker, ErrorCode, ErrorKind, Message, Outcome, Publisher, StartAt, TopicAdministration};
use landfall_redis::{Options, Redis};
use landfall_testkit::servers::{RedisOptions, RedisServer};
use landfall_testkit::traffic::{Traffic, keyed, orders, stock};
use landfall_testkit::{current_test, eventually};

use crate::support::{SOON, connect, options_for, own, shared};

async fn refusal(publisher: &Arc<dyn Publisher>, message: &Message) -> (ErrorCode, bool) {
    match publisher.publish(std::slice::from_ref(message)).await.remove(0) {
        Outcome::Refused(refusal) => (refusal.code, refusal.retriable),
        other => panic!("{other:?}"),
    }
}

async fn next_sequence(subscriber: &mut Box<dyn Subscriber>) -> i64 {
    let delivery = tokio::time::timeout(SOON, subscriber.next()).await.unwrap().unwrap().unwrap();
    let sequence = delivery.message.as_ref().unwrap().sequence.unwrap();
    delivery.ack().await.unwrap();
    sequence
}

#[tokio::test(flavor = "multi_thread")]
async fn publish_is_denied_until_the_permission_is_granted() {
    let Some(server) = own().await else { return };
    let allow = "ACL SETUSER shop on >secret ~* &* +@all";
    server.ask(allow).await.unwrap();
    let url = format!("redis://shop:secret@127.0.0.1:{}/0?lease=1s", server.port());
    let redis = Redis::connect(Options::from_url(&url).unwrap()).await.unwrap();
    let publisher = redis.publisher();
    let mut subscriber = redis.subscribe(&orders(), &stock()).await.unwrap();
    assert!(publisher.publish(&[keyed("a", 1)]).await[0].is_accepted());
    assert_eq!(next_sequence(&mut subscriber).await, 1);

    let message = keyed("a", 2);
    // Without any command, without XADD, without these keys, and finally without the account.
    for rights in ["-@all", "+@all -xadd", "resetkeys ~other:*"] {
        server.ask(&format!("ACL SETUSER shop {rights}")).await.unwrap();
        assert_eq!(refusal(&publisher, &message).await, (ErrorCode::DENIED, true), "{rights}");
        server.ask(allow).await.unwrap();
    }
    server.ask("ACL DELUSER shop").await.unwrap();
    let mut codes = Vec::new();
    eventually(SOON, "the deleted account is denied", async || {
        // Redis closes the open connection, which a call may notice midway.
        if let Outcome::Refused(refusal) = publisher.publish(std::slice::from_ref(&message)).await.remove(0) {
            codes.push(refusal.code);
        }
        codes.last() == Some(&ErrorCode::DENIED)
    })
    .await;

    server.ask(allow).await.unwrap();
    eventually(SOON, "the message is accepted again", async || {
        publisher.publish(std::slice::from_ref(&message)).await[0].is_accepted()
    })
    .await;
    // The subscriber has waited all the time. The acknowledgement of the first message may have been lost; it is then
    // redelivered when the member acquires the lease again.
    let mut next = next_sequence(&mut subscriber).await;
    while next == 1 {
        next = next_sequence(&mut subscriber).await;
    }
    assert_eq!(next, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn full_memory_is_refused_and_loses_nothing() {
    let Some(server) = own().await else { return };
    let options = options_for(server.port(), "timeout=2s");
    let redis = Arc::new(Redis::connect(options).await.unwrap());
    let traffic = Traffic::start(redis.clone(), [redis.clone() as _]).await;
    traffic.wait_for_progress(500).await;
    server.ask("CONFIG SET maxmemory 1").await.unwrap();
    traffic.wait_for_refusal(ErrorCode::STORAGE_FULL).await;
    let probe = keyed("probe", 1);
    assert_eq!(refusal(&redis.publisher(), &probe).await, (ErrorCode::STORAGE_FULL, true));
    server.ask("CONFIG SET maxmemory 0").await.unwrap();
    traffic.wait_for_progress(500).await;
    traffic.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_snapshot_is_refused_as_full() {
    let options = RedisOptions::default().with("save", "3600 1").with("stop-writes-on-bgsave-error", "yes");
    let Some(server) = RedisServer::start_with(&current_test(), options).await else { return };
    let redis = connect(server.port(), "").await;
    let publisher = redis.publisher();
    assert!(publisher.publish(&[keyed("a", 1)]).await[0].is_accepted());
    // A directory in the place of the file makes the snapshot fail.
    std::fs::create_dir(server.folder().join("dump.rdb")).unwrap();
    server.ask("BGSAVE").await.unwrap();
    let message = keyed("a", 2);
    eventually(SOON, "Redis refuses writes", async || !publisher.publish(&[keyed("probe", 1)]).await[0].is_accepted())
        .await;
    assert_eq!(refusal(&publisher, &message).await, (ErrorCode::STORAGE_FULL, true));
    server.ask("CONFIG SET stop-writes-on-bgsave-error no").await.unwrap();
    assert!(publisher.publish(&[message]).await[0].is_accepted());
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_topic_is_unknown_until_created() {
    let Some(server) = shared().await else { return };
    let redis = connect(server.port(), "create=false&lease=1s").await;
    let publisher = redis.publisher();
    let message = keyed("a", 1);
    assert_eq!(refusal(&publisher, &message).await, (ErrorCode::UNKNOWN_TOPIC, true));
    let missing = redis.read(&orders(), StartAt::Beginning).await.err().unwrap();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    let mut waiting = redis.subscribe(&orders(), &stock()).await.unwrap();

    assert!(redis.create_topic(&orders(), Some(3)).await.unwrap());
    assert!(!redis.create_topic(&orders(), None).await.unwrap(), "the topic exists");
    let conflict = redis.create_topic(&orders(), Some(4)).await.unwrap_err();
    assert_eq!(conflict.kind(), ErrorKind::Conflict);
    assert_eq!(redis.topics().await.unwrap()[0].partitions, 3);
    assert!(publisher.publish(&[message]).await[0].is_accepted());
    assert_eq!(next_sequence(&mut waiting).await, 1);

    assert!(redis.delete_topic(&orders()).await.unwrap());
    assert!(!redis.delete_topic(&orders()).await.unwrap(), "the topic is already deleted");
    assert_eq!(refusal(&publisher, &keyed("a", 2)).await, (ErrorCode::UNKNOWN_TOPIC, true));
}

#[tokio::test(flavor = "multi_thread")]
async fn publisher_notices_a_recreated_topic() {
    let Some(server) = shared().await else { return };
    let options = options_for(server.port(), "");
    let (one, other) = (Redis::connect(options.clone()).await.unwrap(), Redis::connect(options).await.unwrap());
    let publisher = one.publisher();
    assert!(publisher.publish(&[keyed("a", 1)]).await[0].is_accepted());
    other.delete_topic(&orders()).await.unwrap();
    other.create_topic(&orders(), Some(3)).await.unwrap();
    let messages: Vec<_> = (0..30).map(|n| keyed(&format!("key-{n}"), 1)).collect();
    for outcome in publisher.publish(&messages).await {
        let Outcome::Accepted(position) = outcome else { panic!("{outcome:?}") };
        assert!(position.partition < 3);
    }
}

/// The hash of remembered ids has a copy of the number of shards, which must not become stale.
#[tokio::test(flavor = "multi_thread")]
async fn topic_recreated_after_registry_loss_accepts_messages() {
    let Some(server) = shared().await else { return };
    let options = options_for(server.port(), "");
    let (registry, fewer) = (format!("{}topics", options.prefix), Options { partitions: 3, ..options.clone() });
    let messages = |sequence| (0..30).map(|n| keyed(&format!("key-{n}"), sequence)).collect::<Vec<_>>();
    let redis = Redis::connect(options).await.unwrap();
    assert!(redis.publisher().publish(&messages(1)).await.iter().all(Outcome::is_accepted));
    server.ask(&format!("DEL {registry}")).await.unwrap();
    let redis = Redis::connect(fewer).await.unwrap();
    for outcome in redis.publisher().publish(&messages(2)).await {
        let Outcome::Accepted(position) = outcome else { panic!("{outcome:?}") };
        assert!(position.partition < 3);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn too_large_payload_holds_back_only_its_key() {
    let options = RedisOptions::durable().with("proto-max-bulk-len", "1mb");
    let Some(server) = RedisServer::start_with(&current_test(), options).await else { return };
    let redis = connect(server.port(), "").await;
    let mut batch = vec![keyed("a", 1), keyed("b", 1), keyed("b", 2), keyed("a", 2), keyed("c", 1)];
    batch[1].payload = vec![7; 1024 * 1024 + 1].into();
    batch[4].payload = vec![7; 1024 * 1024].into();
    let outcomes = redis.publisher().publish(&batch).await;
    let [Outcome::Accepted(_), Outcome::Refused(large), Outcome::Refused(behind), rest @ ..] = &outcomes[..] else {
        panic!("{outcomes:?}")
    };
    assert_eq!((&large.code, large.retriable), (&ErrorCode::TOO_LARGE, false), "{large:?}");
    assert_eq!((&behind.code, behind.retriable), (&ErrorCode::PREDECESSOR, true), "{behind:?}");
    assert!(rest.iter().all(Outcome::is_accepted), "{rest:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn too_many_headers_hold_back_only_their_key() {
    let Some(server) = shared().await else { return };
    let redis = connect(server.port(), "").await;
    let mut batch = vec![keyed("a", 1), keyed("b", 1), keyed("b", 2), keyed("a", 2)];
    (0..3_001).for_each(|n| batch[1].headers.insert(&format!("h{n}"), "").unwrap());
    let outcomes = redis.publisher().publish(&batch).await;
    let [Outcome::Accepted(_), Outcome::Refused(large), Outcome::Refused(behind), Outcome::Accepted(_)] = &outcomes[..]
    else {
        panic!("{outcomes:?}")
    };
    assert_eq!((&large.code, large.retriable), (&ErrorCode::TOO_LARGE, false));
    assert_eq!((&behind.code, behind.retriable), (&ErrorCode::PREDECESSOR, true));

    // The maximum number is accepted.
    let mut most = keyed("b", 3);
    (0..3_000).for_each(|n| most.headers.insert(&format!("h{n}"), "").unwrap());
    assert!(redis.publisher().publish(std::slice::from_ref(&most)).await[0].is_accepted());
}

#[tokio::test(flavor = "multi_thread")]
async fn batch_larger_than_one_call_keeps_order() {
    let Some(server) = shared().await else { return };
    let redis = connect(server.port(), "partitions=1").await;
    let mut batch: Vec<_> = (1..=2_500).map(|n| keyed("a", n)).collect();
    batch[10].payload = vec![7; 5 * 1024 * 1024].into();
    let outcomes = redis.publisher().publish(&batch).await;
    assert!(outcomes.iter().all(Outcome::is_accepted));
    let mut reader = redis.read(&orders(), StartAt::Beginning).await.unwrap();
    let stored = reader.read(3_000).await.unwrap();
    let numbers: Vec<_> = stored.iter().map(|stored| stored.message.as_ref().unwrap().sequence.unwrap()).collect();
    assert_eq!(numbers, (1..=2_500).collect::<Vec<_>>());
}
