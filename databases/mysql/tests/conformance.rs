//! What every database must do, on a real MariaDB (or MySQL) server.

#![allow(clippy::expect_used, reason = "a test fails by panicking")]

use std::time::Duration;

use landfall_core::{DatabaseCapabilities, Key, MessageId, TopicName};
use landfall_mysql::{MySql, Options};
use landfall_testkit::conformance::database::{AuditRow, DatabaseFixture, Effect};
use landfall_testkit::servers::fresh_mysql_database;
use sqlx::{Connection, MySqlConnection};
use uuid::Uuid;

struct MySqlFixture {
    url: String,
}

impl DatabaseFixture for MySqlFixture {
    type Database = MySql;

    fn capabilities() -> DatabaseCapabilities {
        MySql::CAPABILITIES
    }

    async fn create() -> Option<Self> {
        Some(Self { url: fresh_mysql_database().await? })
    }

    async fn open(&self) -> MySql {
        // Many cases run at once and share one server, whose connections are counted.
        let options = Options { max_connections: 4, ..Options::default() };
        MySql::connect(&self.url, options).await.expect("the server answers")
    }

    async fn open_keeping_sent(&self, time: Duration) -> MySql {
        let options = Options { max_connections: 4, keep_sent: Some(time), ..Options::default() };
        MySql::connect(&self.url, options).await.expect("the server answers")
    }

    /// On a connection of its own: a statement that makes a table would commit the caller's transaction.
    async fn create_effects(&self, _: &mut MySqlConnection) {
        let mut connection = MySqlConnection::connect(&self.url).await.expect("the server answers");
        let statement = "CREATE TABLE effects (
            number BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY, message_id BINARY(16) NOT NULL,
            `key` VARCHAR(512) CHARACTER SET utf8mb4, sequence BIGINT)";
        sqlx::query(statement).execute(&mut connection).await.expect("the table is made");
        connection.close().await.expect("the connection is closed");
    }

    async fn insert_effect(&self, connection: &mut MySqlConnection, effect: &Effect) {
        sqlx::query("INSERT INTO effects (message_id, `key`, sequence) VALUES (?, ?, ?)")
            .bind(effect.message_id.as_uuid())
            .bind(&effect.key)
            .bind(effect.sequence)
            .execute(connection)
            .await
            .expect("the effect is written");
    }

    async fn effects(&self, connection: &mut MySqlConnection) -> Vec<Effect> {
        let rows: Vec<(Uuid, Option<String>, Option<i64>)> =
            sqlx::query_as("SELECT message_id, `key`, sequence FROM effects ORDER BY number")
                .fetch_all(connection)
                .await
                .expect("the effects are read");
        rows.into_iter().map(|(id, key, sequence)| Effect { message_id: id.into(), key, sequence }).collect()
    }

    async fn audit(&self, connection: &mut MySqlConnection) -> Vec<AuditRow> {
        let rows: Vec<(String, String, Uuid)> =
            sqlx::query_as("SELECT actor, action, message_id FROM landfall_audit ORDER BY id")
                .fetch_all(connection)
                .await
                .expect("the audit trail is read");
        rows.into_iter()
            .map(|(actor, action, id)| AuditRow { actor, action, message_id: MessageId::from(id) })
            .collect()
    }

    async fn take_over_leases(&self, connection: &mut MySqlConnection) {
        let take = "UPDATE landfall_lease SET holder = 'somebody else', epoch = epoch + 1";
        sqlx::query(take).execute(connection).await.expect("the leases change hands");
    }

    async fn insert_unreadable(&self, connection: &mut MySqlConnection, topic: &TopicName, key: &Key) {
        sqlx::query("INSERT INTO landfall_outbox (topic, `key`, payload, headers) VALUES (?, ?, '', ?)")
            .bind(topic.as_str())
            .bind(key.as_str())
            .bind(r#"{"x": "a\nb"}"#)
            .execute(connection)
            .await
            .expect("the row is written");
    }
}

landfall_testkit::database_conformance!(MySqlFixture);
