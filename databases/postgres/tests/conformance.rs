//! The conformance suites of databases and of database servers, on a real PostgreSQL server.

#![allow(clippy::expect_used, reason = "a test fails by panicking")]

use std::time::Duration;

use landfall_core::adapter::DatabaseCapabilities;
use landfall_core::{Key, MessageId, Result, TopicName};
use landfall_postgres::{Options, Postgres};
use landfall_testkit::conformance::database::{AuditRow, DatabaseFixture, Effect};
use landfall_testkit::conformance::server_database::ServerFixture;
use landfall_testkit::servers::fresh_postgres_database;
use sqlx::{Connection, PgConnection};
use uuid::Uuid;

struct PostgresFixture {
    url: String,
}

impl DatabaseFixture for PostgresFixture {
    type Database = Postgres;

    fn capabilities() -> DatabaseCapabilities {
        Postgres::CAPABILITIES
    }

    async fn create() -> Option<Self> {
        Some(Self { url: fresh_postgres_database().await? })
    }

    async fn open(&self) -> Postgres {
        // Many cases run at once and share one server, which limits its connections.
        let options = Options { max_connections: 4, ..Options::default() };
        Postgres::connect(&self.url, options).await.expect("the server answers")
    }

    async fn open_keeping_sent(&self, time: Duration) -> Postgres {
        let options = Options { max_connections: 4, keep_sent: Some(time), ..Options::default() };
        Postgres::connect(&self.url, options).await.expect("the server answers")
    }

    async fn create_effects(&self, connection: &mut PgConnection) {
        let statement = "CREATE TABLE effects (
            number bigint GENERATED ALWAYS AS IDENTITY, message_id uuid NOT NULL, key text, sequence bigint)";
        sqlx::query(statement).execute(connection).await.expect("the table is created");
    }

    async fn insert_effect(&self, connection: &mut PgConnection, effect: &Effect) {
        sqlx::query("INSERT INTO effects (message_id, key, sequence) VALUES ($1, $2, $3)")
            .bind(effect.message_id.as_uuid())
            .bind(&effect.key)
            .bind(effect.sequence)
            .execute(connection)
            .await
            .expect("the effect is written");
    }

    async fn effects(&self, connection: &mut PgConnection) -> Vec<Effect> {
        let rows: Vec<(Uuid, Option<String>, Option<i64>)> =
            sqlx::query_as("SELECT message_id, key, sequence FROM effects ORDER BY number")
                .fetch_all(connection)
                .await
                .expect("the effects are read");
        rows.into_iter().map(|(id, key, sequence)| Effect { message_id: id.into(), key, sequence }).collect()
    }

    async fn audit(&self, connection: &mut PgConnection) -> Vec<AuditRow> {
        let rows: Vec<(String, String, Uuid)> =
            sqlx::query_as("SELECT actor, action, message_id FROM landfall_audit ORDER BY id")
                .fetch_all(connection)
                .await
                .expect("the audit trail is read");
        rows.into_iter()
            .map(|(actor, action, id)| AuditRow { actor, action, message_id: MessageId::from(id) })
            .collect()
    }

    async fn steal_leases(&self, connection: &mut PgConnection) {
        let take = "UPDATE landfall_lease SET holder = 'another relay', epoch = epoch + 1";
        sqlx::query(take).execute(connection).await.expect("the leases get another holder");
    }

    async fn execute_text(&self, connection: &mut PgConnection, statement: &str) -> Result<(), String> {
        let statement = statement.replace("{key}", "key");
        let executed = sqlx::raw_sql(sqlx::AssertSqlSafe(statement)).execute(connection).await;
        executed.map(drop).map_err(|error| error.to_string())
    }

    const VERSION_1_ROWS: &'static str = "
        INSERT INTO landfall_outbox (topic, key, payload)
            VALUES ('orders', 'a', 'a1'), ('orders', 'b', 'b1'), ('orders', 'b', 'b2'), ('orders', 'c', 'c1'),
                ('orders', 'c', 'c2');
        WITH gone AS (DELETE FROM landfall_outbox WHERE payload = 'b1' RETURNING *)
            INSERT INTO landfall_outbox_waiting (id, message_id, topic, key, kind, mode, headers, payload, created_at,
                shard, attempts, next_attempt_at, last_error)
            SELECT id, message_id, topic, key, kind, mode, headers, payload, created_at, landfall_shard_of(key, id), 2,
                now(), 'FULL: full' FROM gone;
        WITH gone AS (DELETE FROM landfall_outbox WHERE payload = 'c1' RETURNING *)
            INSERT INTO landfall_dead_letter (message_id, topic, key, kind, mode, headers, payload, created_at,
                outbox_id, status, error_code, error, attempts)
            SELECT message_id, topic, key, kind, mode, headers, payload, created_at, id, 'parked', 'FULL', 'full', 3
            FROM gone;
        INSERT INTO landfall_held_key (consumer_group, topic, key) VALUES ('', 'orders', 'c');
        INSERT INTO landfall_lease (name, holder, epoch, expires_at)
            VALUES ('outbox/0', 'old', 1, now() + interval '1 day')";

    async fn misdate_leases(&self, connection: &mut PgConnection) {
        let misdate = "UPDATE landfall_lease SET expires_at = expires_at + interval '1 day'";
        sqlx::query(misdate).execute(connection).await.expect("the leases get another expiry");
    }

    async fn insert_unreadable(&self, connection: &mut PgConnection, topic: &TopicName, key: &Key) {
        let statement = r#"INSERT INTO landfall_outbox (topic, key, payload, headers)
            VALUES ($1, $2, '', '{"x": "a\nb"}')"#;
        sqlx::query(statement)
            .bind(topic.as_str())
            .bind(key.as_str())
            .execute(connection)
            .await
            .expect("the row is written");
    }
}

