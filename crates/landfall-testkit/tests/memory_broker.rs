//! The broker in memory beyond the suite: faults on demand, the record, and publishing from elsewhere.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use landfall_core::{Broker, ErrorCode, GroupName, Headers, Key, Message, Outcome, Publisher, TopicName};
use landfall_testkit::remote::{DeliverServer, PublishServer, RemoteBroker, RemotePublisher};
use landfall_testkit::{Fault, MemoryBroker, eventually};

fn message(key: &str, sequence: i64) -> Message {
    Message::new(TopicName::new("orders").unwrap(), format!("{key}/{sequence}"))
        .with_key(Key::new(key).unwrap())
        .with_sequence(sequence)
}

fn recorded(broker: &MemoryBroker) -> Vec<Message> {
    broker.published().into_iter().map(|(_, message)| message).collect()
}

#[tokio::test]
async fn everything_is_recorded_in_the_order_of_arrival() {
    let broker = MemoryBroker::new();
    let mut elsewhere = message("a", 2);
    elsewhere.topic = TopicName::new("payments").unwrap();
    let sent = [message("a", 1), elsewhere, message("b", 1), message("a", 3)];
    broker.publish(&sent[..2]).await;
    broker.publish(&sent[2..]).await;
    broker.publish(&sent[..1]).await;
    assert_eq!(recorded(&broker), [&sent[..], &sent[..1]].concat(), "copies included");
    assert_eq!(broker.published().iter().map(|(at, _)| at.offset).collect::<Vec<_>>(), [0, 0, 1, 2, 3]);
}

#[tokio::test]
async fn a_refused_message_holds_back_its_key_for_the_rest_of_the_batch() {
    let broker = MemoryBroker::new();
    broker.fail_next(1, Fault::Refuse);
    let batch = [message("a", 1), message("b", 1), message("a", 2), message("b", 2)];
    let outcomes = broker.publish(&batch).await;
    assert!(matches!(&outcomes[0], Outcome::Refused(refusal) if refusal.retriable));
    assert_eq!(outcomes[2], Outcome::behind_predecessor());
    assert!(outcomes[1].is_accepted() && outcomes[3].is_accepted());
    assert_eq!(recorded(&broker), [batch[1].clone(), batch[3].clone()]);
    assert!(broker.publish(&batch[..1]).await[0].is_accepted(), "only the next one was to fail");
}

#[tokio::test]
async fn messages_that_match_fail_until_healed() {
    let broker = MemoryBroker::new();
    broker.fail_when(|message| message.sequence == Some(1), Fault::RefuseForGood);
    for _ in 0..2 {
        let outcomes = broker.publish(&[message("a", 1), message("b", 2)]).await;
        assert!(matches!(&outcomes[0], Outcome::Refused(refusal) if !refusal.retriable));
        assert!(outcomes[1].is_accepted());
    }
    broker.heal();
    assert!(broker.publish(&[message("a", 1)]).await[0].is_accepted());
}

#[tokio::test]
async fn an_unknown_outcome_says_nothing_about_the_message() {
    for (fault, stored) in [(Fault::UnknownAndLost, 0), (Fault::UnknownAndStored, 1)] {
        let broker = MemoryBroker::new();
        broker.fail_next(1, fault);
        let outcomes = broker.publish(&[message("a", 1), message("a", 2)]).await;
        assert!(matches!(outcomes[0], Outcome::Unknown(_)));
        assert_eq!(outcomes[1], Outcome::behind_predecessor());
        assert_eq!(broker.published().len(), stored, "{fault:?}");
    }
}

#[tokio::test]
async fn a_closed_broker_takes_nothing_and_ends_its_subscribers() {
    let broker = MemoryBroker::new();
    let (orders, group) = (TopicName::new("orders").unwrap(), GroupName::new("stock").unwrap());
    let mut subscriber = broker.subscribe(&orders, &group).await.unwrap();
    let waiting = tokio::spawn(async move { subscriber.next().await.unwrap().is_none() });
    tokio::task::yield_now().await;
    broker.close();
    assert!(tokio::time::timeout(Duration::from_secs(60), waiting).await.unwrap().unwrap());
    assert!(!broker.publish(&[message("a", 1)]).await[0].is_accepted());
}

#[tokio::test]
async fn several_remote_publishers_share_one_broker() {
    let broker = MemoryBroker::new();
    let server = PublishServer::start(broker.clone()).await.unwrap();
    let mut headers = Headers::default();
    headers.insert("tenant", "北京").unwrap();
    let mut binary = message("a", 1).with_headers(headers);
    binary.payload = vec![0, 255, 10].into();
    let large = Message::new(TopicName::new("large").unwrap(), vec![1; 1024 * 1024]);
    for sent in [vec![binary, message("b", 1)], vec![large]] {
        let publisher = RemotePublisher::connect(server.address()).await.unwrap();
        assert!(publisher.publish(&sent).await.iter().all(Outcome::is_accepted));
        assert!(publisher.publish(&[]).await.is_empty());
        assert!(recorded(&broker).ends_with(&sent), "each arrives as it was sent");
    }
    assert_eq!(broker.published().len(), 3);
}

