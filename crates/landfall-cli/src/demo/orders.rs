//! The orders service: places orders, and marks them as paid when their payment arrives.

use landfall::consume::{Context, Handler};
use landfall::produce::Outbox;
use landfall::sqlite::Sqlite;
use landfall::{ErrorCode, Failure, Timestamp};
use sqlx::SqliteConnection;
use tokio_util::sync::CancellationToken;

use super::Result;
use super::shop::{append_effect, message, order_in};
use super::story::{Order, Story};

/// The topic of placed orders.
pub(super) const PLACED: &str = "orders";

/// `sequence` counts the orders of one customer from 1; `message_id` is the id of the order's message.
pub(super) const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS orders (
        number       INTEGER PRIMARY KEY,
        customer     TEXT    NOT NULL,
        sequence     INTEGER NOT NULL,
        sku          TEXT    NOT NULL,
        quantity     INTEGER NOT NULL,
        amount_cents INTEGER NOT NULL,
        message_id   TEXT    NOT NULL,
        paid_at      INTEGER,
        UNIQUE (customer, sequence)
    );
    CREATE INDEX IF NOT EXISTS orders_unpaid ON orders (number) WHERE paid_at IS NULL";

/// Places the orders that are not in the table yet, and so continues after a crash.
pub(super) async fn place_all(database: Sqlite, story: Story, stop: CancellationToken) -> Result<()> {
    let outbox = Outbox::new(database.clone());
    let placed: u32 =
        sqlx::query_scalar("SELECT coalesce(max(number), 0) FROM orders").fetch_one(database.pool()).await?;
    for number in placed + 1..=story.orders {
        if stop.is_cancelled() {
            break;
        }
        let order = story.order(number);
        if story.is_rolled_back_first(number) {
            let mut transaction = outbox.begin().await?;
            write(&outbox, &mut transaction, &order).await?;
            // On purpose: dropped without a commit, which rolls back the order and its message.
            drop(transaction);
        }
        let mut transaction = outbox.begin().await?;
        write(&outbox, &mut transaction, &order).await?;
        outbox.commit(transaction).await?;
    }
    Ok(())
}

/// Writes the order and its message in one transaction: the commit stores both or neither.
async fn write(outbox: &Outbox<Sqlite>, connection: &mut SqliteConnection, order: &Order) -> Result<()> {
    let sequence = "SELECT coalesce(max(sequence), 0) + 1 FROM orders WHERE customer = ?";
    let sequence: i64 = sqlx::query_scalar(sequence).bind(&order.customer).fetch_one(&mut *connection).await?;
    let message = message(PLACED, "OrderPlaced", order, sequence)?;
    sqlx::query(
        "INSERT INTO orders (number, customer, sequence, sku, quantity, amount_cents, message_id)
         VALUES (?, ?, ?, ?, ?, ?, ?)",
    )
    .bind(order.number)
    .bind(&order.customer)
    .bind(sequence)
    .bind(&order.sku)
    .bind(order.quantity)
    .bind(order.amount_cents)
    .bind(message.id.to_string())
    .execute(&mut *connection)
    .await?;
    outbox.enqueue(connection, &message).await?;
    Ok(())
}

/// Handles "payment taken", the last step of the path.
#[derive(Debug)]
pub(super) struct MarkPaid;

impl Handler<Sqlite> for MarkPaid {
    async fn handle(&self, mut context: Context<'_, Sqlite>) -> Result<(), Failure> {
        let (order, _) = order_in(context.message)?;
        let marked = sqlx::query("UPDATE orders SET paid_at = ? WHERE number = ?")
            .bind(Timestamp::now().as_millis())
            .bind(order.number)
            .execute(&mut *context.connection)
            .await?;
        if marked.rows_affected() == 0 {
            let error = format!("order {} was paid for but never placed", order.number);
            return Err(Failure::park(ErrorCode::new("UNKNOWN_ORDER"), error));
        }
        append_effect(&mut context).await
    }
}
