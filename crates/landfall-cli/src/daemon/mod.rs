//! The process behind `landfall serve`: the relay, the subscriptions, the imports and the HTTP server.
//!
//! Start-up either succeeds completely or fails before the ready line. It waits for servers that are down, and
//! `/readyz` names them. Shutdown is the same for a signal and for a failed task: refuse new requests, finish work in
//! flight, release the leases, close the broker.

mod check_backs;
mod descriptors;
#[cfg(feature = "grpc")]
mod http2;
mod imports;
mod listener;
mod proxy;
mod pushes;
mod shards;
pub(crate) mod signals;
mod startup;
mod tls;

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use futures_util::future::join_all;
use landfall::housekeeping::RetentionPlan;
use landfall::housekeeping::{Archive, Housekeeper, Policy};
use landfall::idempotency::CountedRecords;
use landfall::import::Importer;
use landfall::redrive;
use landfall::relay::{self, Relay};
use landfall::{ArchivedLetter, HalfMessageDetail};
use tokio::net::{TcpListener, TcpSocket};
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::alerts::{self, Alerting, Sources};
use crate::archive::{HalfMessageFolder, LetterArchive};
use crate::config::{Config, Retention, WhenExhausted, window};
use crate::error::{Error, Result};
use crate::http;
use crate::http::metrics::Metrics;
use crate::push;
use crate::stores::broker::{self, OpenBroker};
use crate::stores::database::NewRelay;
use crate::stores::{self, Database, database};

use check_backs::CheckBacks;
use pushes::Pushes;
use startup::Reception;

pub(crate) use startup::Waiting;

/// Maximum time for the head of a request to arrive.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// Connections that the kernel keeps until the daemon accepts them. The default of 128 is full after a short burst. A
/// client beyond it waits for a second or more, and one that sends nothing may never be noticed.
const BACKLOG: u32 = 1024;

/// The roles of a daemon in addition to its HTTP server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Roles {
    pub(crate) relay: bool,
    pub(crate) push: bool,
    pub(crate) check_back: bool,
    pub(crate) console: bool,
}

/// A daemon whose database, broker and listener are open; nothing runs before [`Daemon::run`].
pub(crate) struct Daemon {
    listener: Arc<TcpListener>,
    bounds: listener::Bounds,
    router: Router,
    relays: Vec<Relay>,
    pushes: Pushes,
    check_backs: CheckBacks,
    proxy: Option<proxy::Proxy>,
    housekeepers: Vec<Housekeeper>,
    redrives: redrive::Runner,
    alerting: Alerting,
    importers: Vec<Importer>,
    broker: Arc<dyn OpenBroker>,
    metrics: Metrics,
    stop: CancellationToken,
    stop_timeout: Duration,
    ready: String,
}

