//! Connections that stop answering without being closed.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use landfall::consume::{Context, Handler};
use landfall::relay::{Options, Relay};
use landfall::{Broker, Failure, OutboxView};
use landfall_mysql::MySql;
use landfall_postgres::Postgres;
use landfall_testkit::proxy::Proxy;
use landfall_testkit::servers::{fresh_mysql_database, fresh_postgres_database};
use landfall_testkit::{MemoryBroker, eventually};
use tokio_util::sync::CancellationToken;

use crate::database::TestDatabase;
use crate::fixture::{Fixture, TIMEOUT, group, message, options, topic};

/// Twice the time after which a call to the database times out.
const RECOVERY: Duration = Duration::from_secs(120);

/// A proxy in front of the server of `url`.
async fn proxy_for(url: &str) -> Proxy {
    let address = url.split(['@', '/']).find_map(|part| part.parse::<SocketAddr>().ok());
    Proxy::start(address.unwrap()).await.unwrap()
}

async fn relay_recovers<D: TestDatabase + OutboxView>(direct: D, proxied: D, proxy: &Proxy) {
    direct.prepare().await;
    let broker = MemoryBroker::new();
    let options = Options { lease_ttl: Duration::from_secs(1), ..Options::default() };
    let relay = Relay::builder(proxied, broker.publisher()).options(options).build().unwrap();
    let stop = CancellationToken::new();
    let relay = tokio::spawn(relay.run(stop.clone()));
    direct.append(&[message("a", 1, "good")]).await.unwrap();
    eventually(TIMEOUT, "the relay publishes", async || direct.stats().await.unwrap().published == 1).await;
    assert!(proxy.blackhole_all() > 0, "a connection to the database exists");
    let next = message("a", 2, "good");
    direct.append(std::slice::from_ref(&next)).await.unwrap();
    let published = async || broker.published().iter().any(|(_, message)| message.id == next.id);
    eventually(RECOVERY, "the relay publishes again", published).await;
    stop.cancel();
    relay.await.unwrap().unwrap();
}

/// Writes, reports it, and waits for permission to return.
struct Blocking {
    started: CancellationToken,
    proceed: CancellationToken,
}

impl<D: TestDatabase> Handler<D> for Blocking {
    async fn handle(&self, context: Context<'_, D>) -> Result<(), Failure> {
        D::record(context.connection, context.message).await?;
        self.started.cancel();
        self.proceed.cancelled().await;
        Ok(())
    }
}

/// The connection of a running handler falls silent: the outcome of the commit is unknown, and it did not happen.
async fn message_is_retried<D: TestDatabase>(direct: D, proxied: D, proxy: &Proxy) {
    direct.prepare().await;
    let fixture = Fixture { database: proxied, broker: Arc::new(MemoryBroker::new()) };
    fixture.publish(&[message("a", 1, "good")]).await;
    let (started, proceed) = (CancellationToken::new(), CancellationToken::new());
    let consumer = fixture.consumer(options(), Blocking { started: started.clone(), proceed: proceed.clone() });
    tokio::time::timeout(TIMEOUT, started.cancelled()).await.unwrap();
    assert!(proxy.blackhole_all() > 0, "a connection to the database exists");
    proceed.cancel();
    eventually(RECOVERY, "the effect is there", async || direct.effects().await.len() == 1).await;
    eventually(RECOVERY, "the message is acknowledged", async || fixture.broker.unfinished(&topic(), &group()) == 0)
        .await;
    assert_eq!(direct.effects().await.len(), 1);
    consumer.stop().await;
}

async fn postgresql() -> Option<(Postgres, Postgres, Proxy)> {
    let url = fresh_postgres_database().await?;
    let proxy = proxy_for(&url).await;
    let open = async |url: &str| Postgres::connect(url, landfall_postgres::Options::default()).await.unwrap();
    Some((open(&url).await, open(&proxy.url(&url)).await, proxy))
}

async fn mariadb() -> Option<(MySql, MySql, Proxy)> {
    let url = fresh_mysql_database().await?;
    let proxy = proxy_for(&url).await;
    let open = async |url: &str| MySql::connect(url, landfall_mysql::Options::default()).await.unwrap();
    Some((open(&url).await, open(&proxy.url(&url)).await, proxy))
}

#[tokio::test(flavor = "multi_thread")]
async fn relay_recovers_from_silent_connections_on_postgresql() {
    let Some((direct, proxied, proxy)) = postgresql().await else { return };
    relay_recovers(direct, proxied, &proxy).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn relay_recovers_from_silent_connections_on_mariadb() {
    let Some((direct, proxied, proxy)) = mariadb().await else { return };
    relay_recovers(direct, proxied, &proxy).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn message_is_retried_after_a_silent_connection_on_postgresql() {
    let Some((direct, proxied, proxy)) = postgresql().await else { return };
    message_is_retried(direct, proxied, &proxy).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn message_is_retried_after_a_silent_connection_on_mariadb() {
    let Some((direct, proxied, proxy)) = mariadb().await else { return };
    message_is_retried(direct, proxied, &proxy).await;
}
