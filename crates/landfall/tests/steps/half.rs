//! Half messages on real databases: the producer, the barrier and the coordinator.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use landfall::check_back::{Answer, CheckBackTarget, Coordinator, Options, Targets};
use landfall::half::{HalfCoordinator, HalfProducer, StoredCoordinator};
use landfall::{
    BarrierWriter, CheckBack, Database, Decided, Error, ErrorKind, HalfMessage, HalfMessageFilter, HalfMessageRow,
    HalfMessages, HalfState, HalfVerdict, MessageId, Prepared,
};
use landfall_sqlite::Sqlite;
use landfall_testkit::eventually;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::fixture::{Fixture, QUICK, TIMEOUT, message};

/// The coordinator's database, and the one of the business.
struct Services {
    store: Fixture,
    shop: Fixture,
    coordinator: Arc<Flaky>,
    stop: CancellationToken,
}

/// A coordinator that can be unreachable for decisions.
struct Flaky {
    inner: StoredCoordinator,
    is_down: AtomicBool,
}

#[async_trait]
impl HalfCoordinator for Flaky {
    async fn prepare(&self, half: &HalfMessage) -> landfall::Result<Prepared> {
        self.inner.prepare(half).await
    }

    async fn decide(&self, id: MessageId, verdict: HalfVerdict) -> landfall::Result<Decided> {
        if self.is_down.load(Ordering::SeqCst) {
            return Err(Error::new(ErrorKind::Unavailable, "the coordinator is down"));
        }
        self.inner.decide(id, verdict).await
    }
}

impl Services {
    async fn new() -> Self {
        let (store, shop) = (Fixture::new().await, Fixture::new().await);
        let inner = StoredCoordinator::new(Arc::new(store.database.clone()));
        let coordinator = Arc::new(Flaky { inner, is_down: AtomicBool::new(false) });
        Self { store, shop, coordinator, stop: CancellationToken::new() }
    }

    fn producer(&self) -> HalfProducer<Sqlite> {
        HalfProducer::new(self.shop.database.clone(), self.coordinator.clone())
    }

    fn check_back(&self, targets: Targets) -> JoinHandle<landfall::Result<()>> {
        let options =
            Options { interval: Duration::from_millis(5), timeout: TIMEOUT, backoff: QUICK, ..Options::default() };
        let coordinator = Coordinator::new(Arc::new(self.store.database.clone()), targets, options).unwrap();
        tokio::spawn(coordinator.run(self.stop.clone()))
    }

    fn barrier(&self) -> Targets {
        Targets::new().database("shop", Arc::new(self.shop.database.clone()))
    }

    /// Runs the local transaction that writes `name`, and then fails if `fails`.
    async fn run(&self, half: &HalfMessage, name: &str, fails: bool) -> Result<(), Error> {
        let business = async |connection: &mut sqlx::SqliteConnection| {
            let insert = sqlx::query("INSERT INTO effects VALUES (?)").bind(name).execute(connection).await;
            insert.map_err(|error| Error::new(ErrorKind::Internal, "insert").with_source(error))?;
            if fails { Err(Error::invalid("the business refuses")) } else { Ok(()) }
        };
        self.producer().run(half, business).await
    }

    async fn row(&self, half: &HalfMessage) -> HalfMessageRow {
        let filter = HalfMessageFilter { id: Some(half.message.id), ..HalfMessageFilter::default() };
        self.store.database.find_half_messages(&filter, 1).await.unwrap().remove(0)
    }

    async fn becomes(&self, half: &HalfMessage, state: HalfState) {
        eventually(TIMEOUT, state.as_str(), async || self.row(half).await.state == state).await;
    }
}

fn half(name: &str) -> HalfMessage {
    HalfMessage {
        message: message(name, 1),
        business_type: "order".into(),
        business_id: name.into(),
        check_back: CheckBack { database: Some("shop".into()), ..CheckBack::default() },
        check_after: Duration::ZERO,
    }
}

