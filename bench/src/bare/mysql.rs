//! The peers on MariaDB.

use landfall::mysql::{MySql, Options};
use landfall::{Message, Schema};
use sqlx::{AssertSqlSafe, Executor, MySqlConnection, Row};

use super::{Bare, CONNECTIONS, Table};
use crate::Result;
use crate::workload::{GROUP, KEYS, PAYLOAD_BYTES, TOPIC};

/// A hand-written outbox table: the columns that Landfall writes, and a primary key.
const PEERS: &str = "CREATE TABLE bare_outbox (
    id         BIGINT       NOT NULL AUTO_INCREMENT PRIMARY KEY,
    message_id BINARY(16)   NOT NULL DEFAULT (UNHEX(REPLACE(UUID(), '-', ''))),
    topic      VARCHAR(249) NOT NULL,
    `key`      VARCHAR(512),
    sequence   BIGINT,
    kind       VARCHAR(255) NOT NULL DEFAULT 'message',
    mode       VARCHAR(16)  NOT NULL DEFAULT 'effectively-once',
    headers    LONGTEXT     NOT NULL DEFAULT ('{}'),
    created_at DATETIME(6)  NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    attempts   INT          NOT NULL DEFAULT 0,
    payload    LONGBLOB     NOT NULL
) CHARACTER SET utf8mb4";

/// The numbers from 1 to a million, from which `fill` generates its rows.
const NUMBERS: &str = "CREATE TABLE numbers (n INT NOT NULL PRIMARY KEY)";
const MAX_ROWS: u64 = 1_000_000;

const BEGIN: &str = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED; START TRANSACTION";

async fn fill(database: &MySql, table: &str, rows: u64) -> Result<()> {
    if rows > MAX_ROWS {
        return Err(format!("a sample needs {rows} rows; the table of numbers has {MAX_ROWS}").into());
    }
    let fill = format!(
        "INSERT INTO {table} (topic, `key`, payload)
         SELECT ?, CONCAT('order-', n % ?), REPEAT('x', ?) FROM numbers WHERE n <= ? ORDER BY n"
    );
    sqlx::query(AssertSqlSafe(fill))
        .bind(TOPIC)
        .bind(KEYS as i64)
        .bind(PAYLOAD_BYTES as i64)
        .bind(rows as i64)
        .execute(database.pool())
        .await?;
    Ok(())
}

impl Bare for MySql {
    const NAME: &'static str = "MariaDB";
    const CLIENTS: &'static [usize] = &[1, 8];

    async fn open(url: &str) -> Result<Self> {
        let database = MySql::connect(url, Options { max_connections: CONNECTIONS, ..Options::default() }).await?;
        database.migrate().await?;
        for statement in [PEERS, NUMBERS, "CREATE TABLE effects (message_id BINARY(16) NOT NULL, `key` VARCHAR(512))"] {
            database.pool().execute(statement).await?;
        }
        let mut inserted = 1;
        database.pool().execute("INSERT INTO numbers VALUES (1)").await?;
        while inserted < MAX_ROWS {
            // Each statement doubles the table.
            let double = "INSERT INTO numbers SELECT n + ? FROM numbers WHERE n + ? <= ?";
            let query = sqlx::query(double).bind(inserted as i64).bind(inserted as i64).bind(MAX_ROWS as i64);
            inserted += query.execute(database.pool()).await?.rows_affected();
        }
        Ok(database)
    }

    async fn version(&self) -> Result<String> {
        let version: String = sqlx::query_scalar("SELECT VERSION()").fetch_one(self.pool()).await?;
        Ok(format!("{version} (innodb_flush_log_at_trx_commit=1)"))
    }

    async fn insert(&self, message: &Message) -> Result<()> {
        let mut transaction = self.pool().begin().await?;
        let insert = "INSERT INTO bare_outbox
                (message_id, topic, `key`, sequence, kind, mode, headers, created_at, payload)
            VALUES (?, ?, ?, ?, ?, ?, ?, TIMESTAMP'1970-01-01 00:00:00' + INTERVAL ? MICROSECOND, ?)";
        sqlx::query(insert)
            .bind(message.id.as_uuid())
            .bind(message.topic.as_str())
            .bind(message.key.as_ref().map(|key| key.as_str()))
            .bind(message.sequence)
            .bind(message.kind.as_str())
            .bind(message.mode.as_str())
            .bind(message.headers.to_json())
            .bind(message.time.as_millis() * 1000)
            .bind(&message.payload[..])
            .execute(&mut *transaction)
            .await?;
        Ok(transaction.commit().await?)
    }

    async fn fill(&self, rows: u64) -> Result<()> {
        fill(self, "landfall_outbox", rows).await
    }

    async fn fill_peers(&self, rows: u64) -> Result<()> {
        fill(self, "bare_outbox", rows).await
    }

    async fn claim_and_delete(&self) -> Result<u64> {
        let mut transaction = self.pool().begin_with(BEGIN).await?;
        let claim = "SELECT id, attempts, message_id, topic, `key`, sequence, kind, mode, headers, payload
            FROM bare_outbox ORDER BY id LIMIT 500 FOR UPDATE SKIP LOCKED";
        let rows = sqlx::query(claim).fetch_all(&mut *transaction).await?;
        if rows.is_empty() {
            return Ok(0);
        }
        let delete = format!("DELETE FROM bare_outbox WHERE id IN ({})", vec!["?"; rows.len()].join(", "));
        let mut query = sqlx::query(AssertSqlSafe(delete));
        for row in &rows {
            query = query.bind(row.try_get::<i64, _>(0)?);
        }
        query.execute(&mut *transaction).await?;
        transaction.commit().await?;
        Ok(rows.len() as u64)
    }

    async fn select(&self) -> Result<u64> {
        let select = "SELECT id, attempts, message_id, topic, `key`, sequence, kind, mode, headers, payload
            FROM bare_outbox ORDER BY id LIMIT 500";
        let rows = sqlx::query(select).fetch_all(self.pool()).await?;
        Ok(rows.len() as u64)
    }

    async fn handle(&self, message: &Message) -> Result<()> {
        let mut transaction = self.pool().begin_with(BEGIN).await?;
        sqlx::query("INSERT IGNORE INTO landfall_inbox (consumer_group, message_id) VALUES (?, ?)")
            .bind(GROUP)
            .bind(message.id.as_uuid())
            .execute(&mut *transaction)
            .await?;
        let held = "SELECT 1 FROM landfall_held_key WHERE consumer_group = ? AND topic = ? AND `key` = ? FOR UPDATE";
        sqlx::query(held)
            .bind(GROUP)
            .bind(message.topic.as_str())
            .bind(message.key.as_ref().map(|key| key.as_str()))
            .fetch_optional(&mut *transaction)
            .await?;
        Self::apply(&mut transaction, message).await?;
        Ok(transaction.commit().await?)
    }

    async fn apply<'a>(connection: &'a mut MySqlConnection, message: &'a Message) -> Result<(), sqlx::Error> {
        sqlx::query("INSERT INTO effects (message_id, `key`) VALUES (?, ?)")
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

    async fn count_peers(&self) -> Result<u64> {
        let count: i64 = sqlx::query_scalar("SELECT count(*) FROM bare_outbox").fetch_one(self.pool()).await?;
        Ok(count as u64)
    }

    async fn clear(&self) -> Result<()> {
        for table in ["landfall_outbox", "bare_outbox", "landfall_inbox", "effects"] {
            sqlx::raw_sql(AssertSqlSafe(format!("TRUNCATE TABLE {table}"))).execute(self.pool()).await?;
        }
        Ok(())
    }
}
