//! Connections that fall silent: nobody hangs up, and nobody answers any more.

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

use crate::ground::{Ground, PATIENCE, group, message, options, topic};
use crate::place::Place;

/// How long it takes to call a database silent, twice over.
const NOTICED: Duration = Duration::from_secs(120);

/// The server of `url`.
async fn before(url: &str) -> Proxy {
    let place = url.split(['@', '/']).find_map(|part| part.parse::<SocketAddr>().ok());
    Proxy::start(place.unwrap()).await.unwrap()
}

async fn goes_on<D: Place + OutboxView>(direct: D, proxied: D, proxy: &Proxy) {
    direct.prepare().await;
    let broker = MemoryBroker::new();
    let options = Options { lease_ttl: Duration::from_secs(1), ..Options::default() };
    let proxied = Arc::new(proxied);
    let relay = Relay::new(proxied.clone(), proxied, broker.publisher(), options);
    let stop = CancellationToken::new();
    let relay = tokio::spawn(relay.run(stop.clone()));
    direct.append(&[message("a", 1, "good")]).await.unwrap();
    eventually(PATIENCE, "it works", async || direct.stats().await.unwrap().published == 1).await;
    assert!(proxy.blackhole_all() > 0, "somebody talks to the database");
    let next = message("a", 2, "good");
    direct.append(std::slice::from_ref(&next)).await.unwrap();
    let published = async || broker.published().iter().any(|(_, message)| message.id == next.id);
    eventually(NOTICED, "it works again", published).await;
    stop.cancel();
    relay.await.unwrap().unwrap();
}

/// Changes something, says so, and waits until it may go on.
struct Waits {
    begun: CancellationToken,
    goes_on: CancellationToken,
}

impl<D: Place> Handler<D> for Waits {
    async fn handle(&self, context: Context<'_, D>) -> Result<(), Failure> {
        D::record(context.connection, context.message).await?;
        self.begun.cancel();
        self.goes_on.cancelled().await;
        Ok(())
    }
}

/// The connection of a handler falls silent while it works: nobody knows whether the commit happened, and it did not.
async fn is_handled_again<D: Place>(direct: D, proxied: D, proxy: &Proxy) {
    direct.prepare().await;
    let ground = Ground { database: proxied, broker: Arc::new(MemoryBroker::new()) };
    ground.publish(&[message("a", 1, "good")]).await;
    let (begun, goes_on) = (CancellationToken::new(), CancellationToken::new());
    let consumer = ground.consumer(options(), Waits { begun: begun.clone(), goes_on: goes_on.clone() });
    tokio::time::timeout(PATIENCE, begun.cancelled()).await.unwrap();
    assert!(proxy.blackhole_all() > 0, "somebody talks to the database");
    goes_on.cancel();
    eventually(NOTICED, "it is handled", async || direct.effects().await.len() == 1).await;
    eventually(NOTICED, "it is acknowledged", async || ground.broker.unfinished(&topic(), &group()) == 0).await;
    assert_eq!(direct.effects().await.len(), 1);
    consumer.stop().await;
}

async fn postgresql() -> Option<(Postgres, Postgres, Proxy)> {
    let url = fresh_postgres_database().await?;
    let proxy = before(&url).await;
    let open = async |url: &str| Postgres::connect(url, landfall_postgres::Options::default()).await.unwrap();
    Some((open(&url).await, open(&proxy.url(&url)).await, proxy))
}

async fn mariadb() -> Option<(MySql, MySql, Proxy)> {
    let url = fresh_mysql_database().await?;
    let proxy = before(&url).await;
    let open = async |url: &str| MySql::connect(url, landfall_mysql::Options::default()).await.unwrap();
    Some((open(&url).await, open(&proxy.url(&url)).await, proxy))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_goes_on_after_its_connections_fell_silent_on_postgresql() {
    let Some((direct, proxied, proxy)) = postgresql().await else { return };
    goes_on(direct, proxied, &proxy).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_goes_on_after_its_connections_fell_silent_on_mariadb() {
    let Some((direct, proxied, proxy)) = mariadb().await else { return };
    goes_on(direct, proxied, &proxy).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_whose_connection_fell_silent_is_handled_again_on_postgresql() {
    let Some((direct, proxied, proxy)) = postgresql().await else { return };
    is_handled_again(direct, proxied, &proxy).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_whose_connection_fell_silent_is_handled_again_on_mariadb() {
    let Some((direct, proxied, proxy)) = mariadb().await else { return };
    is_handled_again(direct, proxied, &proxy).await;
}
