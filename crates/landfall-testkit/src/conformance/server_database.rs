//! The conformance suite of a database that is a server: connecting, commits over a network, SQL writers.
//!
//! It complements the suite of all databases. An adapter implements [`ServerFixture`] for its
//! [`DatabaseFixture`] and calls
//!
//! ```text
//! landfall_testkit::server_database_conformance!(PostgresFixture);
//! ```

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use landfall_core::adapter::Decision;
use landfall_core::{
    Database, DeadLetterFilter, DeadLetters, Error, ErrorCode, ErrorKind, Kind, Mode, OutboxFilter, OutboxQueue,
    OutboxView, OutboxWriter, Result, Schema,
};

use super::database::{CASE_LIMIT, Connection, DatabaseFixture};
use crate::eventually;
use crate::relay_steps::{LONG, SOON, lease_all, message, publish_everything, settlement};

/// What a case needs to know about a server and its SQL.
pub trait ServerFixture: DatabaseFixture {
    /// As URLs begin: `postgres`.
    const SCHEME: &'static str;
    /// As errors begin: `PostgreSQL`.
    const PRODUCT: &'static str;
    /// The column of the key as statements quote it.
    const KEY: &'static str;

    fn url(&self) -> &str;

    /// Connects with the default options.
    fn connect(url: &str) -> impl Future<Output = Result<Self::Database>> + Send;

    /// Runs a statement; panics if it fails.
    fn execute(&self, connection: &mut Connection<Self>, statement: &str) -> impl Future<Output = ()> + Send;

    /// Ends the server's side of the connection, and returns when it is gone.
    fn kill(&self, connection: &mut Connection<Self>) -> impl Future<Output = ()> + Send;

    /// Opens a transaction with a snapshot, which stays open until the value is dropped.
    fn hold_snapshot(&self) -> impl Future<Output = Box<dyn Send>> + Send;

    /// Counts the sessions on this database that are idle in a transaction.
    fn idle_in_transaction(&self) -> impl Future<Output = i64> + Send;
}

/// Runs one case on its own database, which has no tables yet.
pub async fn run<F: ServerFixture, C: AsyncFnOnce(F)>(case: C) {
    let Some(fixture) = F::create().await else { return };
    tokio::time::timeout(CASE_LIMIT, case(fixture)).await.expect("the case took longer than its limit");
}

async fn migrated<F: ServerFixture>(fixture: &F) -> F::Database {
    let database = fixture.open().await;
    database.migrate().await.unwrap();
    database
}

async fn execute<F: ServerFixture>(fixture: &F, database: &F::Database, statement: &str) {
    let mut transaction = database.begin().await.unwrap();
    fixture.execute(&mut transaction, statement).await;
    database.commit(transaction).await.unwrap();
}

async fn refused<F: ServerFixture>(url: &str) -> Error {
    let started = Instant::now();
    let error = F::connect(url).await.err().expect("the connection is refused");
    assert!(started.elapsed() < Duration::from_secs(20), "it took {:?}", started.elapsed());
    error
}

pub async fn missing_server_is_unavailable<F: ServerFixture>(_: F) {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let error = refused::<F>(&format!("{}://shop:s3cret@127.0.0.1:{port}/orders", F::SCHEME)).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let (text, product) = (error.to_string(), F::PRODUCT);
    let sentence = format!("{product} at 127.0.0.1:{port}/orders could not open a connection");
    assert!(text.starts_with(&sentence) && !text.contains("s3cret"), "{text}");
}

pub async fn silent_server_is_unavailable<F: ServerFixture>(_: F) {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let error = refused::<F>(&format!("{}://shop:s3cret@127.0.0.1:{port}/orders", F::SCHEME)).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("did not answer"), "{error}");
}

pub async fn malformed_url_is_invalid<F: ServerFixture>(_: F) {
    let error = refused::<F>(&format!("{}://shop:s3cret@host:port/orders", F::SCHEME)).await;
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(!error.to_string().contains("s3cret"), "{error}");
}

