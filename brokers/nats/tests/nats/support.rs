//! The shared server, for tests that do not disturb it, and helpers to connect.

use std::sync::Arc;
use std::time::{Duration, Instant};

use landfall_core::Broker;
use landfall_nats::{Nats, Options};
use landfall_testkit::current_test;
use landfall_testkit::servers::{NatsOptions, NatsServer, SharedGuard, SharedServer};
use landfall_testkit::traffic::Traffic;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

/// Timeout of every bounded wait.
pub(crate) const SOON: Duration = Duration::from_secs(60);

/// Request timeout of tests that do not test timeouts.
const GENEROUS_TIMEOUT: Duration = Duration::from_secs(20);

pub(crate) static SHARED: SharedServer<NatsServer> = SharedServer::new();

/// The shared server, in use until the returned guard is dropped. Each test uses its own topic prefix.
pub(crate) async fn shared() -> Option<SharedGuard<NatsServer>> {
    SHARED.shared_with(own).await
}

/// A server of this test's own, which it may disturb.
pub(crate) async fn own() -> Option<NatsServer> {
    NatsServer::start(&current_test(), NatsOptions::default()).await
}

/// Connects with a longer timeout than the default, unless the URL sets one: a busy machine answers late.
pub(crate) async fn connect(url: &str) -> Nats {
    let mut options = Options::from_url(url).unwrap();
    if options.timeout == Options::default().timeout {
        options.timeout = GENEROUS_TIMEOUT;
    }
    let started = Instant::now();
    loop {
        match Nats::connect(options.clone()).await {
            Ok(broker) => return broker,
            Err(error) => assert!(error.is_temporary() && started.elapsed() < SOON, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Publishes `headers` verbatim, which the client would refuse. The server has stored the message when this returns.
pub(crate) async fn publish_raw(server: &NatsServer, subject: &str, headers: &[u8], payload: &[u8]) {
    let mut stream = BufReader::new(TcpStream::connect(server.address()).await.unwrap());
    let (before, all) = (headers.len(), headers.len() + payload.len());
    let commands = format!(
        "CONNECT {{\"verbose\":false,\"pedantic\":false,\"headers\":true}}\r\n\
         HPUB {subject} {before} {all}\r\n"
    );
    stream.write_all(&[commands.as_bytes(), headers, payload, b"\r\nPING\r\n"].concat()).await.unwrap();
    let mut answered = String::new();
    while !answered.ends_with("PONG\r\n") {
        assert!(!answered.contains("-ERR"), "{answered}");
        let read =
            tokio::time::timeout(SOON, stream.read_line(&mut answered)).await.expect("the server answers in time");
        assert_ne!(read.unwrap(), 0, "{answered}");
    }
}

/// One publisher and one consumer.
pub(crate) async fn traffic(broker: &Nats) -> Traffic {
    let broker: Arc<dyn Broker> = Arc::new(broker.clone());
    Traffic::start(broker.clone(), [broker]).await
}
