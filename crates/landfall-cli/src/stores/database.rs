//! The databases, opened as the ports that the command uses.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use landfall::adapter::DatabaseCapabilities;
use landfall::housekeeping::Span;
use landfall::idempotency::OneTimeTokens;
use landfall::import::ImportSource;
use landfall::relay::{self, Relay};
use landfall::{
    AlertQueue, Alerts, AuditTrail, Barriers, Broker, CompetingQueue, DeadLetters, Deliveries, Diagnose, HalfMessages,
    Housekeeping, IdempotentAppend, Inbox, KeyRules, Leases, LetterGroups, Limits, OutboxControl, OutboxQueue,
    OutboxView, OutboxWriter, Publisher, RedriveQueue, Redrives, Rehearsals, Schema, TablePrefix,
};

use tokio_util::sync::CancellationToken;

use super::{Opening, Registration, select_adapter};
use crate::check_back::topic::{self, Intake};
use crate::config::{Address, Config, Order};
use crate::error::{Error, Result};
use crate::push;

/// An open database as its ports.
pub(crate) struct Database {
    pub(crate) schema: Arc<dyn Schema>,
    pub(crate) queue: Arc<dyn OutboxQueue>,
    pub(crate) sends: Arc<dyn IdempotentAppend>,
    pub(crate) view: Arc<dyn OutboxView>,
    pub(crate) control: Arc<dyn OutboxControl>,
    pub(crate) leases: Arc<dyn Leases>,
    pub(crate) dead_letters: Arc<dyn DeadLetters>,
    pub(crate) redrives: Arc<dyn Redrives>,
    pub(crate) redrive_queue: Arc<dyn RedriveQueue>,
    pub(crate) rehearsals: Arc<dyn Rehearsals>,
    pub(crate) audit: Arc<dyn AuditTrail>,
    pub(crate) alerts: Arc<dyn Alerts>,
    pub(crate) alert_queue: Arc<dyn AlertQueue>,
    pub(crate) letter_groups: Arc<dyn LetterGroups>,
    pub(crate) key_rules: Arc<dyn KeyRules>,
    pub(crate) deliveries: Arc<dyn Deliveries>,
    pub(crate) housekeeping: Arc<dyn Housekeeping>,
    pub(crate) import: Arc<dyn ImportSource>,
    pub(crate) doctor: Arc<dyn Diagnose>,
    pub(crate) half: Arc<dyn HalfMessages>,
    pub(crate) records: Arc<dyn OneTimeTokens>,
    pub(crate) barriers: Arc<dyn Barriers>,
    ordered_relay: Arc<NewRelay>,
    /// `None` if relays cannot compete on this database.
    unordered_relay: Option<Arc<NewRelay>>,
    push: Box<Push>,
    take_half_messages: Box<TakeHalfMessages>,
}

/// Creates a relay of this database.
pub(crate) type NewRelay = dyn Fn(Arc<dyn Publisher>, relay::Options) -> landfall::Result<Relay> + Send + Sync;

type Push = dyn Fn(Arc<dyn Broker>, push::Delivery, CancellationToken) -> Pushing + Send + Sync;

type TakeHalfMessages =
    dyn Fn(Arc<dyn HalfMessages>, Arc<dyn Broker>, Intake, CancellationToken) -> Pushing + Send + Sync;

/// A running subscription.
pub(crate) type Pushing = BoxFuture<'static, landfall::Result<()>>;

