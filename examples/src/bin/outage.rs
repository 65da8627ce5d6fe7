//! A dependency that is down for a while, under load: retries stay within their budget, nothing is lost, and the
//! backlog drains automatically once the dependency is back.
//!
//! ```text
//! cargo run -p landfall-examples --bin outage          # down for 3 seconds
//! cargo run -p landfall-examples --bin outage -- 30    # down for 30
//! ```
//!
//! The table, second by second, goes to stderr; the summary goes to stdout.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use landfall::consume::{self, Consumer, Context, Handler};
use landfall::log::{self, Log};
use landfall::retry::{self, BreakerOptions, BudgetOptions, Dependency, Repeat};
use landfall::sqlite::{self, Sqlite};
use landfall::{Backoff, Broker, DeadLetterFilter, DeadLetters, Failure};
use landfall::{GroupName, Key, Message, Schema, TopicName};
use landfall_examples::{Result, until};
use sqlx::Executor;
use tokio_util::sync::CancellationToken;

/// Messages a second, and the seconds before and after the outage.
const RATE: usize = 100;
const BEFORE: u64 = 2;
const AFTER: u64 = 2;
const BUDGET: BudgetOptions = BudgetOptions { ratio: 0.1, floor: 5, cap: 1000, window: Duration::from_secs(1) };

#[tokio::main]
async fn main() -> Result<()> {
    let outage: u64 = std::env::args().nth(1).map_or(Ok(3), |seconds| seconds.parse())?;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("shop.db");
    let database = Sqlite::open(&file.display().to_string(), sqlite::Options::default()).await?;
    database.migrate().await?;
    database.pool().execute("CREATE TABLE payment (number INTEGER NOT NULL)").await?;
    let log = Arc::new(Log::open(folder.path().join("log"), log::Options::default())?);

    let gateway = Arc::new(Gateway::new(outage)?);
    let stop = CancellationToken::new();
    let backoff = Backoff { first: Duration::from_millis(50), cap: Duration::from_secs(1), max_attempts: 8 };
    let options = consume::Options { backoff, ..consume::Options::default() };
    let (topic, group) = (TopicName::new("orders")?, GroupName::new("payment")?);
    let consumer = Consumer::builder(database.clone(), log.clone())
        .topic(topic)
        .group(group)
        .handler(Pay(gateway.clone()))
        .options(options)
        .build()?;
    let consumer = tokio::spawn(consumer.run(stop.clone()));

    eprintln!("second  sent  paid  waiting  calls  failed  retries  breaker");
    let mut sent = 0;
    for second in 0..BEFORE + outage + AFTER {
        for _ in 0..RATE {
            let message = Message::new(TopicName::new("orders")?, sent.to_string());
            let message = message.with_key(Key::new(format!("customer-{}", sent % 50))?);
            log.publisher().publish(&[message]).await;
            sent += 1;
            let due = Duration::from_secs(1) * sent as u32 / RATE as u32;
            tokio::time::sleep(due.saturating_sub(gateway.started.elapsed())).await;
        }
        show(second, sent, &gateway, paid(&database).await?.len());
    }
    until("everything is paid", async || Ok(paid(&database).await?.len() >= sent)).await?;
    let ended = gateway.started.elapsed().as_secs();
    show(ended, sent, &gateway, paid(&database).await?.len());
    stop.cancel();
    consumer.await??;

    let mut numbers = paid(&database).await?;
    let all = numbers.len();
    numbers.sort_unstable();
    numbers.dedup();
    println!("paid, of {sent}: {}", numbers.len());
    println!("twice: {}", all - numbers.len());
    println!("parked: {}", database.find(&DeadLetterFilter::default(), 10).await?.len());
    println!("retries within the budget: {}", gateway.record().within_budget());
    Ok(())
}

async fn paid(database: &Sqlite) -> Result<Vec<i64>> {
    Ok(sqlx::query_scalar("SELECT number FROM payment").fetch_all(database.pool()).await?)
}

fn show(second: u64, sent: usize, gateway: &Gateway, paid: usize) {
    let mut record = gateway.record();
    let calls = std::mem::take(&mut record.calls);
    let failed = std::mem::take(&mut record.failed);
    let made = record.retries.len();
    let (retries, waiting) = (made - std::mem::replace(&mut record.shown, made), sent - paid.min(sent));
    let breaker = format!("{:?}", gateway.dependency.state().breaker);
    eprintln!("{second:>6}  {sent:>4}  {paid:>4}  {waiting:>7}  {calls:>5}  {failed:>6}  {retries:>7}  {breaker}");
}

/// The dependency that the handler calls; it is down for a while.
struct Gateway {
    dependency: Dependency,
    started: Instant,
    outage: std::ops::Range<Duration>,
    record: Mutex<Record>,
}

#[derive(Default)]
struct Record {
    successes: Vec<Instant>,
    retries: Vec<Instant>,
    /// Counted since the last line of the table.
    calls: usize,
    failed: usize,
    shown: usize,
}

impl Gateway {
    fn new(outage: u64) -> landfall::Result<Self> {
        let breaker = BreakerOptions {
            window: Duration::from_secs(1),
            open_first: Duration::from_millis(200),
            open_cap: Duration::from_secs(2),
            ..BreakerOptions::default()
        };
        let repeat = Repeat::Safe;
        let options = retry::Options { breaker, budget: BUDGET, repeat, ..Default::default() };
        let dependency = Dependency::new("gateway", options)?;
        let outage = Duration::from_secs(BEFORE)..Duration::from_secs(BEFORE + outage);
        Ok(Self { dependency, started: Instant::now(), outage, record: Mutex::default() })
    }

    async fn charge(&self, attempt: u32) -> Result<(), Failure> {
        let mut record = self.record();
        record.calls += 1;
        if attempt > 1 {
            record.retries.push(Instant::now());
        }
        if self.outage.contains(&self.started.elapsed()) {
            record.failed += 1;
            return Err(Failure::from_status(500, None).unwrap_or_else(|| Failure::retry("down")));
        }
        record.successes.push(Instant::now());
        Ok(())
    }

    fn record(&self) -> std::sync::MutexGuard<'_, Record> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Record {
    /// Checks the window before every retry. The tolerance covers the time between a call and its entry in the budget.
    fn within_budget(&self) -> bool {
        let tolerance = BUDGET.window / 20;
        let since = |times: &[Instant], last: Instant, window: Duration| {
            times.iter().filter(|time| **time <= last && last.duration_since(**time) < window).count()
        };
        self.retries.iter().all(|retry| {
            let successes = since(&self.successes, *retry, BUDGET.window + tolerance);
            let most = (BUDGET.ratio * successes as f64) as usize + BUDGET.floor as usize;
            since(&self.retries, *retry, BUDGET.window - tolerance) <= most
        })
    }
}

struct Pay(Arc<Gateway>);

impl Handler<Sqlite> for Pay {
    async fn handle<'a>(&'a self, context: Context<'a, Sqlite>) -> Result<(), Failure> {
        let attempt = context.attempt_since_redrive;
        self.0.dependency.attempt(attempt, || self.0.charge(attempt)).await?;
        let number: i64 = std::str::from_utf8(&context.message.payload)?.parse()?;
        sqlx::query("INSERT INTO payment VALUES (?)").bind(number).execute(context.connection).await?;
        Ok(())
    }
}
