//! The data on disk after the run. No value in here comes from the memory of a process.

use landfall::StartAt;
use landfall::log::ReadOnlyLog;
use landfall::sqlite::Sqlite;

use super::Result;
use super::duplicates::MARK;
use super::shop::{Service, Shop};

/// Records read from the log at a time.
const BATCH: usize = 1000;

/// A placed order: a row of the orders service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Placed {
    pub(super) number: i64,
    pub(super) customer: String,
    pub(super) sequence: i64,
    pub(super) message_id: String,
    pub(super) is_paid: bool,
}

/// A row of a service's `effects`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Effect {
    pub(super) message_id: String,
    pub(super) key: String,
    pub(super) sequence: i64,
}

/// A record in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) message_id: String,
    /// Whether it is a duplicate that was appended on purpose.
    pub(super) is_copy: bool,
}

/// The records in the topic of a service, and their effects.
#[derive(Debug, Clone)]
pub(super) struct Consumed {
    pub(super) service: Service,
    /// The topic it consumes, in log order.
    pub(super) records: Vec<Record>,
    /// In the order in which they happened.
    pub(super) effects: Vec<Effect>,
    /// Messages in the inbox of its group.
    pub(super) inbox_rows: u64,
    /// Dead letters that this service ever parked.
    pub(super) parked: u64,
    /// Dead letters that were redriven.
    pub(super) redriven: u64,
}

/// Two figures from two databases that must be equal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Balance {
    pub(super) what: String,
    pub(super) ordered: i64,
    pub(super) booked: i64,
}

#[derive(Debug, Clone)]
pub(super) struct Evidence {
    pub(super) placed: Vec<Placed>,
    pub(super) consumed: Vec<Consumed>,
    pub(super) balances: Vec<Balance>,
}

impl Evidence {
    /// Reads the databases and the log of stopped services.
    pub(super) async fn read(shop: &Shop, log: &ReadOnlyLog) -> Result<Self> {
        let mut consumed = Vec::new();
        for service in Service::ALL {
            consumed.push(read_service(service, shop.database(service), log).await?);
        }
        let mut balances = stock_balances(shop).await?;
        balances.extend(money_balances(shop).await?);
        Ok(Self { placed: read_placed(shop).await?, consumed, balances })
    }
}

async fn read_placed(shop: &Shop) -> Result<Vec<Placed>> {
    let rows: Vec<(i64, String, i64, String, bool)> = sqlx::query_as(
        "SELECT number, customer, sequence, message_id, paid_at IS NOT NULL FROM orders ORDER BY number",
    )
    .fetch_all(shop.database(Service::Orders).pool())
    .await?;
    let placed =
        |(number, customer, sequence, message_id, is_paid)| Placed { number, customer, sequence, message_id, is_paid };
    Ok(rows.into_iter().map(placed).collect())
}

async fn read_service(service: Service, database: &Sqlite, log: &ReadOnlyLog) -> Result<Consumed> {
    let effects: Vec<(String, String, i64)> =
        sqlx::query_as("SELECT message_id, key, sequence FROM effects ORDER BY rowid")
            .fetch_all(database.pool())
            .await?;
    let effect = |(message_id, key, sequence)| Effect { message_id, key, sequence };
    Ok(Consumed {
        service,
        records: read_topic(service, log).await?,
        effects: effects.into_iter().map(effect).collect(),
        inbox_rows: count(database, "SELECT count(*) FROM landfall_inbox").await?,
        parked: count(database, "SELECT count(DISTINCT dead_letter_id) FROM landfall_audit WHERE action = 'park'")
            .await?,
        redriven: count(database, "SELECT count(*) FROM landfall_dead_letter WHERE redrives > 0").await?,
    })
}

async fn read_topic(service: Service, log: &ReadOnlyLog) -> Result<Vec<Record>> {
    let mut reader = log.read(&service.topic()?, StartAt::Beginning).await?;
    let mut records = Vec::new();
    loop {
        let stored = reader.read(BATCH).await?;
        if stored.is_empty() {
            return Ok(records);
        }
        for stored in stored {
            let message = stored.message?;
            let is_copy = message.headers.get(MARK).is_some();
            records.push(Record { message_id: message.id.to_string(), is_copy });
        }
    }
}

async fn count(database: &Sqlite, query: &'static str) -> Result<u64> {
    Ok(sqlx::query_scalar::<_, i64>(query).fetch_one(database.pool()).await?.unsigned_abs())
}

/// For every article: the quantity ordered, in the orders database, and the quantity reserved, in the stock database.
async fn stock_balances(shop: &Shop) -> Result<Vec<Balance>> {
    balances(
        shop,
        "SELECT sku, sum(quantity) FROM orders GROUP BY sku",
        Service::Stock,
        "SELECT sku, initial - remaining FROM stock",
        "pieces of",
    )
    .await
}

/// For every customer: the cost of the orders, in the orders database, and the charges, in the payment database.
async fn money_balances(shop: &Shop) -> Result<Vec<Balance>> {
    balances(
        shop,
        "SELECT customer, sum(amount_cents) FROM orders GROUP BY customer",
        Service::Payment,
        "SELECT customer, opening_cents - balance_cents FROM accounts",
        "cents of",
    )
    .await
}

async fn balances(
    shop: &Shop,
    ordered: &'static str,
    service: Service,
    booked: &'static str,
    unit: &str,
) -> Result<Vec<Balance>> {
    type Sums = Vec<(String, i64)>;
    let ordered: Sums = sqlx::query_as(ordered).fetch_all(shop.database(Service::Orders).pool()).await?;
    let booked: Sums = sqlx::query_as(booked).fetch_all(shop.database(service).pool()).await?;
    let mut names: Vec<&String> = ordered.iter().chain(&booked).map(|(name, _)| name).collect();
    names.sort();
    names.dedup();
    let sum = |sums: &Sums, name: &String| sums.iter().filter(|(other, _)| other == name).map(|(_, sum)| sum).sum();
    let balance =
        |name| Balance { what: format!("{unit} {name}"), ordered: sum(&ordered, name), booked: sum(&booked, name) };
    Ok(names.into_iter().map(balance).collect())
}
