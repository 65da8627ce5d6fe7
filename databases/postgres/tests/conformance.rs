//! What every database must do, on a real PostgreSQL server.

#![allow(clippy::expect_used, reason = "a test fails by panicking")]

use std::time::Duration;

use landfall_core::{DatabaseCapabilities, Key, MessageId, TopicName};
use landfall_postgres::{Options, Postgres};
use landfall_testkit::conformance::database::{AuditRow, DatabaseFixture, Effect};
use landfall_testkit::servers::fresh_postgres_database;
use sqlx::PgConnection;
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
        // Many cases run at once and share one server, whose connections are counted.
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
        sqlx::query(statement).execute(connection).await.expect("the table is made");
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
        let take = "UPDATE landfall_lease SET holder = 'somebody else', epoch = epoch + 1";
        sqlx::query(take).execute(connection).await.expect("the leases change hands");
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

landfall_testkit::database_conformance!(PostgresFixture);