pub async fn missing_database_is_not_found<F: ServerFixture>(fixture: F) {
    let error = refused::<F>(&format!("{}_but_not_this_one", fixture.url())).await;
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
}

pub async fn newer_schema_is_refused_and_left_alone<F: ServerFixture>(fixture: F) {
    let database = migrated(&fixture).await;
    execute(&fixture, &database, "INSERT INTO landfall_schema VALUES (1000, CURRENT_TIMESTAMP)").await;
    for error in [database.migrate().await.unwrap_err(), database.check().await.unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::Schema);
        assert!(error.to_string().contains("version 1000"), "{error}");
    }
    assert_eq!(database.state().await.unwrap().found, 1000);
}

pub async fn calls_without_tables_report_a_schema_error<F: ServerFixture>(fixture: F) {
    let database = fixture.open().await;
    let error = database.append(&[message("a", 1)]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Schema, "{error}");
    assert_eq!(database.stats().await.unwrap_err().kind(), ErrorKind::Schema);
}

pub async fn insert_of_topic_key_and_payload_is_a_message<F: ServerFixture>(fixture: F) {
    let database = migrated(&fixture).await;
    let columns = format!("topic, {}, payload", F::KEY);
    let insert = format!("INSERT INTO landfall_outbox ({columns}) VALUES ('orders', 'o-1', 'hello')");
    execute(&fixture, &database, &insert).await;

    let leases = lease_all(&database, "one", LONG).await;
    let message = database.next(&leases, 10).await.unwrap().remove(0).message.unwrap();
    assert_eq!((message.topic.as_str(), message.key.unwrap().as_str()), ("orders", "o-1"));
    assert_eq!((&message.payload[..], message.kind, message.mode), (&b"hello"[..], Kind::default(), Mode::default()));
    assert!(message.headers.is_empty() && message.sequence.is_none());
}

pub async fn default_id_is_a_uuid7_with_the_current_time<F: ServerFixture>(fixture: F) {
    let database = migrated(&fixture).await;
    let millis = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64;
    let before = millis();
    let rows = vec!["('orders', '')"; 200].join(", ");
    execute(&fixture, &database, &format!("INSERT INTO landfall_outbox (topic, payload) VALUES {rows}")).await;
    let copy = "INSERT INTO landfall_outbox (topic, payload) SELECT topic, payload FROM landfall_outbox";
    execute(&fixture, &database, copy).await;
    let leases = lease_all(&database, "one", LONG).await;
    let entries = database.next(&leases, 1000).await.unwrap();
    // The clock of a server elsewhere may differ.
    let (earliest, latest) = (before - 300_000, millis() + 300_000);
    for id in entries.iter().map(|entry| entry.message_id.as_uuid()) {
        assert_eq!((id.get_version_num(), id.get_variant()), (7, uuid::Variant::RFC4122), "{id}");
        let (seconds, nanos) = id.get_timestamp().unwrap().to_unix();
        let time = Duration::new(seconds, nanos).as_millis() as u64;
        assert!((earliest..=latest).contains(&time), "{id} contains {time}");
    }
    assert_eq!(entries.iter().map(|entry| entry.message_id).collect::<BTreeSet<_>>().len(), 400);
    let shards: BTreeSet<u16> = entries.iter().map(|entry| entry.shard.0).collect();
    assert_eq!(shards.len(), usize::from(database.shards()), "messages without a key are distributed");
}

/// The column accepts such a key, but a message does not. The relay parks it, and operators see it.
pub async fn key_with_a_line_break_is_parked_and_listed<F: ServerFixture>(fixture: F) {
    let database = migrated(&fixture).await;
    let columns = format!("topic, {}, payload", F::KEY);
    let insert = format!("INSERT INTO landfall_outbox ({columns}) VALUES ('orders', 'a\nb', '')");
    execute(&fixture, &database, &insert).await;
    assert_eq!(database.list(&OutboxFilter::default(), 10).await.unwrap()[0].key.as_ref().unwrap().as_str(), "a?b");
    let leases = lease_all(&database, "one", LONG).await;
    let entry = database.next(&leases, 10).await.unwrap().remove(0);
    let error = entry.message.as_ref().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().starts_with("outbox row 1 cannot be a message: key"), "{error}");

    let park = Decision::Park { code: ErrorCode::VALIDATION, error: error.to_string(), holds_key: true };
    database.settle(&leases, &[settlement(&entry, park)]).await.unwrap();
    let letters = database.find(&DeadLetterFilter::default(), 10).await.unwrap();
    assert_eq!(letters[0].key.as_ref().unwrap().as_str(), "a?b");
    assert_eq!(letters[0].error_code, "VALIDATION_ERROR");
}