#[tokio::test]
async fn outcomes_travel_as_they_are() {
    let broker = MemoryBroker::new();
    let server = PublishServer::start(broker.clone()).await.unwrap();
    let publisher = RemotePublisher::connect(server.address()).await.unwrap();
    let batch = [message("a", 1), message("a", 2), message("b", 1), message("c", 1), message("d", 1)];
    for fault in [Fault::RefuseForGood, Fault::UnknownAndLost, Fault::Refuse] {
        broker.fail_next(1, fault);
    }
    let remote = publisher.publish(&batch).await;
    for fault in [Fault::RefuseForGood, Fault::UnknownAndLost, Fault::Refuse] {
        broker.fail_next(1, fault);
    }
    let mut local = broker.publish(&batch).await;
    assert!(remote[4].is_accepted());
    local[4] = remote[4].clone(); // The copy stands one offset further on.
    assert_eq!(remote, local);
}

#[tokio::test]
async fn a_lost_answer_is_unknown_and_a_missing_server_a_refusal() {
    // A server that takes everything and answers nothing, until it is gone.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = silent.local_addr().unwrap();
    let patience = Duration::from_millis(100);
    let publisher = RemotePublisher::connect_with(address, patience).await.unwrap();
    let (held, _) = silent.accept().await.unwrap();
    let batch = [message("a", 1), message("a", 2)];
    let outcomes = publisher.publish(&batch).await;
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Outcome::Unknown(_))), "{outcomes:?}");
    assert_eq!(outcomes.len(), 2);

    drop((held, silent));
    eventually(Duration::from_secs(60), "the refusal says that nothing was sent", async || {
        let outcomes = publisher.publish(&batch).await;
        outcomes.iter().all(|outcome| {
            matches!(outcome, Outcome::Refused(refusal) if refusal.code == ErrorCode::UNAVAILABLE && refusal.retriable)
        })
    })
    .await;
    assert!(RemotePublisher::connect(address).await.is_err());
}

#[tokio::test]
async fn a_publisher_connects_again_when_the_server_is_back() {
    let broker = MemoryBroker::new();
    let server = PublishServer::start(broker.clone()).await.unwrap();
    let (address, soon) = (server.address(), Duration::from_secs(20));
    let publisher = RemotePublisher::connect(address).await.unwrap();
    assert!(publisher.publish(&[message("a", 1)]).await[0].is_accepted());
    drop(server);
    eventually(soon, "the server is gone", async || !publisher.publish(&[message("a", 2)]).await[0].is_accepted())
        .await;

    let mut server = None;
    eventually(soon, "the port is free again", async || {
        server = PublishServer::start_on(address, broker.clone()).await.ok();
        server.is_some()
    })
    .await;
    eventually(soon, "the publisher is back", async || publisher.publish(&[message("a", 3)]).await[0].is_accepted())
        .await;
    assert_eq!(recorded(&broker).last().unwrap().sequence, Some(3));
}

/// What a consumer had in its hands when its connection broke goes to the next one, in order; what it had finished not.
#[tokio::test]
async fn a_consumer_from_elsewhere_gets_what_the_one_before_did_not_finish() {
    let broker = MemoryBroker::new();
    let (orders, group) = (TopicName::new("orders").unwrap(), GroupName::new("stock").unwrap());
    let publish = PublishServer::start(broker.clone()).await.unwrap();
    let deliver = DeliverServer::start(broker, orders.clone(), group.clone()).await.unwrap();
    let remote = RemoteBroker::connect(publish.address(), deliver.address()).await.unwrap();
    let sent: Vec<_> = (1..=5).map(|sequence| message("a", sequence)).collect();
    assert!(remote.publisher().publish(&sent).await.iter().all(Outcome::is_accepted));

    let mut first = remote.subscribe(&orders, &group).await.unwrap();
    let mut held = Vec::new();
    for expected in &sent[..4] {
        let delivery = first.next().await.unwrap().unwrap();
        assert_eq!(delivery.message.as_ref().unwrap(), expected);
        held.push(delivery);
    }
    held.remove(1).ack().await.unwrap();
    held.remove(1).nack(Duration::ZERO).await.unwrap();
    // What was given back comes before what was never handed out only if the answer was faster; both come.
    let (fifth, third) = (first.next().await.unwrap().unwrap(), first.next().await.unwrap().unwrap());
    let mut both = [fifth.message.as_ref().unwrap().sequence, third.message.as_ref().unwrap().sequence];
    both.sort_unstable();
    assert_eq!(both, [Some(3), Some(5)]);
    // Both connections are open; the second has its turn when the first is gone.
    let mut second = remote.subscribe(&orders, &group).await.unwrap();
    assert!(tokio::time::timeout(Duration::from_millis(50), second.next()).await.is_err());
    std::mem::forget((held, fifth, third));
    drop(first);
    for expected in [1, 3, 4, 5] {
        let delivery = second.next().await.unwrap().unwrap();
        assert_eq!(delivery.message.as_ref().unwrap().sequence, Some(expected));
        delivery.ack().await.unwrap();
    }
}
