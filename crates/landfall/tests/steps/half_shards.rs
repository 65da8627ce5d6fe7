//! Half messages in several databases: decisions find their message, in every order and after every crash.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use landfall::check_back::{Shards, Topics};
use landfall::half::fingerprint;
use landfall::{
    CheckBack, Decided, HalfMessage, HalfMessageFilter, HalfMessages, HalfState, HalfVerdict, Message, MessageId,
    OutboxFilter, OutboxView, Prepared, TopicName,
};
use landfall_sqlite::Sqlite;

use crate::fixture::Fixture;

const COMMIT: HalfVerdict = HalfVerdict::Committed;
const ROLLBACK: HalfVerdict = HalfVerdict::RolledBack;

struct Databases {
    home: Fixture,
    pay: Fixture,
    orders: Fixture,
}

impl Databases {
    async fn open() -> Self {
        Self { home: Fixture::new().await, pay: Fixture::new().await, orders: Fixture::new().await }
    }

    /// One coordinator; several may be used at once.
    fn shards(&self) -> Shards {
        let topics = |pattern: &str| Topics::new([pattern]).unwrap();
        Shards::new(Arc::new(self.home.database.clone()))
            .with(topics("pay.*"), Arc::new(self.pay.database.clone()))
            .with(topics("orders"), Arc::new(self.orders.database.clone()))
    }

    fn all(&self) -> [&Sqlite; 3] {
        [&self.home.database, &self.pay.database, &self.orders.database]
    }
}

fn half(topic: &str) -> HalfMessage {
    HalfMessage {
        message: Message::new(TopicName::new(topic).unwrap(), "1"),
        business_type: "order".into(),
        business_id: "1".into(),
        check_back: CheckBack { http: Some("http://localhost/".into()), ..CheckBack::default() },
        check_after: Duration::ZERO,
    }
}

async fn prepare(store: &dyn HalfMessages, half: &HalfMessage) -> Prepared {
    store.prepare(half, &fingerprint(half)).await.unwrap()
}

async fn decide(store: &dyn HalfMessages, id: MessageId, verdict: HalfVerdict) -> Decided {
    store.decide(id, verdict, "sender").await.unwrap()
}

async fn state(store: &dyn HalfMessages, id: MessageId) -> Option<HalfState> {
    let filter = HalfMessageFilter { id: Some(id), ..HalfMessageFilter::default() };
    store.find_half_messages(&filter, 2).await.unwrap().pop().map(|row| row.state)
}

/// The ids in the outbox of one database.
async fn enqueued(database: &Sqlite) -> BTreeSet<MessageId> {
    database.list(&OutboxFilter::default(), 10_000).await.unwrap().iter().map(|row| row.message_id).collect()
}

#[tokio::test]
async fn each_topic_has_its_database() {
    let databases = Databases::open().await;
    let shards = databases.shards();
    for (topic, database) in [("pay.card", &databases.pay), ("orders", &databases.orders), ("mail", &databases.home)] {
        let half = half(topic);
        let id = half.message.id;
        assert_eq!(prepare(&shards, &half).await, Prepared::Fresh(HalfState::Prepared), "{topic}");
        assert_eq!(prepare(&shards, &half).await, Prepared::Repeated(HalfState::Prepared), "{topic}");
        let other = HalfMessage { message: Message::new(TopicName::new("pay.x").unwrap(), "2").with_id(id), ..half };
        assert_eq!(prepare(&shards, &other).await, Prepared::Conflict, "{topic}: another topic under the same id");
        assert_eq!(decide(&shards, id, COMMIT).await, Decided::Now);
        assert_eq!(decide(&shards, id, COMMIT).await, Decided::Before);
        assert_eq!(decide(&shards, id, ROLLBACK).await, Decided::Contradiction(COMMIT));
        for one in databases.all() {
            let is_its = std::ptr::eq(one, &database.database);
            assert_eq!(enqueued(one).await.contains(&id), is_its, "{topic}");
        }
        assert_eq!(state(&shards, id).await, Some(HalfState::Committed));
        assert!(shards.acknowledge_contradiction(id, "ann").await.unwrap());
    }
    let rows = shards.find_half_messages(&HalfMessageFilter::default(), 2).await.unwrap();
    assert_eq!(rows.len(), 2);
    let before = rows.last().map(|row| (row.prepared_at, row.id));
    let next = HalfMessageFilter { before, ..HalfMessageFilter::default() };
    assert_eq!(shards.find_half_messages(&next, 9).await.unwrap().len(), 1, "the next page has the rest");
}

