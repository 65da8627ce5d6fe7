//! The stock service: reserves what was ordered, and says so.

use landfall::consume::{Context, Handler};
use landfall::sqlite::Sqlite;
use landfall::{ErrorCode, Failure};

use super::Result;
use super::shop::{append_effect, message, order_in};
use super::story::CATALOGUE;

/// The topic that says stock was reserved for an order.
pub(super) const RESERVED: &str = "stock.reserved";

/// What the dead letters say of an order for something that is not in the catalogue.
pub(super) const UNKNOWN_SKU: &str = "UNKNOWN_SKU";

pub(super) const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS stock (
        sku       TEXT    PRIMARY KEY,
        initial   INTEGER NOT NULL,
        remaining INTEGER NOT NULL
    )";

/// More of everything than any run can order: running out of stock is another story.
const INITIAL: i64 = 10_000_000;

/// Puts the catalogue on the shelves, once.
pub(super) async fn fill_shelves(database: &Sqlite) -> Result<()> {
    for sku in CATALOGUE {
        add_to_catalogue(database, sku).await?;
    }
    Ok(())
}

/// Makes `sku` known; does nothing if it is.
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
            // No retry puts it into the catalogue: a person has to, and the customer's later orders wait until then.
            let error = format!("there is no {} to reserve for order {}", order.sku, order.number);
            return Err(Failure::park(ErrorCode::new(UNKNOWN_SKU), error));
        }
        append_effect(&mut context).await?;
        context.enqueue(&message(RESERVED, "StockReserved", &order, sequence)?).await?;
        Ok(())
    }
}
