//! The proxy, between a real client and a real server.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use landfall_core::{Database, ErrorKind, Message, OutboxView, OutboxWriter, Schema, TopicName};
use landfall_postgres::{Options, Postgres};
use landfall_testkit::eventually;
use landfall_testkit::proxy::{Moment, Proxy, Target, Trigger};
use landfall_testkit::servers::{PostgresServer, private_postgres};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixListener};

const BOUND: Duration = Duration::from_secs(20);

/// A commit that the server never got, and one whose answer never came, look the same to the client: unknown.
#[tokio::test]
async fn a_commit_that_is_cut_is_unknown_and_happened_or_not() {
    let Some(server) = private_postgres().await else { return };
    let direct = server.fresh_database().await.unwrap();
    let proxy = Proxy::start(address(&server)).await.unwrap();
    let database = Postgres::connect(&proxy.url(&direct), Options::default()).await.unwrap();
    database.migrate().await.unwrap();

    for (moment, is_there) in [(Moment::BeforeForwarding, 0), (Moment::BeforeTheAnswer, 1)] {
        let message = Message::new(TopicName::new("orders").unwrap(), "one book");
        let mut transaction = database.begin().await.unwrap();
        database.enqueue(&mut transaction, std::slice::from_ref(&message)).await.unwrap();
        proxy.cut_next(Trigger::word("COMMIT"), moment);
        let error = database.commit(transaction).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unknown, "{moment:?}: {error}");
        eventually(BOUND, "the outcome can be looked up", async || {
            database.stats().await.is_ok_and(|stats| stats.pending == is_there)
        })
        .await;
    }
    let counts = proxy.counts();
    assert_eq!((counts.cut_before_forwarding, counts.cut_before_the_answer), (1, 1), "{counts:?}");
}

#[tokio::test]
async fn a_statement_that_is_cut_is_unavailable_and_the_next_one_works() {
    let Some(server) = private_postgres().await else { return };
    let direct = server.fresh_database().await.unwrap();
    let proxy = Proxy::start(address(&server)).await.unwrap();
    let database = Postgres::connect(&proxy.url(&direct), Options::default()).await.unwrap();
    database.migrate().await.unwrap();

    let mut transaction = database.begin().await.unwrap();
    assert!(proxy.cut_all() > 0);
    let message = Message::new(TopicName::new("orders").unwrap(), "one book");
    let error = database.enqueue(&mut transaction, &[message]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    eventually(BOUND, "the database can be reached again", async || database.stats().await.is_ok()).await;
}

#[tokio::test]
async fn a_cut_waits_for_its_bytes_and_hits_one_connection() {
    let proxy = Proxy::start(echo().await).await.unwrap();
    let (mut first, mut second) = (connect(&proxy).await, connect(&proxy).await);
    assert_eq!(ask(&mut first, b"12345").await.unwrap(), b"12345");
    proxy.cut_next(Trigger::Bytes(8), Moment::BeforeForwarding);
    assert_eq!(ask(&mut second, b"1234567").await.unwrap(), b"1234567");
    assert!(ask(&mut first, b"678").await.is_err());
    assert_eq!(ask(&mut second, b"8").await.unwrap(), b"8", "one cut cuts one connection");
}

#[tokio::test]
async fn one_connection_is_cut_and_the_others_stay() {
    let proxy = Proxy::start(echo().await).await.unwrap();
    assert!(!proxy.cut_one(3));
    let (mut first, mut second) = (connect(&proxy).await, connect(&proxy).await);
    ask(&mut first, b"a").await.unwrap();
    ask(&mut second, b"b").await.unwrap();
    assert!(proxy.cut_one(2));
    assert!(ask(&mut first, b"a").await.is_err());
    assert_eq!(ask(&mut second, b"b").await.unwrap(), b"b");
    assert_eq!((proxy.counts().connections, proxy.counts().cut), (2, 1));
}

#[tokio::test]
async fn what_is_refused_or_delayed_is_as_before_once_healed() {
    let proxy = Proxy::start(echo().await).await.unwrap();
    let mut open = connect(&proxy).await;
    ask(&mut open, b"a").await.unwrap();
    proxy.refuse();
    assert!(ask(&mut connect(&proxy).await, b"a").await.is_err());
    proxy.delay(Duration::from_millis(80));
    let started = Instant::now();
    ask(&mut open, b"a").await.unwrap();
    assert!(started.elapsed() >= Duration::from_millis(80));
    proxy.heal();
    ask(&mut connect(&proxy).await, b"a").await.unwrap();
    assert_eq!(proxy.counts().refused, 1);
}

#[tokio::test]
async fn a_unix_socket_is_reached_and_a_server_that_is_not_there_is_a_closed_connection() {
    let folder = tempfile::TempDir::new().unwrap();
    let path = folder.path().join("socket");
    let proxy = Proxy::start(Target::Unix(path.clone())).await.unwrap();
    assert!(ask(&mut connect(&proxy).await, b"a").await.is_err());
    let listener = UnixListener::bind(&path).unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (mut from, mut to) = tokio::io::split(stream);
            tokio::spawn(async move { tokio::io::copy(&mut from, &mut to).await });
        }
    });
    assert_eq!(ask(&mut connect(&proxy).await, b"a").await.unwrap(), b"a");
}

#[tokio::test]
async fn a_silent_connection_takes_everything_and_neither_side_is_told() {
    let proxy = Proxy::start(echo().await).await.unwrap();
    let mut silent = connect(&proxy).await;
    assert_eq!(ask(&mut silent, b"a").await.unwrap(), b"a");
    assert_eq!((proxy.silence_all(), proxy.silence_all()), (1, 0));
    assert!(
        tokio::time::timeout(Duration::from_millis(300), ask(&mut silent, b"b")).await.is_err(),
        "an answer, or the end"
    );
    assert_eq!(ask(&mut connect(&proxy).await, b"c").await.unwrap(), b"c");
}

fn address(server: &PostgresServer) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, server.port()).into()
}

/// A server that says what it is told.
async fn echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (mut from, mut to) = tokio::io::split(stream);
            tokio::spawn(async move { tokio::io::copy(&mut from, &mut to).await });
        }
    });
    address
}

async fn connect(proxy: &Proxy) -> TcpStream {
    TcpStream::connect(proxy.address()).await.unwrap()
}

async fn ask(stream: &mut TcpStream, words: &[u8]) -> std::io::Result<Vec<u8>> {
    stream.write_all(words).await?;
    let mut answer = vec![0; words.len()];
    stream.read_exact(&mut answer).await?;
    Ok(answer)
}
