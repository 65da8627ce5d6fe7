//! The stock service: reserves stock for an order and publishes the reservation.

use landfall::consume::{Context, Handler};
use landfall::sqlite::Sqlite;
use landfall::{ErrorCode, Failure};

use super::Result;
use super::shop::{append_effect, message, order_in};
use super::story::CATALOGUE;

/// The topic of reservations.
pub(super) const RESERVED: &str = "stock.reserved";

/// The error code of an order for an article that is not in the catalogue.
pub(super) const UNKNOWN_SKU: &str = "UNKNOWN_SKU";

pub(super) const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS stock (
        sku       TEXT    PRIMARY KEY,
        initial   INTEGER NOT NULL,
        remaining INTEGER NOT NULL
    )";

/// More than any run can order: running out of stock is not part of the demo.
const INITIAL: i64 = 10_000_000;

/// Inserts the catalogue; idempotent.
pub(super) async fn insert_catalogue(database: &Sqlite) -> Result<()> {
    for sku in CATALOGUE {
        add_to_catalogue(database, sku).await?;
    }
    Ok(())
}

/// Adds `sku` to the catalogue; idempotent.
pub(super) async fn add_to_catalogue(database: &Sqlite, sku: &str) -> Result<()> {
    sqlx::query("INSERT INTO stock (sku, initial, remaining) VALUES (?, ?, ?) ON CONFLICT DO NOTHING")
        .bind(sku)
        .bind(INITIAL)
        .bind(INITIAL)
        .execute(database.pool())
        .await?;
    Ok(())
}

/// Handles "order placed".
#[derive(Debug)]
pub(super) struct Reserve;

impl Handler<Sqlite> for Reserve {
    async fn handle(&self, mut context: Context<'_, Sqlite>) -> Result<(), Failure> {
        let (order, sequence) = order_in(context.message)?;
        let reserved = sqlx::query("UPDATE stock SET remaining = remaining - ? WHERE sku = ? AND remaining >= ?")
            .bind(order.quantity)
            .bind(&order.sku)
            .bind(order.quantity)
            .execute(&mut *context.connection)
            .await?;
        if reserved.rows_affected() == 0 {
            // No retry helps: an operator has to add the article. Until then the customer's later orders wait.
            let error = format!("there is no {} to reserve for order {}", order.sku, order.number);
            return Err(Failure::park(ErrorCode::new(UNKNOWN_SKU), error));
        }
        append_effect(&mut context).await?;
        context.enqueue(&message(RESERVED, "StockReserved", &order, sequence)?).await?;
        Ok(())
    }
}
