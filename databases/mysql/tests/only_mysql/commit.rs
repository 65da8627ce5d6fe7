//! Outcomes of a commit.

use landfall_core::{Database, ErrorKind, OutboxFilter, OutboxView, OutboxWriter};

use crate::stage::{SOON, lock_transaction_list, message, migrated};

/// After a deadlock the connection commits every statement separately. A caller that ignored the error must get
/// another.
#[tokio::test]
async fn commit_after_a_server_rollback_fails() {
    let Some(database) = migrated().await else { return };
    let mut transaction = database.begin().await.unwrap();
    database.enqueue(&mut transaction, &[message("a", 1)]).await.unwrap();
    // As after a deadlock.
    sqlx::raw_sql("ROLLBACK").execute(&mut *transaction).await.unwrap();
    let error = database.commit(transaction).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    assert!(database.list(&OutboxFilter::default(), 10).await.unwrap().is_empty());
}

#[tokio::test]
async fn create_table_inside_a_transaction_fails_its_commit() {
    let Some(database) = migrated().await else { return };
    let mut transaction = database.begin().await.unwrap();
    sqlx::raw_sql("CREATE TABLE pet (id INT)").execute(&mut *transaction).await.unwrap();
    let error = database.commit(transaction).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    assert!(error.to_string().contains("CREATE TABLE"), "{error}");
}

/// The default is REPEATABLE READ, whose gap locks make writers wait.
#[tokio::test]
async fn every_transaction_is_read_committed() {
    let Some(database) = migrated().await else { return };
    let mut transaction = database.begin().await.unwrap();
    database.enqueue(&mut transaction, &[message("a", 1)]).await.unwrap();
    let statement = "SELECT trx_isolation_level FROM information_schema.innodb_trx
                     WHERE trx_mysql_thread_id = CONNECTION_ID()";
    let mut level: Option<String> = None;
    landfall_testkit::eventually(SOON, "the transaction is listed", async || {
        let _turn = lock_transaction_list().await;
        level = sqlx::query_scalar(statement).fetch_optional(&mut *transaction).await.unwrap();
        level.is_some()
    })
    .await;
    assert_eq!(level.as_deref(), Some("READ COMMITTED"));
}
