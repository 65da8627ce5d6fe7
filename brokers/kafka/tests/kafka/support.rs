//! One node for all tests, and what they talk to it with.

use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use landfall_core::Broker;
use landfall_kafka::{Kafka, Options};
use landfall_testkit::proxy::Proxy;
use landfall_testkit::servers::{Alone, InUse, KafkaOptions, KafkaServer, Restartable};
use landfall_testkit::traffic::Traffic;
use landfall_testkit::{current_test, eventually};
use rdkafka::ClientConfig;
use rdkafka::admin::AdminClient;
use rdkafka::client::DefaultClientContext;
use tokio::sync::{Mutex, MutexGuard};

/// Within this a bounded wait must have seen what it waits for.
pub(crate) const SOON: Duration = Duration::from_secs(60);

pub(crate) static SHARED: Restartable<Shared> = Restartable::new();

/// A node, and where a proxy must listen that stands before it: the node tells its clients where to go.
pub(crate) struct Shared {
    server: KafkaServer,
    listening: u16,
    proxy_port: u16,
}

impl Deref for Shared {
    type Target = KafkaServer;

    fn deref(&self) -> &KafkaServer {
        &self.server
    }
}

async fn start() -> Option<Shared> {
    let (listening, proxy_port) = (KafkaServer::free_port().unwrap(), KafkaServer::free_port().unwrap());
    let options = KafkaOptions { proxied: Some((listening, proxy_port)), ..KafkaOptions::default() };
    let server = KafkaServer::start(&current_test(), options).await?;
    Some(Shared { server, listening, proxy_port })
}

/// The node, for as long as the answer is held.
pub(crate) async fn shared() -> Option<InUse<Shared>> {
    SHARED.use_with(start).await
}

/// The node for one who kills or pauses it.
pub(crate) async fn alone() -> Option<Alone<Shared>> {
    SHARED.alone_with(start).await
}

/// A proxy before the shared node, for one test at a time.
pub(crate) struct Proxied {
    proxy: Proxy,
    _turn: MutexGuard<'static, ()>,
}

impl Deref for Proxied {
    type Target = Proxy;

    fn deref(&self) -> &Proxy {
        &self.proxy
    }
}

impl Shared {
    /// Impatient, so that an outage of seconds is long.
    pub(crate) async fn impatient_url(&self) -> String {
        let options = "partitions=4&timeout=5s&connect_timeout=4s&session_timeout=6s";
        format!("{}?{options}&prefix={}", self.url().await, fresh_prefix())
    }

    pub(crate) async fn proxy(&self) -> Proxied {
        static TURN: Mutex<()> = Mutex::const_new(());
        let turn = TURN.lock().await;
        let server = SocketAddr::from(([127, 0, 0, 1], self.listening));
        let mut proxy = None;
        // The test before may still be letting go of the port.
        let started = async || {
            proxy = Proxy::start_on(self.proxy_port, server).await.ok();
            proxy.is_some()
        };
        eventually(SOON, "the proxy's port is free", started).await;
        Proxied { proxy: proxy.unwrap(), _turn: turn }
    }
}

/// What nobody else's topics begin with.
pub(crate) fn fresh_prefix() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("t{}.", NEXT.fetch_add(1, Ordering::Relaxed))
}

pub(crate) async fn kafka(url: &str) -> Kafka {
    Kafka::connect(Options::from_url(url).unwrap()).await.unwrap()
}

async fn broker(url: &str) -> Arc<dyn Broker> {
    Arc::new(kafka(url).await)
}

/// One sender and one consumer, each with connections of its own.
pub(crate) async fn traffic(url: &str) -> Traffic {
    Traffic::start(broker(url).await, [broker(url).await]).await
}

/// Kafka's own client for administrators.
pub(crate) fn administrator(address: &str) -> AdminClient<DefaultClientContext> {
    ClientConfig::new().set("bootstrap.servers", address).create().unwrap()
}
