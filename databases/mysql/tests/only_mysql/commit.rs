//! What a commit's answer means.

use landfall_core::{Database, ErrorKind, OutboxFilter, OutboxView, OutboxWriter};
use landfall_mysql::MySql;

use crate::stage::{SOON, message, migrated, turn_to_see_transactions};

async fn connection_id(transaction: &mut <MySql as Database>::Transaction) -> i64 {
    sqlx::query_scalar("SELECT CAST(CONNECTION_ID() AS SIGNED)").fetch_one(&mut **transaction).await.unwrap()
}

async fn is_there(database: &MySql, id: i64) -> bool {
    let statement = "SELECT COUNT(*) FROM information_schema.processlist WHERE id = ?";
    let found: i64 = sqlx::query_scalar(statement).bind(id).fetch_one(database.pool()).await.unwrap();
    found > 0
}

/// Nobody knows by the answer; a look at the outbox tells.
#[tokio::test]
async fn a_connection_killed_under_the_commit_is_unknown_and_a_look_tells() {
    let Some(database) = migrated().await else { return };
    let message = message("a", 1);
    let mut transaction = database.begin().await.unwrap();
    database.enqueue(&mut transaction, std::slice::from_ref(&message)).await.unwrap();
    let id = connection_id(&mut transaction).await;
    sqlx::query(sqlx::AssertSqlSafe(format!("KILL CONNECTION {id}"))).execute(database.pool()).await.unwrap();
    landfall_testkit::eventually(SOON, "the connection is gone", async || !is_there(&database, id).await).await;

    let error = database.commit(transaction).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unknown, "{error}");
    assert!(database.show(message.id).await.unwrap().is_empty(), "this time it did not happen");

    // The connection that is lost is not handed out again.
    let mut transaction = database.begin().await.unwrap();
    database.enqueue(&mut transaction, std::slice::from_ref(&message)).await.unwrap();
    database.commit(transaction).await.unwrap();
    assert_eq!(database.show(message.id).await.unwrap().len(), 1);
}

/// After a deadlock the connection commits statement by statement. A caller that swallowed the error must hear of it.
#[tokio::test]
async fn a_commit_after_the_server_rolled_back_is_an_error() {
    let Some(database) = migrated().await else { return };
    let mut transaction = database.begin().await.unwrap();
    database.enqueue(&mut transaction, &[message("a", 1)]).await.unwrap();
    // As a deadlock does.
    sqlx::raw_sql("ROLLBACK").execute(&mut *transaction).await.unwrap();
    let error = database.commit(transaction).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    assert!(database.list(&OutboxFilter::default(), 10).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_table_made_inside_a_transaction_is_noticed() {
    let Some(database) = migrated().await else { return };
    let mut transaction = database.begin().await.unwrap();
    sqlx::raw_sql("CREATE TABLE pet (id INT)").execute(&mut *transaction).await.unwrap();
    let error = database.commit(transaction).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    assert!(error.to_string().contains("CREATE TABLE"), "{error}");
}

#[tokio::test]
async fn connections_serve_many_transactions_one_after_the_other() {
    let Some(database) = migrated().await else { return };
    for sequence in 1..=20 {
        let mut transaction = database.begin().await.unwrap();
        database.enqueue(&mut transaction, &[message("a", sequence)]).await.unwrap();
        if sequence % 4 == 0 {
            drop(transaction);
        } else {
            database.commit(transaction).await.unwrap();
        }
    }
    assert_eq!(database.list(&OutboxFilter::default(), 100).await.unwrap().len(), 15);
    landfall_testkit::eventually(SOON, "no connection sits in a transaction", async || {
        let _turn = turn_to_see_transactions().await;
        let open: i64 = sqlx::query_scalar(
            "SELECT COUNT(*) FROM information_schema.innodb_trx trx
             JOIN information_schema.processlist process ON process.id = trx.trx_mysql_thread_id
             WHERE process.db = DATABASE() AND process.command = 'Sleep'",
        )
        .fetch_one(database.pool())
        .await
        .unwrap();
        open == 0
    })
    .await;
}

/// A session's default would be REPEATABLE READ, whose gap locks make writers wait.
#[tokio::test]
async fn every_transaction_names_its_isolation_level() {
    let Some(database) = migrated().await else { return };
    let mut transaction = database.begin().await.unwrap();
    database.enqueue(&mut transaction, &[message("a", 1)]).await.unwrap();
    let statement = "SELECT trx_isolation_level FROM information_schema.innodb_trx
                     WHERE trx_mysql_thread_id = CONNECTION_ID()";
    let mut level: Option<String> = None;
    landfall_testkit::eventually(SOON, "the transaction is listed", async || {
        let _turn = turn_to_see_transactions().await;
        level = sqlx::query_scalar(statement).fetch_optional(&mut *transaction).await.unwrap();
        level.is_some()
    })
    .await;
    assert_eq!(level.as_deref(), Some("READ COMMITTED"));
}