#[tokio::test]
async fn early_verdict_finds_its_message_in_a_shard() {
    let databases = Databases::open().await;
    let shards = databases.shards();
    for (verdict, state) in [(COMMIT, HalfState::Committed), (ROLLBACK, HalfState::RolledBack)] {
        let half = half("pay.card");
        let id = half.message.id;
        assert_eq!(decide(&shards, id, verdict).await, Decided::Early);
        assert_eq!(decide(&shards, id, verdict).await, Decided::Before);
        assert_eq!(prepare(&shards, &half).await, Prepared::Fresh(state));
        assert_eq!(enqueued(&databases.pay.database).await.contains(&id), verdict == COMMIT);
        assert_eq!(decide(&shards, id, verdict).await, Decided::Before);
    }
    let stats = shards.half_message_stats().await.unwrap();
    assert_eq!((stats.prepared, stats.early_commits, stats.contradicted), (0, 0, 0), "{stats:?}");
}

/// A crash between the two steps of a prepare or of a decision: both have written, and neither has looked.
#[tokio::test]
async fn crash_between_the_databases_keeps_the_first_verdict() {
    let databases = Databases::open().await;
    let shards = databases.shards();
    let left_behind = async |verdict| {
        let half = half("pay.card");
        databases.home.database.decide(half.message.id, verdict, "sender").await.unwrap();
        prepare(&databases.pay.database, &half).await;
        half
    };
    // The next decision, for or against it.
    let half = left_behind(ROLLBACK).await;
    assert_eq!(decide(&shards, half.message.id, COMMIT).await, Decided::Contradiction(ROLLBACK));
    assert!(!enqueued(&databases.pay.database).await.contains(&half.message.id), "a rollback became a send");
    let half = left_behind(COMMIT).await;
    assert_eq!(decide(&shards, half.message.id, COMMIT).await, Decided::Before);
    assert!(enqueued(&databases.pay.database).await.contains(&half.message.id));
    // The retry of the prepare.
    let half = left_behind(ROLLBACK).await;
    assert_eq!(prepare(&shards, &half).await, Prepared::Repeated(HalfState::RolledBack));
    // A check-back claims it, and decides the opposite.
    let half = left_behind(ROLLBACK).await;
    let due = shards.claim_due(10, Duration::from_secs(60)).await.unwrap();
    assert!(due.iter().any(|due| due.half.message.id == half.message.id));
    assert_eq!(shards.decide(half.message.id, COMMIT, "check-back").await.unwrap(), Decided::Contradiction(ROLLBACK));
    assert_eq!(state(&shards, half.message.id).await, Some(HalfState::RolledBack));
}

/// A naive coordinator decides in the shard without a look at early verdicts; the check must see that.
fn violations(answers: &[(HalfVerdict, Decided)], state: Option<HalfState>, is_enqueued: bool) -> Vec<String> {
    let mut found = Vec::new();
    let verdict = state.and_then(HalfState::verdict);
    if is_enqueued != (verdict == Some(COMMIT)) {
        found.push(format!("the state is {state:?}, and enqueued is {is_enqueued}"));
    }
    for (wanted, answer) in answers {
        let said = match answer {
            Decided::Contradiction(first) => *first,
            _ => *wanted,
        };
        if Some(said) != verdict {
            found.push(format!("{wanted:?} was answered with {answer:?}, and the state is {state:?}"));
        }
    }
    found
}

#[tokio::test]
async fn naive_shards_are_caught() {
    let databases = Databases::open().await;
    let half = half("pay.card");
    let id = half.message.id;
    let early = decide(&databases.home.database, id, ROLLBACK).await;
    prepare(&databases.pay.database, &half).await;
    let late = decide(&databases.pay.database, id, COMMIT).await;
    let state = state(&databases.pay.database, id).await;
    let is_enqueued = enqueued(&databases.pay.database).await.contains(&id);
    assert!(!violations(&[(ROLLBACK, early), (COMMIT, late)], state, is_enqueued).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn racing_calls_over_shards_have_one_verdict() {
    let databases = Databases::open().await;
    let (one, other) = (Arc::new(databases.shards()), Arc::new(databases.shards()));
    for _ in 0..60 {
        let half = half("pay.card");
        let id = half.message.id;
        let (first, second, third) = (one.clone(), other.clone(), one.clone());
        let message = half.clone();
        let prepared = tokio::spawn(async move { prepare(&*first, &message).await });
        let committed = tokio::spawn(async move { decide(&*second, id, COMMIT).await });
        let rolled_back = tokio::spawn(async move { decide(&*third, id, ROLLBACK).await });
        prepared.await.unwrap();
        let answers = [(COMMIT, committed.await.unwrap()), (ROLLBACK, rolled_back.await.unwrap())];
        let is_enqueued = enqueued(&databases.pay.database).await.contains(&id);
        let found = violations(&answers, state(&*one, id).await, is_enqueued);
        landfall_testkit::assert_no_violation(found.is_empty(), format!("{found:?}"));
    }
}
