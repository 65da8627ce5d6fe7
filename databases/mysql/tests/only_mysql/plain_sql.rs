//! SQL writers: rows that cannot be messages.

use landfall_core::{OutboxFilter, OutboxView};

use crate::stage::migrated;

/// A session that is not strict cuts long texts. It must not cut a key, which would then be another one.
#[tokio::test]
async fn invalid_messages_are_refused_in_every_sql_mode() {
    let Some(database) = migrated().await else { return };
    let cases = [
        "INSERT INTO landfall_outbox (topic, payload) VALUES ('a b', '')",
        "INSERT INTO landfall_outbox (topic, payload) VALUES ('a ', '')",
        "INSERT INTO landfall_outbox (topic, payload) VALUES ('', '')",
        "INSERT INTO landfall_outbox (topic, payload) VALUES ('..', '')",
        "INSERT INTO landfall_outbox (topic, payload) VALUES ('a\\nb', '')",
        "INSERT INTO landfall_outbox (topic, payload) VALUES ('b\\n', '')",
        "INSERT INTO landfall_outbox (topic, payload) VALUES ('größe', '')",
        "INSERT INTO landfall_outbox (topic, payload) VALUES (REPEAT('x', 250), '')",
        "INSERT INTO landfall_outbox (topic, `key`, payload) VALUES ('t', '', '')",
        "INSERT INTO landfall_outbox (topic, `key`, payload) VALUES ('t', REPEAT('k', 513), '')",
        "INSERT INTO landfall_outbox (topic, `key`, payload) VALUES ('t', REPEAT('k', 600), '')",
        "INSERT INTO landfall_outbox (topic, `key`, payload) VALUES ('t', REPEAT('ö', 300), '')",
        "INSERT INTO landfall_outbox (topic, kind, payload) VALUES ('t', REPEAT('k', 300), '')",
        "INSERT INTO landfall_outbox (topic, mode, payload) VALUES ('t', 'sometimes', '')",
        "INSERT INTO landfall_outbox (topic, headers, payload) VALUES ('t', 'no json', '')",
    ];
    let mut connection = database.pool().acquire().await.unwrap();
    for mode in ["SET sql_mode = 'STRICT_ALL_TABLES'", "SET sql_mode = ''"] {
        sqlx::raw_sql(mode).execute(&mut *connection).await.unwrap();
        for statement in cases {
            let error = sqlx::raw_sql(statement).execute(&mut *connection).await.expect_err(statement);
            assert!(error.as_database_error().is_some(), "{statement}: {error}");
        }
    }
    connection.close_on_drop();
    assert!(database.list(&OutboxFilter::default(), 10).await.unwrap().is_empty());
}
