//! The world: the child process in which the services live, until somebody kills it.
//!
//! Every life begins in the same way, whatever the last one was in the middle of: open the databases and the log, and
//! go on. There is no "recover" in here.

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

/// A killed relay's lease has to end before the next one may go on: the shorter, the shorter the pause after a crash.
const LEASE: Duration = Duration::from_millis(400);

/// How long the world of a director that died may take to stop.
const PREDECESSOR: Duration = Duration::from_secs(20);

/// Lives until stdin is closed, then finishes what is in flight. `life` tells one life from the next.
pub(crate) async fn live(folder: &Path, story: Story, life: u64) -> Result<()> {
    let shop = Shop::open(folder).await?;
    let log = Arc::new(open_log(&folder.join(folder::LOG)).await?);
    let publisher: Arc<dyn Publisher> = Arc::new(Duplicates::new(log.publisher(), story.seed ^ life));
    let stop = CancellationToken::new();
    stop_when_stdin_closes(stop.clone());

    let mut work = JoinSet::new();
    for service in Service::ALL {
        work.spawn(relay(shop.database(service), publisher.clone(), stop.clone())?);
    }
    work.spawn(consume(&shop, Service::Stock, stock::Reserve, log.clone(), stop.clone())?);
    work.spawn(consume(&shop, Service::Payment, payment::Charge, log.clone(), stop.clone())?);
    work.spawn(consume(&shop, Service::Orders, orders::MarkPaid, log.clone(), stop.clone())?);
    work.spawn(orders::place_all(shop.database(Service::Orders).clone(), story, stop.clone()));

    let mut result = Ok(());
    while let Some(ended) = work.join_next().await {
        if let Err(error) = ended.map_err(Into::into).flatten() {
            // One that cannot go on ends them all: half a world would only look as if it worked.
            stop.cancel();
            result = result.and(Err(error));
        }
    }
    result.and(log.close().await.map_err(Into::into))
}

/// Opens the log, once nobody else has it: a director may have died a moment ago, and its world is still stopping.
async fn open_log(folder: &Path) -> Result<Log> {
    let started = Instant::now();
    // The log would not store the copies that this story is about, and most brokers would: let it be one of those.
    let topic = log::TopicSettings { deduplicate: false, ..Default::default() };
    let options = log::Options { topic, ..log::Options::default() };
    loop {
        match Log::open(folder, options) {
            Err(error) if error.kind() == ErrorKind::InUse && started.elapsed() < PREDECESSOR => {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            opened => return Ok(opened?),
        }
    }
}

/// The relay of one database: what its transactions enqueued goes to the log.
fn relay(
    database: &Sqlite,
    publisher: Arc<dyn Publisher>,
    stop: CancellationToken,
) -> Result<impl Future<Output = Result<()>> + use<>> {
    let options = relay::Options { batch: 50, lease_ttl: LEASE, ..relay::Options::default() };
    let relay = Relay::builder(database.clone(), publisher).options(options).build()?;
    Ok(async move { Ok(relay.run(stop).await?) })
}

/// The consumer of one service: what arrives takes effect in its database.
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
    let consumer = Consumer::builder(database, broker)
        .topic(service.topic()?)
        .group(service.group()?)
        .handler(handler)
        .options(options)
        .build()?;
    Ok(async move { Ok(consumer.run(stop).await?) })
}

/// The director holds the other end: it closes it to say "stop", and so does the system if the director dies.
fn stop_when_stdin_closes(stop: CancellationToken) {
    tokio::task::spawn_blocking(move || {
        let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        stop.cancel();
    });
}
