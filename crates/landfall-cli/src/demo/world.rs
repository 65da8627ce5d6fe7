//! The world: the child process that runs the services until the director kills it.
//!
//! Every start is the same, whatever the last process was doing when it died: open the databases and the log, and
//! continue. There is no separate recovery.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use landfall::consume::{self, Consumer, Handler};
use landfall::log::{self, Log};
use landfall::relay::{self, Relay};
use landfall::sqlite::Sqlite;
use landfall::{Backoff, Broker, ErrorKind, Publisher};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::duplicates::Duplicates;
use super::shop::{Service, Shop};
use super::story::Story;
use super::{Result, folder, orders, payment, stock};

/// The next relay waits for the lease of a killed one to expire, so a short lease keeps the pause after a crash short.
const LEASE: Duration = Duration::from_millis(400);

/// How long the services of a killed director may take to stop.
const PREDECESSOR_TIMEOUT: Duration = Duration::from_secs(20);

/// Runs the services until stdin is closed, then finishes work in flight. `life` counts the restarts.
pub(crate) async fn run_services(folder: &Path, story: Story, life: u64) -> Result<()> {
    let shop = Shop::open(folder).await?;
    let log = Arc::new(open_log(&folder.join(folder::LOG)).await?);
    let publisher: Arc<dyn Publisher> = Arc::new(Duplicates::new(log.publisher(), story.seed ^ life));
    let stop = CancellationToken::new();
    stop_when_stdin_closes(stop.clone());

    let mut work = JoinSet::new();
    for service in Service::ALL {
        work.spawn(relay(shop.database(service), publisher.clone(), stop.clone()));
    }
    work.spawn(consume(&shop, Service::Stock, stock::Reserve, log.clone(), stop.clone())?);
    work.spawn(consume(&shop, Service::Payment, payment::Charge, log.clone(), stop.clone())?);
    work.spawn(consume(&shop, Service::Orders, orders::MarkPaid, log.clone(), stop.clone())?);
    work.spawn(orders::place_all(shop.database(Service::Orders).clone(), story, stop.clone()));

    let mut result = Ok(());
    while let Some(ended) = work.join_next().await {
        if let Err(error) = ended.map_err(Into::into).flatten() {
            // One failed task stops all of them, so that a partial failure cannot go unnoticed.
            stop.cancel();
            result = result.and(Err(error));
        }
    }
    result.and(log.close().await.map_err(Into::into))
}

/// Opens the log. Waits while it is in use: the services of a killed director may still be stopping.
async fn open_log(folder: &Path) -> Result<Log> {
    let started = Instant::now();
    // Most brokers store duplicates, and this demo is about them, so the log must store them too.
    let topic = log::TopicSettings { deduplicate: false, ..Default::default() };
    let options = log::Options { topic, ..log::Options::default() };
    loop {
        match Log::open(folder, options) {
            Err(error) if error.kind() == ErrorKind::InUse && started.elapsed() < PREDECESSOR_TIMEOUT => {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            opened => return Ok(opened?),
        }
    }
}

/// The relay of one database, from its outbox to the log.
fn relay(
    database: &Sqlite,
    publisher: Arc<dyn Publisher>,
    stop: CancellationToken,
) -> impl Future<Output = Result<()>> + use<> {
    let options = relay::Options { batch: 50, lease_ttl: LEASE, ..relay::Options::default() };
    let relay = Relay::new(Arc::new(database.clone()), Arc::new(database.clone()), publisher, options);
    async move { Ok(relay.run(stop).await?) }
}

/// The consumer of one service, from its topic to its database.
fn consume<H: Handler<Sqlite>>(
    shop: &Shop,
    service: Service,
    handler: H,
    broker: Arc<dyn Broker>,
    stop: CancellationToken,
) -> Result<impl Future<Output = Result<()>> + use<H>> {
    let options = consume::Options {
        backoff: Backoff { first: Duration::from_millis(50), cap: Duration::from_secs(1), max_attempts: 8 },
        redrive_poll: Duration::from_millis(50),
        ..consume::Options::default()
    };
    let database = shop.database(service).clone();
    let consumer = Consumer::new(database, broker, service.topic()?, service.group()?, handler, options);
    Ok(async move { Ok(consumer.run(stop).await?) })
}

/// Cancels `stop` when stdin closes: the director closes its end to stop the services, and its death closes it too.
fn stop_when_stdin_closes(stop: CancellationToken) {
    tokio::task::spawn_blocking(move || {
        let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        stop.cancel();
    });
}
