//! The Rust library sends half messages to a daemon over gRPC.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use landfall::half::{GrpcCoordinator, GrpcOptions, HalfCoordinator, HalfProducer};
use landfall::sqlite::{self, Sqlite};
use landfall::{
    CheckBack, Decided, Error, ErrorKind, HalfMessage, HalfState, HalfVerdict, Key, Message, MessageId, Mode, Prepared,
    Schema, TopicName,
};
use landfall_testkit::servers::Certificates;
use landfall_testkit::{current_test, eventually};
use nix::sys::signal::Signal;
use serde_json::Value;

use super::support::{Daemon, GrpcServer, Sandbox, TIMEOUT};
use super::tls::install;

const TOKEN: &str = "operator-0123456789";
const AUTH: &str = "[auth]\ntokens = [{ role = \"operator\", token = \"operator-0123456789\" }]\n";

/// Opens the business database, and configures the daemon to ask it.
async fn shop(sandbox: &Sandbox) -> Sqlite {
    let file = sandbox.path().join("shop.db").display().to_string();
    let shop = Sqlite::open(&file, sqlite::Options::default()).await.unwrap();
    shop.migrate().await.unwrap();
    sqlx::query("CREATE TABLE orders (number INTEGER)").execute(shop.pool()).await.unwrap();
    sandbox.configure(&format!(
        "[check_back]\ninterval_ms = 20\nimmunity_ms = 0\nbackoff_first_ms = 10\nbackoff_cap_ms = 20\n\
         databases = {{ shop = \"sqlite:{file}\" }}\n{AUTH}"
    ));
    shop
}

fn coordinator(daemon: &Daemon) -> GrpcCoordinator {
    let options = GrpcOptions { token: Some(TOKEN.into()), ..GrpcOptions::default() };
    GrpcCoordinator::new(&format!("http://{}", daemon.address), options).unwrap()
}

fn half(number: i64, check_after: Duration) -> HalfMessage {
    let mut message = Message::new(TopicName::new("orders").unwrap(), format!("{{\"n\":{number}}}"))
        .with_key(Key::new(format!("order-{number}")).unwrap())
        .with_sequence(number)
        .with_mode(Mode::AtLeastOnce);
    message.headers.insert("tenant", "a").unwrap();
    HalfMessage {
        message,
        business_type: "order".into(),
        business_id: number.to_string(),
        check_back: CheckBack { database: Some("shop".into()), ..CheckBack::default() },
        check_after,
    }
}

const LONG: Duration = Duration::from_secs(3600);

async fn insert(connection: &mut sqlx::SqliteConnection, number: i64) -> Result<(), Error> {
    let inserted = sqlx::query("INSERT INTO orders VALUES (?)").bind(number).execute(connection).await;
    inserted.map(drop).map_err(|error| Error::new(ErrorKind::Internal, "not inserted").with_source(error))
}

async fn published(sandbox: &Sandbox) -> Vec<Value> {
    let tail = sandbox.run(&["topic", "tail", "orders", "--json"]).await;
    if tail.code == 0 { tail.objects() } else { Vec::new() }
}

