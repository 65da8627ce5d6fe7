//! The proxy between a real client and a real server.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use landfall_core::{Database, ErrorKind, Message, OutboxView, OutboxWriter, Schema, TopicName};
use landfall_postgres::{Options, Postgres};
use landfall_testkit::eventually;
use landfall_testkit::proxy::{CutPoint, Proxy, Target, Trigger};
use landfall_testkit::servers::{PostgresServer, private_postgres};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixListener};

const BOUND: Duration = Duration::from_secs(20);

/// The client cannot distinguish a commit that never reached the server from one whose response was lost.
#[tokio::test]
async fn cut_commit_has_an_unknown_outcome() {
    let Some(server) = private_postgres().await else { return };
    let direct = server.fresh_database().await.unwrap();
    let proxy = Proxy::start(address(&server)).await.unwrap();
    let database = Postgres::connect(&proxy.url(&direct), Options::default()).await.unwrap();
    database.migrate().await.unwrap();

    for (point, pending) in [(CutPoint::BeforeForwarding, 0), (CutPoint::BeforeResponse, 1)] {
        let message = Message::new(TopicName::new("orders").unwrap(), "one book");
        let mut transaction = database.begin().await.unwrap();
        database.enqueue(&mut transaction, std::slice::from_ref(&message)).await.unwrap();
        proxy.cut_next(Trigger::word("COMMIT"), point);
        let error = database.commit(transaction).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unknown, "{point:?}: {error}");
        eventually(BOUND, "the outcome is visible", async || {
            database.stats().await.is_ok_and(|stats| stats.pending == pending)
        })
        .await;
    }
    let counts = proxy.counts();
    assert_eq!((counts.cut_before_forwarding, counts.cut_before_response), (1, 1), "{counts:?}");
}

#[tokio::test]
async fn cut_statement_is_unavailable_and_the_next_one_works() {
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
    eventually(BOUND, "the database is available again", async || database.stats().await.is_ok()).await;
}

#[tokio::test]
async fn byte_trigger_cuts_one_connection() {
    let proxy = Proxy::start(echo().await).await.unwrap();
    let (mut first, mut second) = (connect(&proxy).await, connect(&proxy).await);
    assert_eq!(request(&mut first, b"12345").await.unwrap(), b"12345");
    proxy.cut_next(Trigger::Bytes(8), CutPoint::BeforeForwarding);
    assert_eq!(request(&mut second, b"1234567").await.unwrap(), b"1234567");
    assert!(request(&mut first, b"678").await.is_err());
    assert_eq!(request(&mut second, b"8").await.unwrap(), b"8", "the cut affected another connection");
}

#[tokio::test]
async fn cut_one_leaves_other_connections_open() {
    let proxy = Proxy::start(echo().await).await.unwrap();
    assert!(!proxy.cut_one(3));
    let (mut first, mut second) = (connect(&proxy).await, connect(&proxy).await);
    request(&mut first, b"a").await.unwrap();
    request(&mut second, b"b").await.unwrap();
    assert!(proxy.cut_one(2));
    assert!(request(&mut first, b"a").await.is_err());
    assert_eq!(request(&mut second, b"b").await.unwrap(), b"b");
    assert_eq!((proxy.counts().connections, proxy.counts().cut), (2, 1));
}

#[tokio::test]
async fn heal_ends_refusals_and_delays() {
    let proxy = Proxy::start(echo().await).await.unwrap();
    let mut open = connect(&proxy).await;
    request(&mut open, b"a").await.unwrap();
    proxy.refuse();
    assert!(request(&mut connect(&proxy).await, b"a").await.is_err());
    proxy.delay(Duration::from_millis(80));
    let started = Instant::now();
    request(&mut open, b"a").await.unwrap();
    assert!(started.elapsed() >= Duration::from_millis(80));
    proxy.heal();
    request(&mut connect(&proxy).await, b"a").await.unwrap();
    assert_eq!(proxy.counts().refused, 1);
}

#[tokio::test]
async fn unix_socket_is_forwarded_and_missing_server_closes() {
    let folder = tempfile::TempDir::new().unwrap();
    let path = folder.path().join("socket");
    let proxy = Proxy::start(Target::Unix(path.clone())).await.unwrap();
    assert!(request(&mut connect(&proxy).await, b"a").await.is_err());
    let listener = UnixListener::bind(&path).unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (mut from, mut to) = tokio::io::split(stream);
            tokio::spawn(async move { tokio::io::copy(&mut from, &mut to).await });
        }
    });
    assert_eq!(request(&mut connect(&proxy).await, b"a").await.unwrap(), b"a");
}

#[tokio::test]
async fn blackholed_connection_drops_data_silently() {
    let proxy = Proxy::start(echo().await).await.unwrap();
    let mut blackholed = connect(&proxy).await;
    assert_eq!(request(&mut blackholed, b"a").await.unwrap(), b"a");
    assert_eq!((proxy.blackhole_all(), proxy.blackhole_all()), (1, 0));
    assert!(
        tokio::time::timeout(Duration::from_millis(300), request(&mut blackholed, b"b")).await.is_err(),
        "the connection got a response or was closed"
    );
    assert_eq!(request(&mut connect(&proxy).await, b"c").await.unwrap(), b"c");
}

fn address(server: &PostgresServer) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, server.port()).into()
}

/// Starts an echo server.
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

async fn request(stream: &mut TcpStream, data: &[u8]) -> std::io::Result<Vec<u8>> {
    stream.write_all(data).await?;
    let mut response = vec![0; data.len()];
    stream.read_exact(&mut response).await?;
    Ok(response)
}