impl Database {
    fn new<D>(adapter: D, capabilities: DatabaseCapabilities) -> Self
    where
        D: Schema
            + OutboxQueue
            + IdempotentAppend
            + CompetingQueue
            + OutboxView
            + OutboxControl
            + Leases
            + DeadLetters
            + Redrives
            + RedriveQueue
            + Rehearsals
            + AuditTrail
            + Alerts
            + AlertQueue
            + LetterGroups
            + KeyRules
            + Housekeeping
            + ImportSource
            + Diagnose
            + OutboxWriter
            + HalfMessages
            + OneTimeTokens
            + Barriers
            + Inbox,
    {
        let (inbox, outbox, intake_inbox) = (adapter.clone(), adapter.clone(), adapter.clone());
        let adapter = Arc::new(adapter);
        let (ordered, competing) = (outbox.clone(), outbox);
        let ordered_relay: Arc<NewRelay> =
            Arc::new(move |publisher, options| Relay::builder(ordered.clone(), publisher).options(options).build());
        let unordered_relay: Arc<NewRelay> = Arc::new(move |publisher, options| {
            Relay::builder(competing.clone(), publisher).options(options).unordered().build()
        });
        Self {
            schema: adapter.clone(),
            queue: adapter.clone(),
            sends: adapter.clone(),
            view: adapter.clone(),
            control: adapter.clone(),
            leases: adapter.clone(),
            dead_letters: adapter.clone(),
            redrives: adapter.clone(),
            redrive_queue: adapter.clone(),
            rehearsals: adapter.clone(),
            audit: adapter.clone(),
            alerts: adapter.clone(),
            alert_queue: adapter.clone(),
            letter_groups: adapter.clone(),
            key_rules: adapter.clone(),
            deliveries: adapter.clone(),
            housekeeping: adapter.clone(),
            import: adapter.clone(),
            doctor: adapter.clone(),
            half: adapter.clone(),
            records: adapter.clone(),
            barriers: adapter,
            ordered_relay,
            unordered_relay: capabilities.competing_relays.then_some(unordered_relay),
            push: Box::new(move |broker, delivery, stop| {
                Box::pin(push::run(inbox.clone(), capabilities, broker, delivery, stop))
            }),
            take_half_messages: Box::new(move |store, broker, intake, stop| {
                Box::pin(topic::run(intake_inbox.clone(), capabilities, store, broker, intake, stop))
            }),
        }
    }

    /// Returns the constructor of relays with this order; refuses an order that the database does not support.
    pub(crate) fn relay(&self, order: Order) -> Result<Arc<NewRelay>> {
        match order {
            Order::Key => Ok(self.ordered_relay.clone()),
            Order::None => self.unordered_relay.clone().ok_or_else(|| {
                Error::usage(
                    "relay.order = \"none\" needs row locks, so that relays can compete for single messages, and this \
                     database has none; set relay.order = \"key\", which is as fast here",
                )
            }),
        }
    }

    /// Takes half messages from a topic until `stop`.
    pub(crate) fn take_half_messages(
        &self,
        broker: Arc<dyn Broker>,
        intake: Intake,
        stop: CancellationToken,
    ) -> Pushing {
        (self.take_half_messages)(self.half.clone(), broker, intake, stop)
    }

    /// Delivers a subscription until `stop`.
    pub(crate) fn push(&self, broker: Arc<dyn Broker>, delivery: push::Delivery, stop: CancellationToken) -> Pushing {
        (self.push)(broker, delivery, stop)
    }
}

struct Adapter {
    open: fn(String, Settings) -> Opening<'static, Database>,
    /// The adapter without a server, for the DDL.
    offline: fn(Settings) -> landfall::Result<Database>,
    /// The URL parameter that prevents creating a missing database, if opening creates one.
    do_not_create: Option<&'static str>,
}

/// The options that every adapter has.
#[derive(Debug, Clone)]
struct Settings {
    prefix: TablePrefix,
    limits: Limits,
    max_connections: u32,
    keep_sent: Option<Duration>,
}

/// Registers a database: its schemes, its module, its constructors from a URL and from a pool, a URL for the pool
/// that is never connected, and [`Adapter::do_not_create`].
macro_rules! adapter {
    (
        $schemes:expr, $module:path, $adapter:ident::$open:ident, $from_pool:expr, $unused_url:literal,
        $do_not_create:expr
    ) => {{
        use $module as module;
        #[allow(clippy::needless_update, reason = "some adapters have more options than these")]
        fn options(settings: Settings) -> module::Options {
            let Settings { prefix, limits, max_connections, keep_sent } = settings;
            module::Options { prefix, limits, max_connections, keep_sent, ..module::Options::default() }
        }
        let adapter = Adapter {
            open: |url, settings| {
                Box::pin(async move {
                    let adapter = module::$adapter::$open(&url, options(settings)).await?;
                    Ok(Database::new(adapter, module::$adapter::CAPABILITIES))
                })
            },
            offline: |settings| {
                let from_pool: fn(_, module::Options) -> landfall::Result<module::$adapter> = $from_pool;
                let pool = sqlx::pool::PoolOptions::new().connect_lazy($unused_url).map_err(|error| {
                    landfall::Error::new(landfall::ErrorKind::Internal, "cannot create the adapter").with_source(error)
                })?;
                Ok(Database::new(from_pool(pool, options(settings))?, module::$adapter::CAPABILITIES))
            },
            do_not_create: $do_not_create,
        };
        Registration::built_in($schemes, adapter)
    }};
}