#[tokio::test]
async fn rust_producer_commits_and_rolls_back_at_the_daemon() {
    let sandbox = Sandbox::new();
    let shop = shop(&sandbox).await;
    let daemon = sandbox.serve().await;
    let coordinator = coordinator(&daemon);
    let producer = HalfProducer::new(shop, Arc::new(coordinator.clone()));

    let (kept, refused) = (half(1, LONG), half(2, LONG));
    producer.run(&kept, async |connection| insert(connection, 1).await).await.unwrap();
    let error = producer.run(&refused, async |_| Err::<(), _>(Error::invalid("refused"))).await.unwrap_err();
    assert_eq!(error.to_string(), "refused");
    eventually(TIMEOUT, "the committed message", async || published(&sandbox).await.len() == 1).await;
    let line = &published(&sandbox).await[0];
    assert_eq!((&line["payload"]["n"], &line["key"]), (&1.into(), &"order-1".into()));
    assert_eq!((&line["sequence"], &line["headers"]["tenant"]), (&1.into(), &"a".into()), "{line}");

    // Repeats and contradictions have their own answers.
    assert_eq!(coordinator.prepare(&kept).await.unwrap(), Prepared::Repeated(HalfState::Committed));
    let mut other = kept.clone();
    other.business_id = "9".into();
    assert_eq!(coordinator.prepare(&other).await.unwrap(), Prepared::Conflict);
    let (kept, refused) = (kept.message.id, refused.message.id);
    assert_eq!(coordinator.decide(kept, HalfVerdict::Committed).await.unwrap(), Decided::Before);
    let contradiction = Decided::Contradiction(HalfVerdict::RolledBack);
    assert_eq!(coordinator.decide(refused, HalfVerdict::Committed).await.unwrap(), contradiction);
    assert_eq!(producer.rollback(kept).await.unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(coordinator.decide(MessageId::new(), HalfVerdict::RolledBack).await.unwrap(), Decided::Now);

    // A prepare that the daemon refuses, and a token that it does not know.
    let mut unknown = half(3, LONG);
    unknown.check_back = CheckBack { http: Some("nonsense".into()), ..CheckBack::default() };
    assert_eq!(coordinator.prepare(&unknown).await.unwrap_err().kind(), ErrorKind::Invalid);
    let options = GrpcOptions { token: Some("wrong-0123456789".into()), ..GrpcOptions::default() };
    let stranger = GrpcCoordinator::new(&format!("http://{}", daemon.address), options).unwrap();
    let refusal = stranger.prepare(&half(3, LONG)).await.unwrap_err();
    assert!(refusal.kind() == ErrorKind::Invalid && !refusal.to_string().contains("wrong-"), "{refusal}");
}

#[tokio::test]
async fn daemon_killed_between_prepare_and_commit_asks_the_barrier() {
    let sandbox = Sandbox::new();
    let shop = shop(&sandbox).await;
    for (number, commits) in [(1, true), (2, false)] {
        let daemon = sandbox.serve().await;
        let producer = HalfProducer::new(shop.clone(), Arc::new(coordinator(&daemon)));
        let half = half(number, Duration::from_secs(1));
        let has_run = AtomicBool::new(false);
        let ran = producer.run(&half, async |connection| {
            insert(connection, number).await?;
            daemon.kill().await;
            has_run.store(true, Ordering::SeqCst);
            if commits { Ok(()) } else { Err(Error::invalid("refused")) }
        });
        let ran = ran.await;
        assert!(has_run.load(Ordering::SeqCst), "{ran:?}");
        assert_eq!(ran.is_ok(), commits, "the outcome is that of the local transaction: {ran:?}");
        // The next daemon asks the barrier.
        let next = sandbox.serve().await;
        let expected = if commits { "committed" } else { "rolled_back" };
        eventually(TIMEOUT, expected, async || {
            let shown = sandbox.run(&["half", "show", &half.message.id.to_string(), "--json"]).await.objects();
            shown[0]["state"] == expected
        })
        .await;
        if commits {
            eventually(TIMEOUT, "the message", async || published(&sandbox).await.len() == 1).await;
        }
        next.kill().await;
    }
    assert_eq!(published(&sandbox).await.len(), 1);
}

#[tokio::test]
async fn silent_daemon_is_unknown_and_absent_one_unavailable() {
    let sandbox = Sandbox::new();
    sandbox.configure(AUTH);
    let daemon = sandbox.serve().await;
    let token = Some(TOKEN.to_owned());
    let options = GrpcOptions { token, timeout: Duration::from_millis(300), ..GrpcOptions::default() };
    let coordinator = GrpcCoordinator::new(&format!("http://{}", daemon.address), options).unwrap();
    let half = half(1, LONG);
    eventually(TIMEOUT, "a prepare in time", async || coordinator.prepare(&half).await.is_ok()).await;
    daemon.signal(Signal::SIGSTOP);
    let silent = coordinator.decide(half.message.id, HalfVerdict::Committed).await.unwrap_err();
    assert!(silent.kind() == ErrorKind::Unknown && silent.is_temporary(), "{silent}");
    daemon.signal(Signal::SIGCONT);
    // The repeated call has the answer, whether or not the first one arrived.
    eventually(TIMEOUT, "the repeated commit", async || {
        coordinator.decide(half.message.id, HalfVerdict::Committed).await.is_ok()
    })
    .await;
    daemon.kill().await;
    eventually(TIMEOUT, "no daemon", async || {
        let error = coordinator.prepare(&half).await.unwrap_err();
        assert!(error.is_temporary(), "{error}");
        error.kind() == ErrorKind::Unavailable
    })
    .await;
    // A server that is no coordinator, such as a proxy, decides nothing.
    let server = GrpcServer::start(axum::Router::new()).await;
    let proxy = GrpcCoordinator::new(&format!("http://{}", server.address), GrpcOptions::default()).unwrap();
    assert!(proxy.prepare(&half).await.is_err());
}

#[tokio::test]
async fn rust_producer_trusts_the_given_authorities_only() {
    let sandbox = Sandbox::new();
    let Some(certificates) = Certificates::make(&current_test()).await else { return };
    install(sandbox.path(), &certificates);
    let file = |name: &str| sandbox.path().join(name).display().to_string();
    sandbox.configure(&format!("[http]\ncertificate_file = {:?}\nkey_file = {:?}\n", file("tls.pem"), file("tls.key")));
    let daemon = sandbox.serve().await;
    let authority = std::fs::read_to_string(certificates.authority()).unwrap();
    let trusting = GrpcOptions { authorities: Some(authority), ..GrpcOptions::default() };
    let url = format!("https://{}", daemon.address);
    let half = half(1, LONG);
    let strict = GrpcCoordinator::new(&url, GrpcOptions::default()).unwrap();
    assert_eq!(strict.prepare(&half).await.unwrap_err().kind(), ErrorKind::Unavailable);
    let trusting = GrpcCoordinator::new(&url, trusting).unwrap();
    assert_eq!(trusting.prepare(&half).await.unwrap(), Prepared::Fresh(HalfState::Prepared));
}
