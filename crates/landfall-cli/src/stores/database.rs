//! The databases, as the ports that the command works with.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use landfall::adapter::DatabaseCapabilities;
use landfall::housekeeping::Span;
use landfall::import::ImportSource;
use landfall::relay::{self, Relay};
use landfall::{
    Broker, CompetingQueue, DeadLetters, Diagnose, ErrorKind, Housekeeping, Inbox, Leases, Limits, OutboxControl,
    OutboxQueue, OutboxView, OutboxWriter, Publisher, Schema, TablePrefix,
};

use tokio_util::sync::CancellationToken;

use super::{Opening, Scheme, pick};
use crate::config::{Address, Config, Order};
use crate::error::{Error, Result};
use crate::push;

/// An open database, seen through its ports.
pub(crate) struct Database {
    pub(crate) schema: Arc<dyn Schema>,
    pub(crate) queue: Arc<dyn OutboxQueue>,
    pub(crate) view: Arc<dyn OutboxView>,
    pub(crate) control: Arc<dyn OutboxControl>,
    pub(crate) leases: Arc<dyn Leases>,
    pub(crate) dead_letters: Arc<dyn DeadLetters>,
    pub(crate) housekeeping: Arc<dyn Housekeeping>,
    pub(crate) import: Arc<dyn ImportSource>,
    pub(crate) doctor: Arc<dyn Diagnose>,
    competing: Arc<dyn CompetingQueue>,
    relay: Box<MakeRelay>,
    push: Box<Push>,
}

type MakeRelay = dyn Fn(Order, Arc<dyn Publisher>, relay::Options) -> landfall::Result<Relay> + Send + Sync;
type Push = dyn Fn(Arc<dyn Broker>, push::Delivery, CancellationToken) -> Pushing + Send + Sync;

/// A subscription that is being delivered.
type Pushing = BoxFuture<'static, landfall::Result<()>>;

impl Database {
    fn new<D>(adapter: D, capabilities: DatabaseCapabilities) -> Self
    where
        D: Schema
            + OutboxQueue
            + CompetingQueue
            + OutboxView
            + OutboxControl
            + Leases
            + DeadLetters
            + Housekeeping
            + ImportSource
            + Diagnose
            + OutboxWriter
            + Inbox,
    {
        let (inbox, outbox) = (adapter.clone(), adapter.clone());
        let adapter = Arc::new(adapter);
        Self {
            schema: adapter.clone(),
            queue: adapter.clone(),
            view: adapter.clone(),
            control: adapter.clone(),
            leases: adapter.clone(),
            dead_letters: adapter.clone(),
            housekeeping: adapter.clone(),
            import: adapter.clone(),
            doctor: adapter.clone(),
            competing: adapter,
            relay: Box::new(move |order, publisher, options| {
                let builder = Relay::builder(outbox.clone(), publisher).options(options);
                match order {
                    Order::Key => builder.build(),
                    Order::None => builder.unordered().build(),
                }
            }),
            push: Box::new(move |broker, delivery, stop| {
                Box::pin(push::run(inbox.clone(), capabilities, broker, delivery, stop))
            }),
        }
    }

    /// Refuses an order that the database cannot work in; asks no server for more than it must.
    pub(crate) async fn check_order(&self, order: Order) -> Result<()> {
        if order == Order::Key {
            return Ok(());
        }
        // Claims nothing, and tells whether it could. Whatever else is wrong shows when there is work to do.
        match self.competing.claim(0).await {
            Err(error) if error.kind() == ErrorKind::Unsupported => Err(error.into()),
            _ => Ok(()),
        }
    }

    pub(crate) fn relay(&self, order: Order, publisher: Arc<dyn Publisher>, options: relay::Options) -> Result<Relay> {
        Ok((self.relay)(order, publisher, options)?)
    }

    /// Delivers a subscription until `stop`.
    pub(crate) fn push(&self, broker: Arc<dyn Broker>, delivery: push::Delivery, stop: CancellationToken) -> Pushing {
        (self.push)(broker, delivery, stop)
    }
}

struct Adapter {
    scheme: Scheme,
    open: fn(String, Settings) -> Opening<'static, Database>,
    /// The adapter without a server, for what its code alone knows: the DDL.
    offline: fn(Settings) -> landfall::Result<Database>,
    /// The URL parameter that keeps a database from being made by opening it, where opening makes one.
    do_not_create: Option<&'static str>,
}

