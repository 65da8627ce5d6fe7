//! Queues that turn messages down when they are full, and have room again a moment later.

use std::collections::HashSet;

use landfall_core::{Broker, Demands, Diagnose, Message, Rank, Span};
use landfall_rabbitmq::RabbitMq;
use landfall_testkit::eventually;

use crate::support::{SOON, connect, keyed, management, next, prefix, shared, subscribe};

const COUNT: i64 = 300;

/// Large, so that a queue is full and has room again while a batch is still on its way.
fn heavy(sequence: i64) -> Message {
    Message { payload: vec![7; 100_000].into(), ..keyed("a", sequence) }
}

/// Publishes as a relay does: what was not accepted stays in its place and is sent again.
async fn relay(broker: RabbitMq) {
    let mut pending: Vec<_> = (1..=COUNT).map(heavy).collect();
    while !pending.is_empty() {
        let outcomes = broker.publisher().publish(&pending[..pending.len().min(50)]).await;
        let mut outcomes = outcomes.iter();
        pending.retain(|_| outcomes.next().is_none_or(|outcome| !outcome.is_accepted()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn queues_that_are_full_and_free_again_within_a_batch_keep_the_order_if_a_key_is_sent_one_by_one() {
    let Some(server) = shared().await else { return };
    let prefix = prefix();
    let policy = format!(
        r#"{{"pattern":"^{prefix}","definition":{{"max-length":2,"overflow":"reject-publish"}},"apply-to":"queues"}}"#
    );
    server.manage("PUT", &format!("/api/policies/%2F/{prefix}full"), &policy).await.unwrap();
    let parameters = format!("one_per_key=true&replicas=1&{}", management(&server));
    let broker = connect(&server.url(), &prefix, &parameters).await;
    let mut subscriber = subscribe(&broker).await;
    let relay = tokio::spawn(relay(broker.clone()));
    let (mut inbox, mut effects) = (HashSet::new(), Vec::new());
    while effects.len() < COUNT as usize {
        let sequence = next(&mut subscriber).await.sequence.unwrap();
        if inbox.insert(sequence) {
            effects.push(sequence);
        }
    }
    assert_eq!(effects, (1..=COUNT).collect::<Vec<_>>());
    relay.await.unwrap();
    // It costs time, and no longer the order.
    let found = async || {
        let findings = broker.diagnose(&Demands { window: Span::days(7) }).await.unwrap();
        findings.iter().any(|found| (found.check, found.rank) == ("rabbitmq.length-limit", Rank::Latency))
    };
    eventually(SOON, "the doctor says so", found).await;
}
