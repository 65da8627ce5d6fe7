//! What the services share: a database each, the topics between them, and how an effect is recorded.

use std::path::Path;

use landfall::consume::Context;
use landfall::sqlite::{Options, Sqlite};
use landfall::{Error, ErrorCode, Failure, GroupName, Key, Kind, Message, Schema, Timestamp, TopicName};

use super::story::Order;
use super::{Result, orders, payment, stock};

/// The services in the order in which a message visits them; orders comes last, since it began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Service {
    Stock,
    Payment,
    Orders,
}

impl Service {
    pub(super) const ALL: [Service; 3] = [Service::Stock, Service::Payment, Service::Orders];

    /// Its name, its database file and its consumer group.
    pub(super) fn name(self) -> &'static str {
        match self {
            Service::Stock => "stock",
            Service::Payment => "payment",
            Service::Orders => "orders",
        }
    }

    /// The topic whose messages it consumes.
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

/// Where every service notes what it has done. On purpose nothing in it is unique: an effect that happened twice
/// would stand here twice.
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
    /// Opens the databases under `folder`, and makes the tables that are missing. Both processes do this.
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

/// Notes, in the transaction of the effect itself, that the message has taken effect.
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

/// A message about `order`: in order among those of its customer, whatever happens on the way.
pub(super) fn message(topic: &str, kind: &str, order: &Order, sequence: i64) -> landfall::Result<Message> {
    let payload = serde_json::to_vec(order)
        .map_err(|error| Error::invalid("the order cannot be written as JSON").with_source(error))?;
    let message = Message::new(TopicName::new(topic)?, payload);
    Ok(message.with_kind(Kind::new(kind)?).with_key(Key::new(&order.customer)?).with_sequence(sequence))
}

/// The order that `message` tells of, and its place among the customer's.
pub(super) fn order_in(message: &Message) -> Result<(Order, i64), Failure> {
    let order = serde_json::from_slice(&message.payload)
        .map_err(|error| Failure::park(ErrorCode::VALIDATION, format!("the payload is not an order: {error}")))?;
    let sequence =
        message.sequence.ok_or_else(|| Failure::park(ErrorCode::VALIDATION, "the message has no sequence"))?;
    Ok((order, sequence))
}
