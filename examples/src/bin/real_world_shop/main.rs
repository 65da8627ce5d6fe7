//! A small shop as in production: two services with a database each, a broker between them, and a graceful shutdown.
//!
//! ```text
//!   orders ── order placed (key: the item) ──▶ stock
//!      ▲                                         │
//!      └──── reserved or refused (key: the order)┘
//! ```
//!
//! * `orders` writes the order and its message in one transaction, and later the reply.
//! * `stock` reserves and replies in one transaction: its reply is sent if and only if the reservation commits.
//! * The key of an order is its item. So the orders of one item are handled in the order in which they were placed, and
//!   different items do not wait for each other.
//!
//! Runs on SQLite, or on PostgreSQL if a URL is given (in two schemas, which every run recreates):
//!
//! ```text
//! cargo run -p landfall-examples --bin real_world_shop [postgres://user@host/database]
//! ```

mod database;
mod orders;
mod service;
mod stock;

use std::sync::Arc;

use landfall::Broker;
use landfall::log::{self, Log};
use landfall::postgres::Postgres;
use landfall::sqlite::Sqlite;
use landfall_examples::{Result, until};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use database::ShopDatabase;
use orders::Orders;
use stock::Stock;

#[tokio::main]
async fn main() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let log: Arc<dyn Broker> = Arc::new(Log::open(folder.path().join("log"), log::Options::default())?);
    match std::env::args().nth(1).or_else(|| std::env::var("DATABASE_URL").ok()) {
        Some(url) => run::<Postgres>(&url, log).await,
        None => run::<Sqlite>(&folder.path().display().to_string(), log).await,
    }
}

/// Runs the whole shop on one kind of database; the services do not depend on which.
async fn run<D: ShopDatabase>(location: &str, log: Arc<dyn Broker>) -> Result<()> {
    let orders = Orders::open(D::open(location, "shop_orders").await?).await?;
    let stock = Stock::open(D::open(location, "shop_stock").await?, &[("apples", 10), ("pears", 1)]).await?;

    // Each service has its relay and its consumer; one token stops them all.
    let stop = CancellationToken::new();
    let mut tasks = JoinSet::new();
    service::start(&mut tasks, &orders.database, &log, orders::REPLIES, orders.clone(), &stop)?;
    service::start(&mut tasks, &stock.database, &log, orders::PLACED, stock.clone(), &stop)?;

    let purchases = [("apples", 4), ("pears", 1), ("apples", 5), ("pears", 2), ("apples", 3), ("apples", 1)];
    for (number, (item, quantity)) in (1..).zip(purchases) {
        orders.place(number, item, quantity).await?;
    }
    let replied = until("every order has a reply", async || orders.all_have_replies().await);
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        replied = replied => replied?,
        _ = tokio::signal::ctrl_c() => println!("interrupted"),
        _ = terminate.recv() => println!("terminated"),
    }

    // Finishes messages in flight, releases leases and saves offsets. The next start continues with the rest, even
    // after a crash: correctness does not depend on a graceful shutdown.
    stop.cancel();
    while let Some(finished) = tasks.join_next().await {
        finished??;
    }
    orders.print().await?;
    stock.print().await
}
