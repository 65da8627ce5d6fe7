//! The in-memory broker beyond the suite: faults on demand, the record, and remote clients.

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
async fn messages_are_recorded_in_arrival_order() {
    let broker = MemoryBroker::new();
    let mut elsewhere = message("a", 2);
    elsewhere.topic = TopicName::new("payments").unwrap();
    let sent = [message("a", 1), elsewhere, message("b", 1), message("a", 3)];
    broker.publish(&sent[..2]).await;
    broker.publish(&sent[2..]).await;
    broker.publish(&sent[..1]).await;
    assert_eq!(recorded(&broker), [&sent[..], &sent[..1]].concat(), "duplicates are recorded too");
    assert_eq!(broker.published().iter().map(|(at, _)| at.offset).collect::<Vec<_>>(), [0, 0, 1, 2, 3]);
}

#[tokio::test]
async fn refused_message_blocks_its_key_for_the_rest_of_the_batch() {
    let broker = MemoryBroker::new();
    broker.fail_next(1, Fault::Refuse);
    let batch = [message("a", 1), message("b", 1), message("a", 2), message("b", 2)];
    let outcomes = broker.publish(&batch).await;
    assert!(matches!(&outcomes[0], Outcome::Refused(refusal) if refusal.retriable));
    assert_eq!(outcomes[2], Outcome::behind_predecessor());
    assert!(outcomes[1].is_accepted() && outcomes[3].is_accepted());
    assert_eq!(recorded(&broker), [batch[1].clone(), batch[3].clone()]);
    assert!(broker.publish(&batch[..1]).await[0].is_accepted(), "more than one message failed");
}

#[tokio::test]
async fn matching_messages_fail_until_healed() {
    let broker = MemoryBroker::new();
    broker.fail_when(|message| message.sequence == Some(1), Fault::RefusePermanently);
    for _ in 0..2 {
        let outcomes = broker.publish(&[message("a", 1), message("b", 2)]).await;
        assert!(matches!(&outcomes[0], Outcome::Refused(refusal) if !refusal.retriable));
        assert!(outcomes[1].is_accepted());
    }
    broker.heal();
    assert!(broker.publish(&[message("a", 1)]).await[0].is_accepted());
}

#[tokio::test]
async fn unknown_outcome_may_be_stored_or_lost() {
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
async fn closed_broker_refuses_messages_and_ends_subscribers() {
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
async fn remote_publishers_share_one_broker() {
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
        assert!(recorded(&broker).ends_with(&sent), "a message changed");
    }
    assert_eq!(broker.published().len(), 3);
}

#[tokio::test]
async fn outcomes_are_transmitted_unchanged() {
    let broker = MemoryBroker::new();
    let server = PublishServer::start(broker.clone()).await.unwrap();
    let publisher = RemotePublisher::connect(server.address()).await.unwrap();
    let batch = [message("a", 1), message("a", 2), message("b", 1), message("c", 1), message("d", 1)];
    for fault in [Fault::RefusePermanently, Fault::UnknownAndLost, Fault::Refuse] {
        broker.fail_next(1, fault);
    }
    let remote = publisher.publish(&batch).await;
    for fault in [Fault::RefusePermanently, Fault::UnknownAndLost, Fault::Refuse] {
        broker.fail_next(1, fault);
    }
    let mut local = broker.publish(&batch).await;
    assert!(remote[4].is_accepted());
    local[4] = remote[4].clone(); // The second copy has the next offset.
    assert_eq!(remote, local);
}

#[tokio::test]
async fn lost_response_is_unknown_and_missing_server_refuses() {
    // A server that accepts requests and never responds, until it is dropped.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = silent.local_addr().unwrap();
    let timeout = Duration::from_millis(100);
    let publisher = RemotePublisher::connect_with(address, timeout).await.unwrap();
    let (connection, _) = silent.accept().await.unwrap();
    let batch = [message("a", 1), message("a", 2)];
    let outcomes = publisher.publish(&batch).await;
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Outcome::Unknown(_))), "{outcomes:?}");
    assert_eq!(outcomes.len(), 2);

    drop((connection, silent));
    eventually(Duration::from_secs(60), "messages are refused as unavailable", async || {
        let outcomes = publisher.publish(&batch).await;
        outcomes.iter().all(|outcome| {
            matches!(outcome, Outcome::Refused(refusal) if refusal.code == ErrorCode::UNAVAILABLE && refusal.retriable)
        })
    })
    .await;
    assert!(RemotePublisher::connect(address).await.is_err());
}

#[tokio::test]
async fn publisher_reconnects_when_the_server_returns() {
    let broker = MemoryBroker::new();
    let server = PublishServer::start(broker.clone()).await.unwrap();
    let (address, timeout) = (server.address(), Duration::from_secs(20));
    let publisher = RemotePublisher::connect(address).await.unwrap();
    assert!(publisher.publish(&[message("a", 1)]).await[0].is_accepted());
    drop(server);
    eventually(timeout, "the server is gone", async || !publisher.publish(&[message("a", 2)]).await[0].is_accepted())
        .await;

    let mut server = None;
    eventually(timeout, "the port is free again", async || {
        server = PublishServer::start_on(address, broker.clone()).await.ok();
        server.is_some()
    })
    .await;
    eventually(timeout, "the publisher reconnects", async || {
        publisher.publish(&[message("a", 3)]).await[0].is_accepted()
    })
    .await;
    assert_eq!(recorded(&broker).last().unwrap().sequence, Some(3));
}

/// Messages in flight on a broken connection go to the next consumer in order; acknowledged ones do not.
#[tokio::test]
async fn next_remote_consumer_gets_unacked_messages() {
    let broker = MemoryBroker::new();
    let (orders, group) = (TopicName::new("orders").unwrap(), GroupName::new("stock").unwrap());
    let publish = PublishServer::start(broker.clone()).await.unwrap();
    let deliver = DeliverServer::start(broker, orders.clone(), group.clone()).await.unwrap();
    let remote = RemoteBroker::connect(publish.address(), deliver.address()).await.unwrap();
    let sent: Vec<_> = (1..=5).map(|sequence| message("a", sequence)).collect();
    assert!(remote.publisher().publish(&sent).await.iter().all(Outcome::is_accepted));

    let mut first = remote.subscribe(&orders, &group).await.unwrap();
    let mut in_flight = Vec::new();
    for expected in &sent[..4] {
        let delivery = first.next().await.unwrap().unwrap();
        assert_eq!(delivery.message.as_ref().unwrap(), expected);
        in_flight.push(delivery);
    }
    in_flight.remove(1).ack().await.unwrap();
    in_flight.remove(1).nack(Duration::ZERO).await.unwrap();
    // The nacked and the new message arrive in either order.
    let (fifth, third) = (first.next().await.unwrap().unwrap(), first.next().await.unwrap().unwrap());
    let mut both = [fifth.message.as_ref().unwrap().sequence, third.message.as_ref().unwrap().sequence];
    both.sort_unstable();
    assert_eq!(both, [Some(3), Some(5)]);
    // Both connections are open; the server serves the second when the first is closed.
    let mut second = remote.subscribe(&orders, &group).await.unwrap();
    assert!(tokio::time::timeout(Duration::from_millis(50), second.next()).await.is_err());
    std::mem::forget((in_flight, fifth, third));
    drop(first);
    for expected in [1, 3, 4, 5] {
        let delivery = second.next().await.unwrap().unwrap();
        assert_eq!(delivery.message.as_ref().unwrap().sequence, Some(expected));
        delivery.ack().await.unwrap();
    }
}
