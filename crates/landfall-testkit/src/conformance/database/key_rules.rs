//! Rules that people make for keys, and what redrive jobs make of them.

use std::time::Duration;

use landfall_core::{
    DeadLetterFilter, ErrorKind, Key, KeyRule, KeyRuleKind, KeyRules, Predicted, RedriveGuards, RedriveSelection,
    Redrives, Skip, Timestamp,
};

use super::harness::TIMEOUT;
use super::{DatabaseFixture, Harness};
use crate::conformance::sample::{group, keyed, topic};
use crate::eventually;

fn rule(key: &str, kind: KeyRuleKind, ms: Option<i64>) -> KeyRule {
    let since = Timestamp::now();
    KeyRule {
        topic: topic("orders"),
        key: Key::new(key).unwrap(),
        rule: kind,
        until: ms.map(|ms| Timestamp::from_millis(since.as_millis() + ms)),
        reason: "see INC-42".into(),
        actor: "alice".into(),
        since,
    }
}

impl<F: DatabaseFixture> Harness<F> {
    /// What a job would do with each letter now, in order.
    async fn predictions(&self) -> Vec<Predicted> {
        let filter = DeadLetterFilter { topic: Some(topic("orders")), ..DeadLetterFilter::default() };
        let selection = RedriveSelection::Filter(Box::new(filter));
        let guards = RedriveGuards { cool_down: Duration::ZERO, ..RedriveGuards::default() };
        let predicted = self.database.rehearse_redrive(&selection, &guards, 100).await.unwrap();
        predicted.into_iter().map(|letter| letter.outcome).collect()
    }
}

pub async fn blocked_key_is_skipped_until_its_rule_ends<F: DatabaseFixture>(harness: Harness<F>) {
    for key in ["a", "b"] {
        harness.park(&group("stock"), &keyed(key, 1)).await;
    }
    assert_eq!(harness.predictions().await, [Predicted::Ready, Predicted::Ready]);
    harness.database.set_key_rule(&rule("a", KeyRuleKind::Blocked, None)).await.unwrap();
    assert_eq!(harness.predictions().await, [Predicted::Skipped(Skip::Blocked), Predicted::Ready]);
    let known = harness.database.key_rules(10).await.unwrap();
    assert_eq!((known.len(), known[0].reason.as_str(), known[0].until), (1, "see INC-42", None));

    harness.database.set_key_rule(&rule("a", KeyRuleKind::Blocked, Some(300))).await.unwrap();
    assert_eq!(harness.database.key_rules(10).await.unwrap().len(), 1, "a key has two rules");
    eventually(TIMEOUT, "the end of the rule", async || harness.predictions().await[0] == Predicted::Ready).await;
    assert!(harness.database.key_rules(10).await.unwrap().is_empty());
    let past = harness.database.set_key_rule(&rule("a", KeyRuleKind::Blocked, Some(-1))).await.unwrap_err();
    assert_eq!(past.kind(), ErrorKind::Invalid, "{past}");

    harness.database.set_key_rule(&rule("b", KeyRuleKind::Blocked, None)).await.unwrap();
    let (orders, b) = (topic("orders"), Key::new("b").unwrap());
    assert!(harness.database.remove_key_rule(&orders, &b, "over", "bob").await.unwrap());
    assert!(!harness.database.remove_key_rule(&orders, &b, "over", "bob").await.unwrap());
    assert_eq!(harness.predictions().await[1], Predicted::Ready);
    let actions: Vec<_> =
        harness.audit().await.into_iter().filter(|row| row.action.starts_with("key-")).map(|row| row.action).collect();
    assert_eq!(actions, ["key-block", "key-block", "key-block", "key-release"]);
}

pub async fn allowed_key_is_exempt_from_the_automatic_block<F: DatabaseFixture>(harness: Harness<F>) {
    let (stock, message) = (group("stock"), keyed("a", 1));
    harness.park(&stock, &message).await;
    for _ in 0..RedriveGuards::default().block_after {
        harness.redrive(&message).await;
        harness.fail_one(&stock).await;
    }
    assert_eq!(harness.predictions().await, [Predicted::Skipped(Skip::Blocked)]);
    harness.database.set_key_rule(&rule("a", KeyRuleKind::Allowed, None)).await.unwrap();
    assert_eq!(harness.predictions().await, [Predicted::Ready]);
    harness.database.set_key_rule(&rule("a", KeyRuleKind::Blocked, None)).await.unwrap();
    assert_eq!(harness.predictions().await, [Predicted::Skipped(Skip::Blocked)]);
}
