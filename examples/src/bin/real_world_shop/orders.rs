//! The orders service: places orders and receives the stock's replies.

use landfall::consume::{Context, Handler};
use landfall::produce::Outbox;
use landfall::{Failure, Key, Kind, Message, TopicName};
use landfall_examples::Result;

use crate::database::ShopDatabase;

/// The topic that this service publishes to, and the one that it consumes.
pub(crate) const PLACED: &str = "orders-placed";
pub(crate) const REPLIES: &str = "stock-replies";

#[derive(Clone)]
pub(crate) struct Orders<D> {
    pub(crate) database: D,
}

impl<D: ShopDatabase> Orders<D> {
    pub(crate) async fn open(database: D) -> Result<Self> {
        let table = "CREATE TABLE orders (id TEXT PRIMARY KEY, item TEXT NOT NULL, status TEXT NOT NULL)";
        database.execute_in_transaction(table, &[]).await?;
        Ok(Self { database })
    }

    /// The order and its message commit together. The commit wakes the relay; nothing is published from here.
    pub(crate) async fn place(&self, number: u32, item: &str, quantity: u32) -> Result<()> {
        let id = format!("order-{number}");
        let message = Message::new(TopicName::new(PLACED)?, format!("{id} {quantity}"))
            .with_key(Key::new(item)?)
            .with_kind(Kind::new("OrderPlaced")?);
        let item = item.to_owned();
        Outbox::new(self.database.clone())
            .execute_with_message(message, async |connection| {
                let insert = "INSERT INTO orders (id, item, status) VALUES ($1, $2, 'placed')";
                D::execute(connection, insert, &[&id, &item]).await?;
                Ok(())
            })
            .await
    }

    pub(crate) async fn all_have_replies(&self) -> Result<bool> {
        Ok(self.database.pairs("SELECT id, status FROM orders WHERE status = 'placed'").await?.is_empty())
    }

    pub(crate) async fn print(&self) -> Result<()> {
        for (order, status) in self.database.pairs("SELECT id, item || ': ' || status FROM orders ORDER BY id").await? {
            println!("{order}, {status}");
        }
        Ok(())
    }
}

/// Handles a reply of the stock: its key is the order, its kind is the result.
impl<D: ShopDatabase> Handler<D> for Orders<D> {
    async fn handle<'a>(&'a self, context: Context<'a, D>) -> Result<(), Failure> {
        let status = if context.message.kind.as_str() == "StockReserved" { "reserved" } else { "refused" };
        let order = context.message.key.as_ref().map(|key| key.as_str()).unwrap_or_default();
        let update = "UPDATE orders SET status = $1 WHERE id = $2 AND status = 'placed'";
        D::execute(context.connection, update, &[status, order]).await?;
        Ok(())
    }
}