/// Both a writer and a reader that stay open keep old row versions alive.
pub async fn long_transactions_delay_no_other<F: ServerFixture>(fixture: F) {
    let database = migrated(&fixture).await;
    let leases = lease_all(&database, "one", LONG).await;
    let mut writer = database.begin().await.unwrap();
    let unfinished = message("a", 0);
    database.enqueue(&mut writer, std::slice::from_ref(&unfinished)).await.unwrap();
    let reader = fixture.hold_snapshot().await;
    for round in 1..=20 {
        let messages = [message("a", round), message("b", round)];
        database.append(&messages).await.unwrap();
        let expected: Vec<_> = messages.iter().map(|message| message.id).collect();
        assert_eq!(publish_everything(&database, &leases).await, expected);
    }
    database.commit(writer).await.unwrap();
    assert_eq!(publish_everything(&database, &leases).await, [unfinished.id]);
    drop(reader);
}

pub async fn connections_serve_many_transactions<F: ServerFixture>(fixture: F) {
    let database = migrated(&fixture).await;
    for sequence in 1..=20 {
        let mut transaction = database.begin().await.unwrap();
        database.enqueue(&mut transaction, &[message("a", sequence)]).await.unwrap();
        if sequence % 4 == 0 {
            drop(transaction);
        } else {
            database.commit(transaction).await.unwrap();
        }
    }
    assert_eq!(database.list(&OutboxFilter::default(), 100).await.unwrap().len(), 15);
    // A dropped transaction, and what a commit leaves to the driver, are rolled back.
    let is_idle = async || fixture.idle_in_transaction().await == 0;
    eventually(SOON, "no connection stays in a transaction", is_idle).await;
}

pub async fn connection_lost_during_the_commit_is_unknown<F: ServerFixture>(fixture: F) {
    let database = migrated(&fixture).await;
    let message = message("a", 1);
    let mut transaction = database.begin().await.unwrap();
    database.enqueue(&mut transaction, std::slice::from_ref(&message)).await.unwrap();
    fixture.kill(&mut transaction).await;
    let error = database.commit(transaction).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unknown, "{error}");
    assert!(database.show(message.id).await.unwrap().is_empty(), "this commit did not happen");

    // The lost connection is not handed out again.
    database.append(std::slice::from_ref(&message)).await.unwrap();
    assert_eq!(database.show(message.id).await.unwrap().len(), 1);
}

/// One test per case of the suite, for the named
/// [`ServerFixture`](crate::conformance::server_database::ServerFixture).
#[macro_export]
macro_rules! server_database_conformance {
    ($fixture:ty) => {
        $crate::server_database_conformance! { @cases $fixture:
            missing_server_is_unavailable,
            silent_server_is_unavailable,
            malformed_url_is_invalid,
            missing_database_is_not_found,
            newer_schema_is_refused_and_left_alone,
            calls_without_tables_report_a_schema_error,
            insert_of_topic_key_and_payload_is_a_message,
            default_id_is_a_uuid7_with_the_current_time,
            key_with_a_line_break_is_parked_and_listed,
            long_transactions_delay_no_other,
            connections_serve_many_transactions,
            connection_lost_during_the_commit_is_unknown,
        }
    };
    (@cases $fixture:ty: $($case:ident,)+) => {
        $(
            #[::tokio::test(flavor = "multi_thread")]
            async fn $case() {
                use $crate::conformance::server_database;
                server_database::run::<$fixture, _>(server_database::$case).await;
            }
        )+
    };
}
