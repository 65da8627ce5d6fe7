//! Connections that break between request and answer.

use landfall_core::{Broker, ErrorCode, Outcome};
use landfall_testkit::eventually;
use landfall_testkit::proxy::{CutPoint, Proxy, ProxyCounts, Trigger};
use landfall_testkit::traffic::{keyed, orders, stock};

use crate::support::{SOON, connect, connect_with, shared, traffic};

#[tokio::test(flavor = "multi_thread")]
async fn lost_answer_is_unknown_and_causes_no_duplicate() {
    let Some(server) = shared().await else { return };
    let proxy = Proxy::start(server.address()).await.unwrap();
    let sqs = connect(&format!("http://{}", proxy.address())).await;
    let mut subscriber = sqs.subscribe(&orders(), &stock()).await.unwrap();
    let (publisher, batch) = (sqs.publisher(), [keyed("a", 1), keyed("a", 2)]);

    proxy.cut_next(Trigger::word("SendMessageBatch"), CutPoint::BeforeResponse);
    let outcomes = publisher.publish(&batch).await;
    assert!(matches!(outcomes[0], Outcome::Unknown(_)), "{outcomes:?}");
    assert_eq!(outcomes[1], Outcome::behind_predecessor());

    let outcomes = publisher.publish(&batch).await;
    assert!(outcomes.iter().all(Outcome::is_accepted), "{outcomes:?}");
    for message in &batch {
        let delivery = subscriber.next().await.unwrap().unwrap();
        assert_eq!(delivery.message.as_ref().unwrap().id, message.id, "each message is delivered once and in order");
        delivery.ack().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_receive_answer_does_not_hide_messages() {
    let Some(server) = shared().await else { return };
    let proxy = Proxy::start(server.address()).await.unwrap();
    // A visibility longer than the test: without the lost call's request id the message would stay hidden for that
    // long.
    let sqs = connect_with(&format!("http://{}", proxy.address()), "visibility=1h&timeout=5s&wait=2s").await;
    let message = keyed("a", 1);
    assert!(sqs.publisher().publish(std::slice::from_ref(&message)).await[0].is_accepted());
    proxy.cut_next(Trigger::word("ReceiveMessage"), CutPoint::BeforeResponse);
    let mut subscriber = sqs.subscribe(&orders(), &stock()).await.unwrap();
    let delivery =
        tokio::time::timeout(SOON, subscriber.next()).await.expect("the message is redelivered").unwrap().unwrap();
    assert_eq!(proxy.counts().cut_before_response, 1);
    assert_eq!(delivery.message.unwrap().id, message.id);
}

#[tokio::test(flavor = "multi_thread")]
async fn cuts_during_any_call_lose_and_reorder_nothing() {
    let Some(server) = shared().await else { return };
    let proxy = Proxy::start(server.address()).await.unwrap();
    let sqs = connect(&format!("http://{}", proxy.address())).await;
    let traffic = traffic(&sqs).await;
    traffic.wait_for_progress(50).await;
    for call in ["SendMessageBatch", "ReceiveMessage", "DeleteMessageBatch"] {
        for moment in [CutPoint::BeforeForwarding, CutPoint::BeforeResponse] {
            let cut = |counts: ProxyCounts| counts.cut_before_forwarding + counts.cut_before_response;
            let before = cut(proxy.counts());
            proxy.cut_next(Trigger::word(call), moment);
            eventually(SOON, "the connection is cut", async || cut(proxy.counts()) > before).await;
        }
    }
    proxy.cut_all();
    let counts = proxy.counts();
    assert!(counts.cut_before_forwarding == 3 && counts.cut_before_response == 3, "{counts:?}");
    traffic.wait_for_progress(50).await;
    traffic.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unsent_messages_are_refused_as_retriable() {
    // A port that was just released: no server listens on it.
    let unused = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let sqs = connect(&format!("http://{unused}")).await;
    let outcomes = sqs.publisher().publish(&[keyed("a", 1)]).await;
    let Outcome::Refused(refusal) = &outcomes[0] else { panic!("{outcomes:?}") };
    assert_eq!((&refusal.code, refusal.retriable), (&ErrorCode::UNAVAILABLE, true), "{refusal:?}");
    assert!(!refusal.reason.contains("secret"), "{refusal:?}");
    assert!(sqs.subscribe(&orders(), &stock()).await.is_err_and(|error| error.is_temporary()));
}
