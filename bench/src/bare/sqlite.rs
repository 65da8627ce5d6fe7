//! The peers on SQLite.

use landfall::sqlite::{Options, Sqlite};
use landfall::{Message, Schema};
use sqlx::{Executor, SqliteConnection};

use super::{Bare, CONNECTIONS, Table};
use crate::Result;
use crate::workload::{GROUP, KEYS, PAYLOAD_BYTES, TOPIC};

impl Bare for Sqlite {
    const NAME: &'static str = "SQLite";
    /// SQLite has one writer at a time, however many clients there are.
    const CLIENTS: &'static [usize] = &[1];

    async fn open(url: &str) -> Result<Self> {
        let database = Sqlite::open(url, Options { max_connections: CONNECTIONS, ..Options::default() }).await?;
        database.migrate().await?;
        database.pool().execute("CREATE TABLE effects (message_id TEXT NOT NULL, key TEXT)").await?;
        Ok(database)
    }

    async fn version(&self) -> Result<String> {
        let version: String = sqlx::query_scalar("SELECT sqlite_version()").fetch_one(self.pool()).await?;
        Ok(format!("SQLite {version} (WAL, synchronous=FULL)"))
    }

    async fn insert(&self, message: &Message) -> Result<()> {
        let mut transaction = self.pool().begin_with("BEGIN IMMEDIATE").await?;
        let insert = "INSERT INTO landfall_outbox
                (message_id, topic, key, sequence, kind, mode, headers, created_at, payload)
            VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)";
        sqlx::query(insert)
            .bind(message.id.to_string())
            .bind(message.topic.as_str())
            .bind(message.key.as_ref().map(|key| key.as_str()))
            .bind(message.sequence)
            .bind(message.kind.as_str())
            .bind(message.mode.as_str())
            .bind(message.headers.to_json())
            .bind(message.time.as_millis())
            .bind(&message.payload[..])
            .execute(&mut *transaction)
            .await?;
        Ok(transaction.commit().await?)
    }

    async fn fill(&self, rows: u64) -> Result<()> {
        let fill = "INSERT INTO landfall_outbox (topic, key, payload)
            WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < ?1)
            SELECT ?2, 'order-' || (n % ?3), zeroblob(?4) FROM numbers";
        sqlx::query(fill)
            .bind(rows as i64)
            .bind(TOPIC)
            .bind(KEYS as i64)
            .bind(PAYLOAD_BYTES as i64)
            .execute(self.pool())
            .await?;
        self.pool().execute("PRAGMA wal_checkpoint(TRUNCATE)").await?;
        Ok(())
    }

    async fn claim_and_delete(&self) -> Result<u64> {
        let claim = "DELETE FROM landfall_outbox WHERE id IN (SELECT id FROM landfall_outbox ORDER BY id LIMIT 500)
            RETURNING id, attempts, message_id, topic, key, sequence, kind, mode, headers, created_at, payload";
        let rows = sqlx::query(claim).fetch_all(self.pool()).await?;
        Ok(rows.len() as u64)
    }

    async fn select(&self) -> Result<u64> {
        let select = "SELECT id, attempts, message_id, topic, key, sequence, kind, mode, headers, created_at, payload
            FROM landfall_outbox ORDER BY id LIMIT 500";
        let rows = sqlx::query(select).fetch_all(self.pool()).await?;
        Ok(rows.len() as u64)
    }

    async fn handle(&self, message: &Message) -> Result<()> {
        let mut transaction = self.pool().begin_with("BEGIN IMMEDIATE").await?;
        let admit = "INSERT INTO landfall_inbox (consumer_group, message_id) VALUES (?1, ?2) ON CONFLICT DO NOTHING
            RETURNING EXISTS (
                SELECT 1 FROM landfall_held_key WHERE consumer_group = ?1 AND topic = ?3 AND key = ?4)";
        sqlx::query(admit)
            .bind(GROUP)
            .bind(message.id.to_string())
            .bind(message.topic.as_str())
            .bind(message.key.as_ref().map(|key| key.as_str()))
            .fetch_all(&mut *transaction)
            .await?;
        Self::apply(&mut transaction, message).await?;
        Ok(transaction.commit().await?)
    }

    async fn apply<'a>(connection: &'a mut SqliteConnection, message: &'a Message) -> Result<(), sqlx::Error> {
        sqlx::query("INSERT INTO effects (message_id, key) VALUES (?, ?)")
            .bind(message.id.to_string())
            .bind(message.key.as_ref().map(|key| key.as_str()))
            .execute(connection)
            .await?;
        Ok(())
    }

    async fn count(&self, table: Table) -> Result<u64> {
        let count: i64 = sqlx::query_scalar(table.count()).fetch_one(self.pool()).await?;
        Ok(count as u64)
    }

    async fn clear(&self) -> Result<()> {
        for statement in ["DELETE FROM landfall_outbox", "DELETE FROM landfall_inbox", "DELETE FROM effects"] {
            self.pool().execute(statement).await?;
        }
        self.pool().execute("PRAGMA wal_checkpoint(TRUNCATE)").await?;
        Ok(())
    }
}
