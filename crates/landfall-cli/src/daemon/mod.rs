//! What `landfall serve` runs: the relay, the subscriptions and the HTTP server, from the first connection to the last lease.
//!
//! Starting fails as a whole and before anything is announced. Stopping is the same whether a signal or a broken relay
//! asks for it: no new requests, what is in flight is finished, the leases are given back, the broker is closed.

mod imports;
mod pushes;
pub(crate) mod signals;

use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use landfall::housekeeping::RetentionPlan;
use landfall::housekeeping::{Housekeeper, Policy};
use landfall::import::Importer;
use landfall::relay::{self, Relay};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::config::{Config, Retention, WhenExhausted, window};
use crate::error::{Error, Result};
use crate::http;
use crate::http::metrics::Metrics;
use crate::push;
use crate::stores::broker::{self, Outlet};
use crate::stores::{self, Database, database};

use pushes::Pushes;

/// What a daemon does besides answering over HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Roles {
    pub(crate) relay: bool,
    pub(crate) push: bool,
}

/// Everything is open and bound; nothing runs yet.
pub(crate) struct Daemon {
    listener: TcpListener,
    router: Router,
    relay: Option<Relay>,
    pushes: Pushes,
    housekeeper: Housekeeper,
    importers: Vec<Importer>,
    broker: Arc<dyn Outlet>,
    metrics: Metrics,
    stop: CancellationToken,
    stop_timeout: Duration,
    ready: String,
}

impl Daemon {
    pub(crate) async fn start(config: &Config, roles: Roles, stop: CancellationToken) -> Result<Self> {
        // The cheapest to fail comes first, and what writes comes last.
        stores::check(config)?;
        let subscriptions: &[_] = if roles.push { &config.subscription } else { &[] };
        let deliveries = push::prepare(&config.push, subscriptions)?;
        let (listener, address) = bind(config.http.listen).await?;
        let database = database::open(config).await?;
        database.check_order(config.relay.order).await?;
        let broker = broker::open(config).await?;
        prepare_tables(config, &database).await?;
        let importers = imports::prepare(config, &database).await?;

        let metrics = Metrics::install()?;
        // After the recorder, so that what they count is counted.
        let relay =
            roles.relay.then(|| database.relay(config.relay.order, broker.publisher(), options(config))).transpose()?;
        let pushes = Pushes::new(&database, &*broker, deliveries, &stop);
        warn_of_short_topics(config, &*broker)?;
        let housekeeper =
            Housekeeper::new(database.housekeeping.clone(), database.leases.clone(), policy(&config.retention));
        let router = http::router(http::State {
            queue: database.queue,
            view: database.view,
            leases: database.leases,
            dead_letters: database.dead_letters,
            broker: broker.clone(),
            limits: config.limits,
            tokens: config.auth.tokens.clone(),
            request_timeout: config.http.request_timeout,
            metrics: metrics.clone(),
            stop: stop.clone(),
        });
        let ready = format!(
            "landfall: ready on http://{address} (database {}, broker {}, roles {})",
            config.database.url,
            config.broker.url,
            roles.shown(subscriptions.is_empty()),
        );
        let stop_timeout = config.http.stop_timeout;
        Ok(Self { listener, router, relay, pushes, housekeeper, importers, broker, metrics, stop, stop_timeout, ready })
    }

