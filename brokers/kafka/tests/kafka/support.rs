//! The shared node, and helpers to connect to it.

use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use landfall_core::Broker;
use landfall_kafka::{Kafka, Options};
use landfall_testkit::proxy::Proxy;
use landfall_testkit::servers::{ExclusiveGuard, KafkaOptions, KafkaServer, SharedGuard, SharedServer};
use landfall_testkit::traffic::Traffic;
use landfall_testkit::{current_test, eventually};
use rdkafka::ClientConfig;
use rdkafka::admin::AdminClient;
use rdkafka::client::DefaultClientContext;
use tokio::sync::{Mutex, MutexGuard};

/// Timeout of every bounded wait.
pub(crate) const SOON: Duration = Duration::from_secs(60);

pub(crate) static SHARED: SharedServer<Shared> = SharedServer::new();

/// A node, and the port on which a proxy in front of it must listen: the node advertises that port to its clients.
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

/// The shared node, in use until the returned guard is dropped.
pub(crate) async fn shared() -> Option<SharedGuard<Shared>> {
    SHARED.shared_with(start).await
}

/// Exclusive use of the node, for tests that kill or pause it.
pub(crate) async fn exclusive() -> Option<ExclusiveGuard<Shared>> {
    SHARED.exclusive_with(start).await
}

/// A proxy in front of the shared node, for one test at a time.
pub(crate) struct Proxied {
    proxy: Proxy,
    _exclusive: MutexGuard<'static, ()>,
}

impl Deref for Proxied {
    type Target = Proxy;

    fn deref(&self) -> &Proxy {
        &self.proxy
    }
}

impl Shared {
    /// A URL with short timeouts, so that an outage of seconds exceeds them.
    pub(crate) async fn impatient_url(&self) -> String {
        let options = "partitions=4&timeout=5s&connect_timeout=4s&session_timeout=6s";
        format!("{}?{options}&prefix={}", self.url().await, fresh_prefix())
    }

    pub(crate) async fn proxy(&self) -> Proxied {
        static EXCLUSIVE: Mutex<()> = Mutex::const_new(());
        let exclusive = EXCLUSIVE.lock().await;
        let server = SocketAddr::from(([127, 0, 0, 1], self.listening));
        let mut proxy = None;
        // The previous test may not have released the port yet.
        let started = async || {
            proxy = Proxy::start_on(self.proxy_port, server).await.ok();
            proxy.is_some()
        };
        eventually(SOON, "the proxy's port is free", started).await;
        Proxied { proxy: proxy.unwrap(), _exclusive: exclusive }
    }
}

/// A topic prefix that no other test uses.
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

/// One publisher and one consumer, each with its own connections.
pub(crate) async fn traffic(url: &str) -> Traffic {
    Traffic::start(broker(url).await, [broker(url).await]).await
}

/// librdkafka's admin client.
pub(crate) fn administrator(address: &str) -> AdminClient<DefaultClientContext> {
    ClientConfig::new().set("bootstrap.servers", address).create().unwrap()
}
