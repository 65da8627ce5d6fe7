//! Queues that reject messages when full, and have space again a moment later.

use std::collections::HashSet;

use landfall_core::adapter::Demands;
use landfall_core::{Broker, Diagnose, Message, Rank, Span};
use landfall_rabbitmq::RabbitMq;
use landfall_testkit::eventually;

use crate::support::{SOON, connect, keyed, management, next, prefix, shared, subscribe};

const COUNT: i64 = 300;

/// A large message, so that a queue fills and drains while a batch is in flight.
fn heavy(sequence: i64) -> Message {
    Message { payload: vec![7; 100_000].into(), ..keyed("a", sequence) }
}

/// Publishes as a relay does: messages that are not accepted keep their position and are sent again.
async fn relay(broker: RabbitMq) {
    let mut pending: Vec<_> = (1..=COUNT).map(heavy).collect();
    while !pending.is_empty() {
        let outcomes = broker.publisher().publish(&pending[..pending.len().min(50)]).await;
        let mut outcomes = outcomes.iter();
        pending.retain(|_| outcomes.next().is_none_or(|outcome| !outcome.is_accepted()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_per_key_keeps_order_with_rejecting_queues() {
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
    // With one_per_key the limit costs latency, not order.
    let found = async || {
        let findings = broker.diagnose(&Demands { window: Span::days(7) }).await.unwrap();
        findings.iter().any(|found| (found.check, found.rank) == ("rabbitmq.length-limit", Rank::Latency))
    };
    eventually(SOON, "the doctor reports latency", found).await;
}