    /// Works until it is told to stop, or until the relay, an import or a subscription meets something that no waiting mends.
    pub(crate) async fn run(self) -> Result<()> {
        let tidy = tokio::spawn(self.metrics.keep_tidy());
        let http = tokio::spawn(serve(self.listener, self.router, self.stop.clone()));
        let mut relay = tokio::spawn(run_relay(self.relay, self.stop.child_token()));
        let mut pushes = tokio::spawn(self.pushes.run());
        let mut imports = tokio::spawn(imports::run(self.importers, self.stop.child_token()));
        let housekeeping = tokio::spawn(keep_house(self.housekeeper, self.stop.child_token()));
        // Whoever waits for this line may not be reading any more; the daemon works all the same.
        let _ = writeln!(std::io::stderr(), "{}", self.ready);

        let (mut ended, mut imported, mut pushed) = (None, None, None);
        tokio::select! {
            result = &mut relay => ended = Some(result),
            result = &mut imports => imported = Some(result),
            result = &mut pushes => pushed = Some(result),
            () = self.stop.cancelled() => {}
        }
        self.stop.cancel();
        finish_requests(http, self.stop_timeout).await;
        let ended = match ended {
            Some(ended) => ended,
            None => relay.await,
        };
        let imported = match imported {
            Some(imported) => imported,
            None => imports.await,
        };
        let pushed = match pushed {
            Some(pushed) => pushed,
            None => pushes.await,
        };
        // A panic in it has been logged by the runtime.
        let _ = housekeeping.await;
        tidy.abort();
        if let Err(error) = self.broker.close().await {
            tracing::warn!(%error, "the broker could not be closed in order");
        }
        tracing::info!("stopped");
        match ended {
            Ok(result) => result?,
            Err(error) => return Err(Error::not_so(format!("the relay broke down: {error}"))),
        }
        imported.unwrap_or_else(|error| Err(Error::not_so(format!("the imports broke down: {error}"))))?;
        pushed.unwrap_or_else(|error| Err(Error::not_so(format!("the subscriptions broke down: {error}"))))
    }
}

impl Roles {
    /// As the ready line names them: push only where there is something to push.
    fn shown(self, nothing_to_push: bool) -> String {
        let names = [(self.relay, "relay"), (self.push && !nothing_to_push, "push")];
        let names: Vec<_> = names.into_iter().filter(|(taken, _)| *taken).map(|(_, name)| name).collect();
        if names.is_empty() { "none".into() } else { names.join(", ") }
    }
}

async fn run_relay(relay: Option<Relay>, stop: CancellationToken) -> landfall::Result<()> {
    match relay {
        Some(relay) => relay.run(stop).await,
        None => {
            stop.cancelled().await;
            Ok(())
        }
    }
}

async fn bind(address: SocketAddr) -> Result<(TcpListener, SocketAddr)> {
    let failed = |error| Error::not_so(format!("cannot listen on {address}: {error}"));
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    Ok((listener, bound))
}

async fn prepare_tables(config: &Config, database: &Database) -> Result<()> {
    if config.database.auto_migrate {
        database.schema.migrate().await?;
    }
    Ok(database.schema.check().await?)
}

fn options(config: &Config) -> relay::Options {
    relay::Options {
        batch: config.relay.batch,
        lease_ttl: config.relay.lease,
        backoff: config.relay.backoff,
        poll_max: config.relay.poll_max,
        limits: config.limits,
        failed_holds_key: config.relay.when_exhausted == WhenExhausted::Hold,
        ..relay::Options::default()
    }
}

fn policy(retention: &Retention) -> Policy {
    let Retention { inbox, sent, dead_letters, redrive: _ } = *retention;
    Policy { inbox, sent, dead_letters, ..Policy::default() }
}

/// A message is published whether or not somebody tidies up after it, so the relay goes on without.
async fn keep_house(housekeeper: Housekeeper, stop: CancellationToken) {
    if let Err(error) = housekeeper.run(stop).await {
        tracing::error!(%error, "housekeeping stopped: nothing is removed any more until this daemon is started again");
    }
}

/// Topics have settings of their own, which somebody may have changed since; that is no reason to stand still.
fn warn_of_short_topics(config: &Config, broker: &dyn Outlet) -> Result<()> {
    let topics = broker.topics()?;
    let windows = topics.iter().filter_map(|topic| window(format!("topic {}", topic.topic), &topic.settings));
    let plan = RetentionPlan { windows: windows.collect(), ..config.retention_plan() };
    if let Err(error) = plan.check() {
        tracing::warn!(%error, "a topic remembers ids for too short a time");
    }
    Ok(())
}

async fn serve(listener: TcpListener, router: Router, stop: CancellationToken) {
    let served = axum::serve(listener, router).with_graceful_shutdown(stop.cancelled_owned()).await;
    if let Err(error) = served {
        tracing::error!(%error, "the HTTP server ended");
    }
}

/// A client that never finishes its request must not keep the daemon from stopping.
async fn finish_requests(mut http: JoinHandle<()>, timeout: Duration) {
    if tokio::time::timeout(timeout, &mut http).await.is_err() {
        tracing::warn!(timeout_ms = timeout.as_millis() as u64, "requests in flight were cut off");
        http.abort();
    }
}