#[tokio::test]
async fn half_producer_resolves_every_outcome() {
    let services = Services::new().await;
    let (kept, refused, lost) = (half("kept"), half("refused"), half("lost"));
    services.run(&kept, "kept", false).await.unwrap();
    assert_eq!(services.row(&kept).await.decided_by.as_deref(), Some("sender"));
    assert_eq!(services.run(&refused, "refused", true).await.unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(services.row(&refused).await.state, HalfState::RolledBack);
    assert_eq!(services.run(&kept, "again", false).await.unwrap_err().kind(), ErrorKind::Conflict);

    // The local transaction commits, and the coordinator does not hear of it.
    services.coordinator.is_down.store(true, Ordering::SeqCst);
    services.run(&lost, "lost", false).await.unwrap();
    assert_eq!(services.row(&lost).await.state, HalfState::Prepared);
    // The local transaction rolls back, and the coordinator does not hear of it.
    let silent = half("silent");
    services.run(&silent, "silent", true).await.unwrap_err();
    // The process dies after the prepare.
    let dead = half("dead");
    services.producer().prepare(&dead).await.unwrap();
    assert_eq!(services.store.stats().await.pending, 1, "only the committed one is visible");

    let running = services.check_back(services.barrier());
    services.becomes(&lost, HalfState::Committed).await;
    services.becomes(&silent, HalfState::RolledBack).await;
    services.becomes(&dead, HalfState::RolledBack).await;
    assert_eq!(services.row(&lost).await.decided_by.as_deref(), Some("check-back"));
    assert_eq!(services.store.stats().await.pending, 2);
    assert_eq!(services.shop.effects().await, ["kept", "lost"]);

    // Its transaction comes late and fails.
    let mut late = services.shop.database.begin().await.unwrap();
    let refusal = services.shop.database.enter_barrier(&mut late, dead.message.id).await.unwrap_err();
    assert_eq!(refusal.kind(), ErrorKind::Conflict);
    drop(late);
    services.stop.cancel();
    running.await.unwrap().unwrap();
}

#[tokio::test]
async fn retried_run_does_not_roll_back_its_first_commit() {
    let services = Services::new().await;
    let twice = half("twice");
    services.coordinator.is_down.store(true, Ordering::SeqCst);
    services.run(&twice, "twice", false).await.unwrap();
    services.coordinator.is_down.store(false, Ordering::SeqCst);
    // The caller cannot know, and tries again: the barrier refuses, and nothing is decided.
    assert_eq!(services.run(&twice, "twice", false).await.unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(services.row(&twice).await.state, HalfState::Prepared);
    let running = services.check_back(services.barrier());
    services.becomes(&twice, HalfState::Committed).await;
    assert_eq!(services.shop.effects().await, ["twice"]);
    services.stop.cancel();
    running.await.unwrap().unwrap();
}

/// Both coordinators answer every question; each message is decided once, and its audit says so.
#[tokio::test]
async fn two_coordinators_decide_each_message_once() {
    struct Even;

    #[async_trait]
    impl CheckBackTarget for Even {
        async fn ask(&self, half: &HalfMessage) -> Answer {
            match half.business_id.parse::<u32>() {
                Ok(number) if number % 2 == 0 => Answer::Committed,
                Ok(_) => Answer::RolledBack,
                Err(error) => Answer::unknown(error),
            }
        }
    }

    let services = Services::new().await;
    let halves: Vec<HalfMessage> = (0..40)
        .map(|number| HalfMessage {
            check_back: CheckBack { http: Some("http://even/".into()), ..CheckBack::default() },
            ..half(&number.to_string())
        })
        .collect();
    for half in &halves {
        services.producer().prepare(half).await.unwrap();
    }
    let running = [0, 1].map(|_| services.check_back(Targets::new().http(Arc::new(Even))));
    for half in &halves {
        let even = half.business_id.parse::<u32>().unwrap() % 2 == 0;
        services.becomes(half, if even { HalfState::Committed } else { HalfState::RolledBack }).await;
        assert_eq!(services.row(half).await.contradicted_at, None);
    }
    assert_eq!(services.store.stats().await.pending, 20);
    let audit = "SELECT count(*) FROM landfall_audit WHERE action IN ('half-commit', 'half-rollback')";
    let audited: i64 = sqlx::query_scalar(audit).fetch_one(services.store.database.pool()).await.unwrap();
    assert_eq!(audited, 40);
    services.stop.cancel();
    for running in running {
        running.await.unwrap().unwrap();
    }
}
