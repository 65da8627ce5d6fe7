//! The checker of half messages must be able to fail: naive coordinators and services violate what it checks.
//!
//! Every run has the same messages: decided by their sender, decided by no sender, asked about while their transaction
//! is open, and with a transaction that comes after the verdict.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use landfall::check_back::{Coordinator, Options, Targets};
use landfall::half::{HalfCoordinator, HalfProducer, StoredCoordinator};
use landfall::sqlite::Sqlite;
use landfall::{
    Backoff, BarrierWriter, Barriers, CheckBack, Database, Decided, Error, ErrorKind, HalfMessage, HalfMessages,
    HalfVerdict, Message, MessageId, Prepared, Result, Timestamp, TopicName,
};
use landfall_system_tests::TIMEOUT;
use landfall_system_tests::half_worker::HalfSetup;
use landfall_testkit::eventually;
use tokio_util::sync::CancellationToken;

use crate::half::{setup, violations};

/// A naive version of one step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bug {
    /// The message is in the outbox from its prepare on.
    PreparedIsVisible,
    UnknownIsRollback,
    ErrorIsCommit,
    ChecksDuringImmunity,
    /// A commit that does not arrive is not asked about.
    NoCheckBack,
    NoTombstone,
}

const IMMUNITY: Duration = Duration::from_secs(3600);

/// The barrier as the coordinator asks it: counts the questions, and fails the first one about `broken`.
struct Asked {
    shop: Sqlite,
    bug: Option<Bug>,
    broken: MessageId,
    /// How often each message was asked about, with the answer.
    questions: Mutex<BTreeMap<MessageId, u32>>,
}

#[async_trait]
impl Barriers for Asked {
    async fn ask_barrier(&self, id: MessageId, prepared_at: Timestamp) -> Result<Option<HalfVerdict>> {
        let is_first = !self.questions.lock().unwrap().contains_key(&id);
        let answer = match self.bug {
            _ if is_first && id == self.broken => Err(Error::new(ErrorKind::Unavailable, "the database is down")),
            Some(Bug::NoTombstone) => self.without_tombstone(id).await,
            _ => self.shop.ask_barrier(id, prepared_at).await,
        };
        // After the answer, so that a test that waits for a question waits for its end.
        *self.questions.lock().unwrap().entry(id).or_default() += 1;
        match self.bug {
            Some(Bug::UnknownIsRollback) => Ok(Some(answer.ok().flatten().unwrap_or(HalfVerdict::RolledBack))),
            Some(Bug::ErrorIsCommit) => Ok(answer.unwrap_or(Some(HalfVerdict::Committed))),
            _ => answer,
        }
    }

    async fn longest_transaction(&self) -> Result<Option<Duration>> {
        Ok(None)
    }
}

impl Asked {
    async fn without_tombstone(&self, id: MessageId) -> Result<Option<HalfVerdict>> {
        let found = sqlx::query_scalar::<_, i64>("SELECT 1 FROM landfall_barrier WHERE id = ?").bind(id.to_string());
        let found = found.fetch_optional(self.shop.pool()).await.unwrap();
        Ok(Some(if found.is_some() { HalfVerdict::Committed } else { HalfVerdict::RolledBack }))
    }

    fn questions(&self, id: MessageId) -> u32 {
        self.questions.lock().unwrap().get(&id).copied().unwrap_or_default()
    }
}

/// A coordinator that publishes what is prepared, or ignores the immunity period.
struct Naive {
    inner: StoredCoordinator,
    store: Sqlite,
    bug: Option<Bug>,
}

#[async_trait]
impl HalfCoordinator for Naive {
    async fn prepare(&self, half: &HalfMessage) -> Result<Prepared> {
        let mut half = half.clone();
        if self.bug == Some(Bug::ChecksDuringImmunity) {
            half.check_after = Duration::ZERO;
        }
        let prepared = self.inner.prepare(&half).await?;
        if self.bug == Some(Bug::PreparedIsVisible) {
            let insert = "INSERT INTO landfall_outbox (message_id, topic, payload) VALUES (?, 'orders', x'31')";
            sqlx::query(insert).bind(half.message.id.to_string()).execute(self.store.pool()).await.unwrap();
        }
        Ok(prepared)
    }

    async fn decide(&self, id: MessageId, verdict: HalfVerdict) -> Result<Decided> {
        self.inner.decide(id, verdict).await
    }
}

fn half(name: &str, check_after: Duration) -> HalfMessage {
    HalfMessage {
        message: Message::new(TopicName::new("orders").unwrap(), name.to_owned()),
        business_type: "order".into(),
        business_id: name.to_owned(),
        check_back: CheckBack { database: Some("shop".into()), ..CheckBack::default() },
        check_after,
    }
}

struct Run {
    store: Sqlite,
    shop: Sqlite,
    producer: HalfProducer<Sqlite>,
    asked: Arc<Asked>,
    is_asked: bool,
}