fn registrations() -> Vec<Registration<Adapter>> {
    vec![
        adapter!(
            &["sqlite"],
            landfall::sqlite,
            Sqlite::open,
            landfall::sqlite::Sqlite::from_pool,
            "sqlite::memory:",
            Some("mode=rw")
        ),
        #[cfg(feature = "postgres")]
        adapter!(
            &["postgres", "postgresql"],
            landfall::postgres,
            Postgres::connect,
            |pool, options| Ok(landfall::postgres::Postgres::from_pool(pool, options)),
            "postgres://localhost",
            None
        ),
        #[cfg(not(feature = "postgres"))]
        Registration::missing(&["postgres", "postgresql"], "postgres"),
        #[cfg(feature = "mysql")]
        adapter!(
            &["mysql", "mariadb"],
            landfall::mysql,
            MySql::connect,
            |pool, options| Ok(landfall::mysql::MySql::from_pool(pool, options)),
            "mysql://localhost",
            None
        ),
        #[cfg(not(feature = "mysql"))]
        Registration::missing(&["mysql", "mariadb"], "mysql"),
    ]
}

fn adapter_for(url: &Address) -> Result<Adapter> {
    select_adapter("database", url, registrations())
}

pub(super) fn check(config: &Config) -> Result<()> {
    for (name, url) in &config.check_back.databases {
        adapter_for(url).map_err(|error| Error::usage(format!("check_back.databases.{name}: {error}")))?;
    }
    for (index, shard) in config.check_back.shards.iter().enumerate() {
        adapter_for(&shard.url).map_err(|error| Error::usage(format!("check_back.shard[{index}]: {error}")))?;
    }
    adapter_for(&config.database.url).map(drop)
}

/// Whether the database is a server. What is missing of a local file does not appear by waiting.
pub(crate) fn is_remote(config: &Config) -> bool {
    adapter_for(&config.database.url).is_ok_and(|adapter| adapter.do_not_create.is_none())
}

/// Opens the configured database; creates a missing file.
pub(crate) async fn open(config: &Config) -> Result<Database> {
    let url = &config.database.url;
    Ok((adapter_for(url)?.open)(url.expose().to_owned(), settings(config)).await?)
}

/// Opens the configured database if it exists; creates nothing.
pub(crate) async fn open_existing(config: &Config) -> Result<Database> {
    let adapter = adapter_for(&config.database.url)?;
    let url = config.database.url.expose();
    let url = match adapter.do_not_create {
        Some(_) if url.contains("mode=") => url.to_owned(),
        Some(parameter) if url.contains('?') => format!("{url}&{parameter}"),
        Some(parameter) => format!("{url}?{parameter}"),
        None => url.to_owned(),
    };
    (adapter.open)(url, settings(config)).await.map_err(|error| match Error::from(error) {
        Error::Failed(text) | Error::Outage(text) if adapter.do_not_create.is_some() => {
            Error::Failed(format!("{text}; if it does not exist yet, run `landfall migrate`"))
        }
        error => error,
    })
}

/// Returns the DDL of the tables, without a server.
pub(crate) fn ddl(config: &Config) -> Result<String> {
    Ok((adapter_for(&config.database.url)?.offline)(settings(config))?.schema.ddl())
}

fn settings(config: &Config) -> Settings {
    Settings {
        prefix: config.database.prefix.clone(),
        limits: config.limits,
        max_connections: config.database.max_connections,
        // The adapter only needs to know whether to keep sent messages; housekeeping applies the period.
        keep_sent: match config.retention.sent {
            Span::ZERO => None,
            span => Some(span.time().unwrap_or(Duration::MAX)),
        },
    }
}
