//! The peers on PostgreSQL.

use landfall::postgres::{Options, Postgres};
use landfall::{Message, Schema};
use sqlx::{Executor, PgConnection};

use super::{Bare, CONNECTIONS, Table};
use crate::Result;
use crate::workload::{GROUP, KEYS, PAYLOAD_BYTES, TOPIC};

impl Bare for Postgres {
    const NAME: &'static str = "PostgreSQL";
    const CLIENTS: &'static [usize] = &[1, 8];

    async fn open(url: &str) -> Result<Self> {
        let database = Postgres::connect(url, Options { max_connections: CONNECTIONS, ..Options::default() }).await?;
        database.migrate().await?;
        database.pool().execute("CREATE TABLE effects (message_id uuid NOT NULL, key text)").await?;
        Ok(database)
    }

    async fn version(&self) -> Result<String> {
        let version: String = sqlx::query_scalar("SHOW server_version").fetch_one(self.pool()).await?;
        Ok(format!("PostgreSQL {version} (fsync=on, synchronous_commit=on)"))
    }

    async fn insert(&self, message: &Message) -> Result<()> {
        let mut transaction = self.pool().begin().await?;
        let insert = "INSERT INTO landfall_outbox
                (message_id, topic, key, sequence, kind, mode, headers, created_at, payload)
            VALUES ($1, $2, $3, $4, $5, $6, $7::jsonb, to_timestamp($8::bigint / 1000.0), $9)";
        sqlx::query(insert)
            .bind(message.id.as_uuid())
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
            SELECT $2, 'order-' || (n % $3), convert_to(repeat('x', $4), 'UTF8') FROM generate_series(1, $1) n";
        sqlx::query(fill)
            .bind(rows as i64)
            .bind(TOPIC)
            .bind(KEYS as i64)
            .bind(PAYLOAD_BYTES as i32)
            .execute(self.pool())
            .await?;
        self.pool().execute("VACUUM ANALYZE landfall_outbox").await?;
        Ok(())
    }

    async fn claim_and_delete(&self) -> Result<u64> {
        // Written so that every plan uses the primary key: with the limit as a parameter, or as a join, the generic plan
        // of a prepared statement may scan the whole table each time.
        let claim = "DELETE FROM landfall_outbox WHERE id = ANY (ARRAY(
                SELECT id FROM landfall_outbox ORDER BY id LIMIT 500 FOR UPDATE SKIP LOCKED))
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
        let mut transaction = self.pool().begin().await?;
        let admit = "WITH taken AS (
                INSERT INTO landfall_inbox (consumer_group, message_id) VALUES ($1, $2) ON CONFLICT DO NOTHING
                RETURNING 1),
            held AS (
                SELECT 1 FROM landfall_held_key held
                WHERE held.consumer_group = $1 AND held.topic = $3 AND held.key = $4 AND EXISTS (SELECT 1 FROM taken)
                FOR UPDATE OF held)
            SELECT EXISTS (SELECT 1 FROM taken), EXISTS (SELECT 1 FROM held)";
        sqlx::query(admit)
            .bind(GROUP)
            .bind(message.id.as_uuid())
            .bind(message.topic.as_str())
            .bind(message.key.as_ref().map(|key| key.as_str()))
            .fetch_one(&mut *transaction)
            .await?;
        Self::apply(&mut transaction, message).await?;
        Ok(transaction.commit().await?)
    }

    async fn apply<'a>(connection: &'a mut PgConnection, message: &'a Message) -> Result<(), sqlx::Error> {
        sqlx::query("INSERT INTO effects (message_id, key) VALUES ($1, $2)")
            .bind(message.id.as_uuid())
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
        self.pool().execute("TRUNCATE landfall_outbox, landfall_inbox, effects").await?;
        Ok(())
    }
}