impl Run {
    /// Runs the local transaction, while `meanwhile` runs before its commit. Returns whether it committed.
    async fn local(&self, half: &HalfMessage, meanwhile: impl AsyncFnOnce()) -> bool {
        let mut transaction = self.shop.begin().await.unwrap();
        if self.shop.enter_barrier(&mut transaction, half.message.id).await.is_err() {
            return false;
        }
        let insert = sqlx::query("INSERT INTO orders VALUES (?)").bind(&half.business_id);
        insert.execute(&mut *transaction).await.unwrap();
        meanwhile().await;
        self.shop.commit(transaction).await.unwrap();
        true
    }

    async fn prepare(&self, half: &HalfMessage) {
        self.producer.prepare(half).await.unwrap();
    }

    async fn wait_until_asked(&self, half: &HalfMessage) {
        if self.is_asked {
            let id = half.message.id;
            eventually(TIMEOUT, "a question", async || self.asked.questions(id) > 0).await;
        }
    }

    async fn wait_until_decided(&self) {
        eventually(TIMEOUT, "every verdict", async || {
            let stats = self.store.half_message_stats().await.unwrap();
            stats.prepared + stats.parked == 0
        })
        .await;
    }
}

/// Returns what the checker finds in a run with this bug.
async fn found_with(bug: Option<Bug>) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let setup: HalfSetup = setup(folder.path(), false);
    let (store, shop) = (setup.store().await.unwrap(), setup.shop().await.unwrap());
    let broken = half("broken", Duration::ZERO);
    let asked = Arc::new(Asked { shop: shop.clone(), bug, broken: broken.message.id, questions: Mutex::default() });
    let stop = CancellationToken::new();
    let is_asked = bug != Some(Bug::NoCheckBack);
    let coordinating = is_asked.then(|| tokio::spawn(coordinator(&store, asked.clone()).run(stop.clone())));
    let inner = StoredCoordinator::new(Arc::new(store.clone()));
    let naive = Arc::new(Naive { inner, store: store.clone(), bug });
    let producer = HalfProducer::new(shop.clone(), naive);
    let run = Run { store, shop, producer, asked, is_asked };

    // Nothing else is open, so the question about this one is answered by its tombstone, except by naive coordinators.
    run.prepare(&broken).await;
    run.wait_until_asked(&broken).await;
    let late = half("late", Duration::ZERO);
    run.prepare(&late).await;
    run.wait_until_asked(&late).await;
    if is_asked {
        run.wait_until_decided().await;
    }
    run.local(&late, async || ()).await;

    let immune = half("immune", IMMUNITY);
    run.prepare(&immune).await;
    let open = half("open", Duration::ZERO);
    run.prepare(&open).await;
    if run.local(&open, async || run.wait_until_asked(&open).await).await {
        // A contradiction, if the verdict was reached before; the checker sees it.
        let _ = run.producer.commit(open.message.id).await;
    }
    let lost = half("lost", Duration::ZERO);
    let lost_is_prepared = run.local(&lost, async || run.prepare(&lost).await).await;
    assert!(lost_is_prepared);
    // The coordinator has looked at all of them by now.
    run.wait_until_asked(&lost).await;
    let asked_early = run.asked.questions(immune.message.id);
    if run.local(&immune, async || ()).await {
        let _ = run.producer.commit(immune.message.id).await;
    }
    if is_asked {
        run.wait_until_decided().await;
    }
    stop.cancel();
    if let Some(coordinating) = coordinating {
        coordinating.await.unwrap().unwrap();
    }
    let mut found = violations(&setup).await;
    if asked_early > 0 {
        found.push(format!("asked {asked_early} times during the immunity period"));
    }
    found
}

fn coordinator(store: &Sqlite, asked: Arc<Asked>) -> Coordinator {
    let options = Options {
        interval: Duration::from_millis(5),
        // Longer than a question waits for an open transaction.
        timeout: Duration::from_secs(5),
        backoff: Backoff { first: Duration::from_millis(5), cap: Duration::from_millis(50), max_attempts: 10_000 },
        ..Options::default()
    };
    Coordinator::new(Arc::new(store.clone()), Targets::new().database("shop", asked), options).unwrap()
}

#[tokio::test]
async fn careful_half_messages_violate_nothing() {
    assert_eq!(found_with(None).await, Vec::<String>::new());
}

macro_rules! planted {
    ($($name:ident: $bug:ident => $expected:literal,)*) => {$(
        #[tokio::test]
        async fn $name() {
            let found = found_with(Some(Bug::$bug)).await;
            assert!(found.iter().any(|violation| violation.contains($expected)), "{found:?}");
        }
    )*};
}

planted! {
    visible_prepared_message_is_detected: PreparedIsVisible => "are enqueued",
    unknown_read_as_rollback_is_detected: UnknownIsRollback => "differ from the local transactions",
    error_read_as_commit_is_detected: ErrorIsCommit => "differ from the local transactions",
    check_during_immunity_is_detected: ChecksDuringImmunity => "during the immunity period",
    lost_commit_without_check_back_is_detected: NoCheckBack => "differ from the local transactions",
    missing_tombstone_is_detected: NoTombstone => "differ from the local transactions",
}
