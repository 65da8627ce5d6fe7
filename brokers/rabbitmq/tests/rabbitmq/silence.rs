//! Servers that accept connections but never answer, and hosts without a server.

use std::net::SocketAddr;
use std::time::Duration;

use landfall_core::{Broker, ErrorKind, TopicAdministration};
use landfall_rabbitmq::{Options, RabbitMq};
use landfall_testkit::eventually;
use landfall_testkit::proxy::Proxy;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::runtime::Handle;

use crate::support::*;

/// Longer than any test.
const FOREVER: Duration = Duration::from_secs(3600);

/// Accepts connections and never answers.
async fn silent() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").await.unwrap()
}

/// Forwards to the server until a client sends `word`, then forwards nothing more.
async fn proxy_until(word: String, server: u16) -> SocketAddr {
    let listener = silent().await;
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let server = TcpStream::connect(("127.0.0.1", server)).await.unwrap();
            tokio::spawn(forward(client, server, word.clone()));
        }
    });
    address
}

async fn forward(client: TcpStream, server: TcpStream, word: String) {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    tokio::spawn(async move { tokio::io::copy(&mut from_server, &mut to_client).await });
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(length @ 1..) = from_client.read(&mut buffer).await {
        if buffer[..length].windows(word.len()).any(|window| window == word.as_bytes()) {
            std::future::pending::<()>().await;
        }
        if to_server.write_all(&buffer[..length]).await.is_err() {
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_host_does_not_block_the_next_one() {
    let Some(server) = shared().await else { return };
    let silent = silent().await;
    let hosts = format!("amqp://guest:guest@{},127.0.0.1:{}", silent.local_addr().unwrap(), server.port());
    // Connecting to the first host always takes longer than the timeout of subscribing.
    let broker = connect_with(&hosts, &prefix(), "timeout=8&connect_timeout=9").await;
    let mut subscriber = subscribe(&broker).await;
    let message = keyed("a", 1);
    let published = async || publish_one(&broker, &message).await.is_accepted();
    eventually(SOON, "the message is published through the other host", published).await;
    assert_eq!(next(&mut subscriber).await.id, message.id);
}

#[tokio::test(flavor = "multi_thread")]
async fn stalled_connection_is_replaced() {
    let Some(server) = shared().await else { return };
    // Either timeout may expire first.
    for limits in ["timeout=20&connect_timeout=4", "timeout=4&connect_timeout=20"] {
        let proxy = Proxy::start(SocketAddr::from(([127, 0, 0, 1], server.port()))).await.unwrap();
        let prefix = prefix();
        create_group(&connect(&server.url(), &prefix, "").await).await;
        // No heartbeat is missed.
        let broker = connect_with(&proxy.url(&server.url()), &prefix, &format!("heartbeat=600&{limits}")).await;
        create_group(&broker).await;
        proxy.delay(FOREVER);
        let outcome = publish_one(&broker, &keyed("a", 1)).await;
        assert!(refusal(&outcome).retriable, "{outcome:?}");
        let error = broker.subscribe(&orders(), &stock()).await.err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        // Open connections stay stalled; only new ones work.
        proxy.heal();
        let message = keyed("b", 1);
        let published = async || publish_one(&broker, &message).await.is_accepted();
        eventually(SOON, "the message is published over a new connection", published).await;
        let mut subscriber = subscribe(&broker).await;
        assert_eq!(next(&mut subscriber).await.id, message.id);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn topic_administration_times_out() {
    let Some(server) = shared().await else { return };
    let broker = async || {
        let prefix = prefix();
        let address = proxy_until(format!("{prefix}orders"), server.port()).await;
        let parameters = format!("timeout=2&connect_timeout=60&heartbeat=600&{}", management(&server));
        connect_with(&format!("amqp://guest:guest@{address}"), &prefix, &parameters).await
    };
    let late = |error: landfall_core::Error| {
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.to_string().contains("did not answer in time"), "{error}");
    };
    let (creating, deleting) = (broker().await, broker().await);
    let created = tokio::time::timeout(SOON, creating.create_topic(&orders(), None)).await;
    late(created.expect("creation times out").unwrap_err());
    let deleted = tokio::time::timeout(SOON, deleting.delete_topic(&orders())).await;
    late(deleted.expect("deletion times out").unwrap_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_connections_leak_no_tasks() {
    // A bound port without a listener: connections are refused, and no other process gets the port.
    let port = TcpSocket::new_v4().unwrap();
    port.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = port.local_addr().unwrap();
    let before = Handle::current().metrics().num_alive_tasks();
    for _ in 0..50 {
        let hosts = vec![(address.ip().to_string(), address.port())];
        let error = RabbitMq::connect(Options { hosts, ..Options::default() }).await.err().unwrap();
        assert!(error.to_string().contains("cannot connect"), "{error}");
    }
    let all_ended = async || Handle::current().metrics().num_alive_tasks() <= before;
    eventually(SOON, "all tasks end", all_ended).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unanswered_connections_leak_nothing() {
    let silent = silent().await;
    let address = silent.local_addr().unwrap();
    let before = Handle::current().metrics().num_alive_tasks();
    for _ in 0..5 {
        let hosts = vec![(address.ip().to_string(), address.port())];
        let connect_timeout = Duration::from_secs(2);
        let error = RabbitMq::connect(Options { hosts, connect_timeout, ..Options::default() }).await.err().unwrap();
        assert!(error.to_string().contains("did not answer in time"), "{error}");
        let (mut socket, _) = tokio::time::timeout(SOON, silent.accept()).await.expect("a connection arrives").unwrap();
        let mut received = Vec::new();
        let closed = tokio::time::timeout(SOON, socket.read_to_end(&mut received)).await;
        closed.expect("the client closes the socket").unwrap();
    }
    let all_ended = async || Handle::current().metrics().num_alive_tasks() <= before;
    eventually(SOON, "all tasks end", all_ended).await;
}
