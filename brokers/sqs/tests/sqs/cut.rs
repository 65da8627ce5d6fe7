//! Connections that break between the request and the answer.

use landfall_core::{Broker, ErrorCode, Outcome};
use landfall_testkit::eventually;
use landfall_testkit::proxy::{Moment, Proxy, ProxyCounts, Trigger};
use landfall_testkit::traffic::{keyed, orders, stock};

use crate::support::{SOON, connect, connect_with, shared, traffic};

#[tokio::test(flavor = "multi_thread")]
async fn what_was_cut_off_before_its_answer_is_unknown_and_lands_once() {
    let Some(server) = shared().await else { return };
    let proxy = Proxy::start(server.address()).await.unwrap();
    let sqs = connect(&format!("http://{}", proxy.address())).await;
    let mut subscriber = sqs.subscribe(&orders(), &stock()).await.unwrap();
    let (publisher, batch) = (sqs.publisher(), [keyed("a", 1), keyed("a", 2)]);

    proxy.cut_next(Trigger::word("SendMessageBatch"), Moment::BeforeTheAnswer);
    let outcomes = publisher.publish(&batch).await;
    assert!(matches!(outcomes[0], Outcome::Unknown(_)), "{outcomes:?}");
    assert_eq!(outcomes[1], Outcome::behind_predecessor());

    let outcomes = publisher.publish(&batch).await;
    assert!(outcomes.iter().all(Outcome::is_accepted), "{outcomes:?}");
    for message in &batch {
        let delivery = subscriber.next().await.unwrap().unwrap();
        assert_eq!(delivery.message.as_ref().unwrap().id, message.id, "each once and in order");
        delivery.ack().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_of_a_receive_whose_answer_was_lost_are_not_waited_for() {
    let Some(server) = shared().await else { return };
    let proxy = Proxy::start(server.address()).await.unwrap();
    // Longer than anybody waits here: without the name of the lost call the message would stay away for so long.
    let sqs = connect_with(&format!("http://{}", proxy.address()), "visibility=1h&timeout=5s&wait=2s").await;
    let message = keyed("a", 1);
    assert!(sqs.publisher().publish(std::slice::from_ref(&message)).await[0].is_accepted());
    proxy.cut_next(Trigger::word("ReceiveMessage"), Moment::BeforeTheAnswer);
    let mut subscriber = sqs.subscribe(&orders(), &stock()).await.unwrap();
    let delivery = tokio::time::timeout(SOON, subscriber.next()).await.expect("it comes again").unwrap().unwrap();
    assert_eq!(proxy.counts().cut_before_the_answer, 1);
    assert_eq!(delivery.message.unwrap().id, message.id);
}

#[tokio::test(flavor = "multi_thread")]
async fn cuts_at_every_moment_of_every_call_lose_double_and_reorder_nothing() {
    let Some(server) = shared().await else { return };
    let proxy = Proxy::start(server.address()).await.unwrap();
    let sqs = connect(&format!("http://{}", proxy.address())).await;
    let traffic = traffic(&sqs).await;
    traffic.flows(50).await;
    for call in ["SendMessageBatch", "ReceiveMessage", "DeleteMessageBatch"] {
        for moment in [Moment::BeforeForwarding, Moment::BeforeTheAnswer] {
            let cut = |counts: ProxyCounts| counts.cut_before_forwarding + counts.cut_before_the_answer;
            let before = cut(proxy.counts());
            proxy.cut_next(Trigger::word(call), moment);
            eventually(SOON, "the cut", async || cut(proxy.counts()) > before).await;
        }
    }
    proxy.cut_all();
    let counts = proxy.counts();
    assert!(counts.cut_before_forwarding == 3 && counts.cut_before_the_answer == 3, "{counts:?}");
    traffic.flows(50).await;
    traffic.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_could_not_be_sent_is_refused_and_may_be_sent_later() {
    // Somebody had this port and gave it up.
    let nobody = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let sqs = connect(&format!("http://{nobody}")).await;
    let outcomes = sqs.publisher().publish(&[keyed("a", 1)]).await;
    let Outcome::Refused(refusal) = &outcomes[0] else { panic!("{outcomes:?}") };
    assert_eq!((&refusal.code, refusal.retriable), (&ErrorCode::UNAVAILABLE, true), "{refusal:?}");
    assert!(!refusal.reason.contains("secret"), "{refusal:?}");
    assert!(sqs.subscribe(&orders(), &stock()).await.is_err_and(|error| error.is_temporary()));
}