impl ServerFixture for PostgresFixture {
    const SCHEME: &'static str = "postgres";
    const PRODUCT: &'static str = "PostgreSQL";
    const KEY: &'static str = "key";

    fn url(&self) -> &str {
        &self.url
    }

    async fn connect(url: &str) -> Result<Postgres> {
        Postgres::connect(url, Options::default()).await
    }

    async fn execute(&self, connection: &mut PgConnection, statement: &str) {
        sqlx::raw_sql(sqlx::AssertSqlSafe(statement)).execute(connection).await.expect("the statement succeeds");
    }

    async fn kill(&self, connection: &mut PgConnection) {
        let ask = "SELECT pg_backend_pid()";
        let process: i32 = sqlx::query_scalar(ask).fetch_one(connection).await.expect("the server answers");
        let mut other = PgConnection::connect(&self.url).await.expect("the server answers");
        let terminate = sqlx::query_scalar("SELECT pg_terminate_backend($1, 20000)").bind(process);
        let is_terminated: bool = terminate.fetch_one(&mut other).await.expect("the server answers");
        assert!(is_terminated);
    }

    async fn hold_snapshot(&self) -> Box<dyn Send> {
        let mut reader = PgConnection::connect(&self.url).await.expect("the server answers");
        let read = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM landfall_outbox";
        sqlx::raw_sql(read).execute(&mut reader).await.expect("the outbox is read");
        Box::new(reader)
    }

    async fn idle_in_transaction(&self) -> i64 {
        let mut connection = PgConnection::connect(&self.url).await.expect("the server answers");
        let count = "SELECT count(*) FROM pg_stat_activity
                     WHERE datname = current_database() AND state LIKE 'idle in transaction%'";
        sqlx::query_scalar(count).fetch_one(&mut connection).await.expect("the sessions are counted")
    }
}

landfall_testkit::database_conformance!(PostgresFixture);
landfall_testkit::server_database_conformance!(PostgresFixture);

mod idempotency {
    use landfall_testkit::conformance::idempotency::OfDatabase;

    use super::*;

    landfall_testkit::idempotency_conformance!(OfDatabase<PostgresFixture>);
}
