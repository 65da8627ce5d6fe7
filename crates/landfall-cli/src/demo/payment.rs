//! The payment service: charges the customer's account for a reservation and publishes the payment.

use landfall::consume::{Context, Handler};
use landfall::sqlite::Sqlite;
use landfall::{ErrorCode, Failure};

use super::Result;
use super::shop::{append_effect, message, order_in};
use super::story::customers;

/// The topic of payments.
pub(super) const TAKEN: &str = "payments";

pub(super) const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS accounts (
        customer      TEXT    PRIMARY KEY,
        opening_cents INTEGER NOT NULL,
        balance_cents INTEGER NOT NULL
    )";

/// More than a customer can spend in one run.
const OPENING_CENTS: i64 = 1_000_000_000_000;

/// Opens an account for every customer; idempotent.
pub(super) async fn open_accounts(database: &Sqlite) -> Result<()> {
    for customer in customers() {
        sqlx::query(
            "INSERT INTO accounts (customer, opening_cents, balance_cents) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
        )
        .bind(customer)
        .bind(OPENING_CENTS)
        .bind(OPENING_CENTS)
        .execute(database.pool())
        .await?;
    }
    Ok(())
}

/// Handles "stock reserved".
#[derive(Debug)]
pub(super) struct Charge;

impl Handler<Sqlite> for Charge {
    async fn handle(&self, mut context: Context<'_, Sqlite>) -> Result<(), Failure> {
        let (order, sequence) = order_in(context.message)?;
        let charged = sqlx::query("UPDATE accounts SET balance_cents = balance_cents - ? WHERE customer = ?")
            .bind(order.amount_cents)
            .bind(&order.customer)
            .execute(&mut *context.connection)
            .await?;
        if charged.rows_affected() == 0 {
            let error = format!("{} has no account to charge", order.customer);
            return Err(Failure::park(ErrorCode::new("UNKNOWN_CUSTOMER"), error));
        }
        if context.attempt == 1 && order.first_charge_fails() {
            // On purpose: fails after the charge is written. The rollback undoes it, and the next attempt repeats it.
            return Err(Failure::retry("the bank did not respond"));
        }
        append_effect(&mut context).await?;
        context.enqueue(&message(TAKEN, "PaymentTaken", &order, sequence)?).await?;
        Ok(())
    }
}
