//! One server for all tests that do it no harm, and what they talk to it with.

use std::sync::Arc;
use std::time::{Duration, Instant};

use landfall_core::Broker;
use landfall_nats::{Nats, Options};
use landfall_testkit::current_test;
use landfall_testkit::servers::{InUse, NatsOptions, NatsServer, Restartable};
use landfall_testkit::traffic::Traffic;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

/// Within this a bounded wait must have seen what it waits for.
pub(crate) const SOON: Duration = Duration::from_secs(60);

/// How long an answer is waited for where a test is not about that.
const PATIENT: Duration = Duration::from_secs(20);

pub(crate) static SHARED: Restartable<NatsServer> = Restartable::new();

/// The server, for as long as the answer is held. Topics on it have a prefix of their own.
pub(crate) async fn shared() -> Option<InUse<NatsServer>> {
    SHARED.use_with(own).await
}

/// A server that this test may do anything with.
pub(crate) async fn own() -> Option<NatsServer> {
    NatsServer::start(&current_test(), NatsOptions::default()).await
}

/// With more patience than is usual, unless the URL says how much: a busy machine answers late.
pub(crate) async fn connect(url: &str) -> Nats {
    let mut options = Options::from_url(url).unwrap();
    if options.timeout == Options::default().timeout {
        options.timeout = PATIENT;
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

/// Publishes what the client would not: `headers` as they stand. The server has it when this returns.
pub(crate) async fn publish_raw(server: &NatsServer, subject: &str, headers: &str, payload: &str) {
    let mut stream = BufReader::new(TcpStream::connect(server.address()).await.unwrap());
    let (before, all) = (headers.len(), headers.len() + payload.len());
    let said = format!(
        "CONNECT {{\"verbose\":false,\"pedantic\":false,\"headers\":true}}\r\n\
         HPUB {subject} {before} {all}\r\n{headers}{payload}\r\nPING\r\n"
    );
    stream.write_all(said.as_bytes()).await.unwrap();
    let mut answered = String::new();
    while !answered.ends_with("PONG\r\n") {
        assert!(!answered.contains("-ERR"), "{answered}");
        let read = tokio::time::timeout(SOON, stream.read_line(&mut answered)).await.expect("the server answers soon");
        assert_ne!(read.unwrap(), 0, "{answered}");
    }
}

/// One sender and one consumer.
pub(crate) async fn traffic(broker: &Nats) -> Traffic {
    let broker: Arc<dyn Broker> = Arc::new(broker.clone());
    Traffic::start(broker.clone(), [broker]).await
}