impl Daemon {
    pub(crate) async fn start(config: &Config, roles: Roles, stop: CancellationToken) -> Result<Self> {
        // Cheap checks come first, and steps that write come last.
        stores::check(config)?;
        let policy = policy(&config.retention)?;
        let subscriptions: &[_] = if roles.push { &config.subscription } else { &[] };
        let deliveries = push::prepare(&config.push, subscriptions)?;
        alerts::senders(&config.alerts)?;
        let connections = descriptors::prepare();
        let header_timeout = config.http.request_timeout.min(HEADER_TIMEOUT);
        let tls = tls::Tls::load(&config.http)?;
        let bounds = listener::Bounds { connections, header_timeout, tls, tells_peer: false };
        let (listener, address) = bind(config.http.listen)?;
        let waiting = Waiting::new(address);
        let routes = http::starting(waiting.clone(), !config.auth.tokens.is_empty());
        let reception = Reception::open(listener.clone(), routes, bounds.clone(), &stop);
        let proxy = proxy::Bound::bind(config, &bounds, &stop).await?;
        let (mut database, broker) = open_stores(config, &waiting).await?;
        // Before anything is written: a database may refuse the configured order.
        let new_relay = database.relay(config.relay.order)?;
        let importers = waiting.wait_for("database", async || prepare_database(config, &database).await).await?;
        let shards = shards::open(config, &waiting).await?;
        let new_relays = relays(config, new_relay, &shards)?;
        reception.close().await;

        let metrics = Metrics::install()?;
        // The relay and the subscriptions look up their metrics when they are created, so the recorder comes first.
        let relays = match roles.relay {
            true => new_relays.iter().map(|new| new(broker.publisher(), options(config))).collect::<Result<_, _>>()?,
            false => Vec::new(),
        };
        let housekeepers = shards::housekeepers(&database, &shards, &policy)?;
        stores::shards::combine(config, &mut database, &shards);
        let pushes = Pushes::new(&database, &*broker, deliveries, &stop);
        let check_backs = CheckBacks::new(config, roles.check_back, &database, &*broker, &stop)?;
        warn_about_short_topic_retention(config, &*broker)?;
        let guards = config.redrive_guards();
        let redrives = redrive::Runner::new(
            database.redrive_queue,
            database.leases.clone(),
            redrive::Options {
                guards: guards.clone(),
                stop: config.redrive.stop.clone(),
                keep: config.retention.redrive_jobs.time(),
                ..redrive::Options::default()
            },
        )?;
        let proxied = proxy.as_ref().map(|proxy| proxy.address);
        let proxy = match proxy {
            Some(proxy) => Some(proxy.open(database.records.clone(), config, &stop).await),
            None => None,
        };
        let sources = Sources {
            view: database.view.clone(),
            half: database.half.clone(),
            records: database.records.clone(),
            broker: broker.clone(),
        };
        let alerting = Alerting::new(
            &config.alerts,
            config.retention.alerts,
            &database.alert_queue,
            database.leases.clone(),
            sources,
        )?;
        let console =
            roles.console.then(|| http::Console::new(&config.auth.tokens, bounds.tls.is_some())).transpose()?;
        let router = http::router(http::State {
            appends: http::GroupCommit::spawn(database.queue, database.sends),
            view: database.view,
            leases: database.leases,
            dead_letters: database.dead_letters,
            redrives: database.redrives,
            rehearsals: database.rehearsals,
            audit: database.audit,
            alerts: database.alerts,
            alert_rules: config.alerts.effective_rules().into_iter().map(|rule| rule.name).collect(),
            letter_groups: database.letter_groups,
            key_rules: database.key_rules,
            guards,
            deliveries: database.deliveries,
            half: database.half,
            records: Arc::new(CountedRecords::new(database.records)),
            immunity: config.check_back.immunity,
            broker: broker.clone(),
            limits: config.limits,
            tokens: config.auth.tokens.clone(),
            request_timeout: config.http.request_timeout,
            metrics: metrics.clone(),
            console,
            stop: stop.clone(),
        });
        let scheme = if bounds.tls.is_some() { "https" } else { "http" };
        let ready = format!(
            "landfall: ready on {scheme}://{address} (database {}, broker {}, roles {}{})",
            config.database.url,
            config.broker.url,
            roles.names(!subscriptions.is_empty()),
            proxied.map(|address| format!(", proxy on {scheme}://{address}")).unwrap_or_default(),
        );
        let stop_timeout = config.http.stop_timeout;
        Ok(Self {
            listener,
            bounds,
            router,
            relays,
            pushes,
            check_backs,
            proxy,
            housekeepers,
            redrives,
            alerting,
            importers,
            broker,
            metrics,
            stop,
            stop_timeout,
            ready,
        })
    }

