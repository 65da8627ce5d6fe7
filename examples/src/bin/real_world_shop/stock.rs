//! The stock service: reserves ordered items or refuses, and replies.

use landfall::consume::{Context, Handler};
use landfall::{ErrorCode, Failure, Key, Kind, Message, TopicName};
use landfall_examples::Result;

use crate::database::ShopDatabase;
use crate::orders::REPLIES;

#[derive(Clone)]
pub(crate) struct Stock<D> {
    pub(crate) database: D,
}

impl<D: ShopDatabase> Stock<D> {
    pub(crate) async fn open(database: D, items: &[(&str, u32)]) -> Result<Self> {
        let table = "CREATE TABLE stock (item TEXT PRIMARY KEY, left_over INTEGER NOT NULL)";
        database.execute_in_transaction(table, &[]).await?;
        for (item, quantity) in items {
            let insert = "INSERT INTO stock (item, left_over) VALUES ($1, CAST($2 AS INTEGER))";
            database.execute_in_transaction(insert, &[item, &quantity.to_string()]).await?;
        }
        Ok(Self { database })
    }

    pub(crate) async fn print(&self) -> Result<()> {
        let rows = "SELECT item, CAST(left_over AS TEXT) FROM stock ORDER BY item";
        for (item, left_over) in self.database.pairs(rows).await? {
            println!("{item} left: {left_over}");
        }
        Ok(())
    }
}

/// Handles an order: its key is the item, its payload the order and the quantity.
impl<D: ShopDatabase> Handler<D> for Stock<D> {
    async fn handle<'a>(&'a self, mut context: Context<'a, D>) -> Result<(), Failure> {
        let item = context.message.key.as_ref().map(|key| key.as_str()).unwrap_or_default();
        let Some((order, quantity)) = std::str::from_utf8(&context.message.payload)?.split_once(' ') else {
            // A retry does not help with a malformed message: park it for an operator.
            return Err(Failure::park(ErrorCode::VALIDATION, "an order consists of its id and a quantity"));
        };
        // An empty stock is a result, not an error: an error would be retried.
        let reserve = "UPDATE stock SET left_over = left_over - CAST($1 AS INTEGER)
            WHERE item = $2 AND left_over >= CAST($1 AS INTEGER)";
        let reserved = D::execute(context.connection, reserve, &[quantity, item]).await?;
        let kind = Kind::new(if reserved == 1 { "StockReserved" } else { "StockRefused" })?;
        // Part of the effect: published if and only if the reservation commits.
        let reply = Message::new(TopicName::new(REPLIES)?, "").with_key(Key::new(order)?).with_kind(kind);
        context.enqueue(&reply).await?;
        Ok(())
    }
}
