//! Shared by the services: their databases, the topics between them, and the record of effects.

use std::path::Path;

use landfall::consume::Context;
use landfall::sqlite::{Options, Sqlite};
use landfall::{Error, ErrorCode, Failure, GroupName, Key, Kind, Message, Schema, Timestamp, TopicName};

use super::story::Order;
use super::{Result, orders, payment, stock};

/// The services in the order of the message path; orders is last because it consumes the payments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Service {
    Stock,
    Payment,
    Orders,
}

impl Service {
    pub(super) const ALL: [Service; 3] = [Service::Stock, Service::Payment, Service::Orders];

    /// The name of the service, of its database file and of its consumer group.
    pub(super) fn name(self) -> &'static str {
        match self {
            Service::Stock => "stock",
            Service::Payment => "payment",
            Service::Orders => "orders",
        }
    }

    /// The topic it consumes.
    pub(super) fn listens_to(self) -> &'static str {
        match self {
            Service::Stock => orders::PLACED,
            Service::Payment => stock::RESERVED,
            Service::Orders => payment::TAKEN,
        }
    }

    pub(super) fn topic(self) -> landfall::Result<TopicName> {
        TopicName::new(self.listens_to())
    }

    pub(super) fn group(self) -> landfall::Result<GroupName> {
        GroupName::new(self.name())
    }

    fn tables(self) -> &'static str {
        match self {
            Service::Stock => stock::TABLES,
            Service::Payment => payment::TABLES,
            Service::Orders => orders::TABLES,
        }
    }
}

/// The table in which every service records its effects. On purpose without a unique constraint: an effect that happens
/// twice has two rows.
const EFFECTS: &str = "
    CREATE TABLE IF NOT EXISTS effects (
        message_id TEXT    NOT NULL,
        key        TEXT    NOT NULL,
        sequence   INTEGER NOT NULL,
        applied_at INTEGER NOT NULL
    )";

/// The three databases. No statement ever touches two of them.
#[derive(Debug, Clone)]
pub(super) struct Shop {
    stock: Sqlite,
    payment: Sqlite,
    orders: Sqlite,
}

impl Shop {
    /// Opens the databases under `folder` and creates missing tables. Both processes do this.
    pub(super) async fn open(folder: &Path) -> Result<Self> {
        Ok(Self {
            stock: open(folder, Service::Stock).await?,
            payment: open(folder, Service::Payment).await?,
            orders: open(folder, Service::Orders).await?,
        })
    }

    pub(super) fn database(&self, service: Service) -> &Sqlite {
        match service {
            Service::Stock => &self.stock,
            Service::Payment => &self.payment,
            Service::Orders => &self.orders,
        }
    }
}

async fn open(folder: &Path, service: Service) -> Result<Sqlite> {
    let file = folder.join(service.name()).with_extension("db");
    let database = Sqlite::open(&file.to_string_lossy(), Options::default()).await?;
    database.migrate().await?;
    sqlx::raw_sql(EFFECTS).execute(database.pool()).await?;
    sqlx::raw_sql(service.tables()).execute(database.pool()).await?;
    Ok(database)
}

/// Records the effect of the message, in the transaction of the effect.
pub(super) async fn append_effect(context: &mut Context<'_, Sqlite>) -> Result<(), Failure> {
    sqlx::query("INSERT INTO effects (message_id, key, sequence, applied_at) VALUES (?, ?, ?, ?)")
        .bind(context.message.id.to_string())
        .bind(context.message.key.as_ref().map(Key::as_str))
        .bind(context.message.sequence)
        .bind(Timestamp::now().as_millis())
        .execute(&mut *context.connection)
        .await?;
    Ok(())
}

/// Creates a message about `order`, with the customer as its ordering key.
pub(super) fn message(topic: &str, kind: &str, order: &Order, sequence: i64) -> landfall::Result<Message> {
    let payload = serde_json::to_vec(order)
        .map_err(|error| Error::invalid("cannot serialize the order as JSON").with_source(error))?;
    let message = Message::new(TopicName::new(topic)?, payload);
    Ok(message.with_kind(Kind::new(kind)?).with_key(Key::new(&order.customer)?).with_sequence(sequence))
}

/// Returns the order in the payload, and its sequence among the customer's orders.
pub(super) fn order_in(message: &Message) -> Result<(Order, i64), Failure> {
    let order = serde_json::from_slice(&message.payload)
        .map_err(|error| Failure::park(ErrorCode::VALIDATION, format!("the payload is not an order: {error}")))?;
    let sequence =
        message.sequence.ok_or_else(|| Failure::park(ErrorCode::VALIDATION, "the message has no sequence"))?;
    Ok((order, sequence))
}