    /// Runs until a signal, or until the relay, an import, a subscription or the check-back fails permanently.
    pub(crate) async fn run(self) -> Result<()> {
        let upkeep = tokio::spawn(self.metrics.run_upkeep());
        let http = tokio::spawn(listener::serve(self.listener, self.router, self.bounds, self.stop.clone()));
        let proxy = tokio::spawn(async {
            if let Some(proxy) = self.proxy {
                proxy.run().await
            }
        });
        let mut relay = tokio::spawn(run_relays(self.relays, self.stop.child_token()));
        let mut pushes = tokio::spawn(self.pushes.run());
        let mut check_backs = tokio::spawn(self.check_backs.run());
        let mut imports = tokio::spawn(imports::run(self.importers, self.stop.child_token()));
        let housekeeping = tokio::spawn(run_housekeeping(self.housekeepers, self.stop.child_token()));
        let redrives = tokio::spawn(self.redrives.run(self.stop.child_token()));
        let alerting = tokio::spawn(self.alerting.run(self.stop.child_token()));
        // A closed stderr must not stop the daemon.
        let _ = writeln!(std::io::stderr(), "{}", self.ready);

        let (mut ended, mut imported, mut pushed, mut checked) = (None, None, None, None);
        tokio::select! {
            result = &mut relay => ended = Some(result),
            result = &mut imports => imported = Some(result),
            result = &mut pushes => pushed = Some(result),
            result = &mut check_backs => checked = Some(result),
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
        let checked = match checked {
            Some(checked) => checked,
            None => check_backs.await,
        };
        // The runtime has logged a panic of these tasks.
        let _ = proxy.await;
        let _ = housekeeping.await;
        // The runner has logged its error: publishing does not depend on it.
        let _ = redrives.await;
        let _ = alerting.await;
        upkeep.abort();
        if let Err(error) = self.broker.close().await {
            tracing::warn!(%error, "closing the broker failed");
        }
        tracing::info!("stopped");
        match ended {
            Ok(result) => result?,
            Err(error) => return Err(Error::failed(format!("the relay task panicked: {error}"))),
        }
        imported.unwrap_or_else(|error| Err(Error::failed(format!("the import task panicked: {error}"))))?;
        pushed.unwrap_or_else(|error| Err(Error::failed(format!("the subscription task panicked: {error}"))))?;
        checked.unwrap_or_else(|error| Err(Error::failed(format!("the check-back task panicked: {error}"))))
    }
}

impl Roles {
    /// Returns the roles for the ready line, with push only if there is a subscription.
    fn names(self, has_subscriptions: bool) -> String {
        let names = [(self.relay, "relay"), (self.push && has_subscriptions, "push"), (self.check_back, "check-back")];
        let names = names.into_iter().chain([(self.console, "console")]);
        let names: Vec<_> = names.filter(|(active, _)| *active).map(|(_, name)| name).collect();
        if names.is_empty() { "none".into() } else { names.join(", ") }
    }
}

/// Returns the constructors of the relays, one for each database; `home` is that of the first.
fn relays(config: &Config, home: Arc<NewRelay>, shards: &[Database]) -> Result<Vec<Arc<NewRelay>>> {
    let of_shards = shards.iter().map(|database| database.relay(config.relay.order));
    std::iter::once(Ok(home)).chain(of_shards).collect()
}

/// Runs until `stop`. If one relay fails permanently, all of them stop and the error is returned.
async fn run_relays(relays: Vec<Relay>, stop: CancellationToken) -> landfall::Result<()> {
    let mut tasks: JoinSet<_> = relays.into_iter().map(|relay| relay.run(stop.clone())).collect();
    let mut result = Ok(());
    while let Some(ended) = tasks.join_next().await {
        let panicked =
            |error| Err(landfall::Error::new(landfall::ErrorKind::Internal, format!("a relay panicked: {error}")));
        let ended = ended.unwrap_or_else(panicked);
        if ended.is_err() {
            stop.cancel();
        }
        result = result.and(ended);
    }
    stop.cancelled().await;
    result
}

/// Opens the database and the broker. Waits for servers that are down; a local file that cannot be opened is an error.
async fn open_stores(config: &Config, waiting: &Waiting) -> Result<(Database, Arc<dyn OpenBroker>)> {
    let local = |error: Error| match error {
        Error::Outage(text) => Error::Failed(text),
        error => error,
    };
    let (has_database_server, has_broker_server) = (database::is_remote(config), broker::is_remote(config));
    let database = waiting.wait_for("database", async || {
        database::open(config).await.map_err(|error| if has_database_server { error } else { local(error) })
    });
    let broker = async {
        let open =
            async || broker::open(config).await.map_err(|error| if has_broker_server { error } else { local(error) });
        let broker = waiting.wait_for("broker", open).await?;
        // Some adapters connect on first use.
        waiting.wait_for("broker", async || Ok(broker.ping().await?)).await?;
        Ok(broker)
    };
    tokio::try_join!(database, broker)
}

fn bind(address: SocketAddr) -> Result<(Arc<TcpListener>, SocketAddr)> {
    let listen = || -> io::Result<TcpListener> {
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        socket.listen(BACKLOG)
    };
    let failed = |error| Error::failed(format!("cannot listen on {address}: {error}"));
    let listener = listen().map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    Ok((Arc::new(listener), bound))
}

/// Migrates or checks the tables, and checks the mappings of the imports.
async fn prepare_database(config: &Config, database: &Database) -> Result<Vec<Importer>> {
    if config.database.auto_migrate {
        database.schema.migrate().await?;
    }
    database.schema.check().await?;
    imports::prepare(config, database).await
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

fn policy(retention: &Retention) -> Result<Policy> {
    let Retention { inbox, enqueued_ids, sent, dead_letters, half_messages, barriers, .. } = *retention;
    let Retention { idempotency_answers, idempotency, .. } = *retention;
    let folder = |folder: &PathBuf| Arc::new(HalfMessageFolder::new(folder)) as Arc<dyn Archive<HalfMessageDetail>>;
    let half_message_archive = retention.half_messages_archive.as_ref().map(folder);
    let dead_letter_archive = match &retention.dead_letters_archive {
        Some(address) => Some(Arc::new(LetterArchive::open(address)?) as Arc<dyn Archive<ArchivedLetter>>),
        None => None,
    };
    let policy = Policy { inbox, enqueued_ids, sent, dead_letters, half_messages, barriers, ..Policy::default() };
    Ok(Policy { half_message_archive, dead_letter_archive, idempotency_answers, idempotency, ..policy })
}

/// Runs housekeeping. Its failure is only logged: publishing does not depend on it.
async fn run_housekeeping(housekeepers: Vec<Housekeeper>, stop: CancellationToken) {
    join_all(housekeepers.into_iter().map(async |housekeeper| {
        if let Err(error) = housekeeper.run(stop.clone()).await {
            tracing::error!(%error, "housekeeping stopped; restart the daemon to remove expired rows again");
        }
    }))
    .await;
}

/// Logs a warning if a topic deduplicates for too short a time. Topics have their own settings, which an operator may
/// have changed on purpose, so the daemon starts all the same.
fn warn_about_short_topic_retention(config: &Config, broker: &dyn OpenBroker) -> Result<()> {
    let topics = broker.topics()?;
    let windows = topics.iter().filter_map(|topic| window(format!("topic {}", topic.topic), &topic.settings));
    let plan = RetentionPlan { windows: windows.collect(), ..config.retention_plan() };
    if let Err(error) = plan.check() {
        tracing::warn!(%error, "retention of a topic is shorter than its deduplication needs");
    }
    Ok(())
}

/// Waits for requests in flight, at most `timeout`: a stalled client must not block the shutdown.
async fn finish_requests(mut http: JoinHandle<()>, timeout: Duration) {
    if tokio::time::timeout(timeout, &mut http).await.is_err() {
        tracing::warn!(timeout_ms = timeout.as_millis() as u64, "aborted requests in flight");
        http.abort();
    }
}