/// What every adapter's own `Options` are made of.
#[derive(Debug, Clone)]
struct Settings {
    prefix: TablePrefix,
    limits: Limits,
    max_connections: u32,
    keep_sent: Option<Duration>,
}

/// An adapter's line: its schemes, its module, how it is opened, how it is made from a pool, a URL of its kind that
/// leads nowhere, and what keeps it from creating anything.
macro_rules! adapter {
    (
        $names:expr, $module:path, $adapter:ident::$open:ident, $from_pool:expr, $nowhere:literal, $do_not_create:expr
    ) => {{
        use $module as module;
        #[allow(clippy::needless_update, reason = "some adapters have more options than these")]
        fn options(settings: Settings) -> module::Options {
            let Settings { prefix, limits, max_connections, keep_sent } = settings;
            module::Options { prefix, limits, max_connections, keep_sent, ..module::Options::default() }
        }
        Adapter {
            scheme: Scheme::built_in($names),
            open: |url, settings| {
                Box::pin(async move {
                    let adapter = module::$adapter::$open(&url, options(settings)).await?;
                    Ok(Database::new(adapter, module::$adapter::CAPABILITIES))
                })
            },
            offline: |settings| {
                let from_pool: fn(_, module::Options) -> landfall::Result<module::$adapter> = $from_pool;
                let pool = sqlx::pool::PoolOptions::new().connect_lazy($nowhere).map_err(|error| {
                    landfall::Error::new(landfall::ErrorKind::Internal, "the adapter cannot be made").with_source(error)
                })?;
                Ok(Database::new(from_pool(pool, options(settings))?, module::$adapter::CAPABILITIES))
            },
            do_not_create: $do_not_create,
        }
    }};
}

/// The line of an adapter that this build was made without.
#[allow(unused_macros, reason = "used only by builds without some feature")]
macro_rules! missing {
    ($names:expr, $feature:literal) => {
        Adapter {
            scheme: Scheme { names: $names, missing_feature: Some($feature) },
            open: |_, _| Box::pin(std::future::ready(Err(not_built($feature)))),
            offline: |_| Err(not_built($feature)),
            do_not_create: None,
        }
    };
}

#[allow(dead_code, reason = "used only by builds without some feature")]
fn not_built(feature: &str) -> landfall::Error {
    landfall::Error::new(landfall::ErrorKind::Unsupported, format!("build landfall with --features {feature}"))
}

fn adapters() -> Vec<Adapter> {
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
        missing!(&["postgres", "postgresql"], "postgres"),
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
        missing!(&["mysql", "mariadb"], "mysql"),
    ]
}

pub(super) fn check(config: &Config) -> Result<()> {
    adapter_for(&config.database.url).map(drop)
}

/// Opens the configured database; a file that does not exist is made.
pub(crate) async fn open(config: &Config) -> Result<Database> {
    let url = &config.database.url;
    Ok((adapter_for(url)?.open)(url.expose().to_owned(), settings(config)).await?)
}

/// Opens the configured database for somebody who only looks: nothing is made.
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
        Error::NotSo(sentence) if adapter.do_not_create.is_some() => {
            Error::NotSo(format!("{sentence}; if it was never made, run `landfall migrate`"))
        }
        error => error,
    })
}

/// The statements that make the tables, without asking any server.
pub(crate) fn ddl(config: &Config) -> Result<String> {
    Ok((adapter_for(&config.database.url)?.offline)(settings(config))?.schema.ddl())
}

fn adapter_for(url: &Address) -> Result<Adapter> {
    let mut adapters = adapters();
    let schemes: Vec<&Scheme> = adapters.iter().map(|adapter| &adapter.scheme).collect();
    let place = pick("database", url, &schemes)?;
    Ok(adapters.swap_remove(place))
}

fn settings(config: &Config) -> Settings {
    Settings {
        prefix: config.database.prefix.clone(),
        limits: config.limits,
        max_connections: config.database.max_connections,
        // Kept for ever is kept; how long is for housekeeping to know.
        keep_sent: match config.retention.sent {
            Span::ZERO => None,
            span => Some(span.time().unwrap_or(Duration::MAX)),
        },
    }
}
