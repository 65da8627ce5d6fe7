//! The record in the transaction of the work.

use std::collections::HashMap;
use std::sync::Arc;

use landfall::idempotency::{Answer, Error, IdempotencyRecords, InTransaction, RecordFilter};
use landfall::{OutboxView, OutboxWriter};
use landfall_sqlite::Sqlite;
use sqlx::SqliteConnection;
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinSet;

use super::{order, request};
use crate::fixture::{Fixture, message};

type Placed = Result<Answer<i64>, Error<sqlx::Error>>;

async fn shop() -> Fixture {
    let fixture = Fixture::new().await;
    sqlx::query("CREATE TABLE placed (n INTEGER PRIMARY KEY)").execute(fixture.database.pool()).await.unwrap();
    fixture
}

async fn insert(connection: &mut SqliteConnection) -> Result<i64, sqlx::Error> {
    let done = sqlx::query("INSERT INTO placed DEFAULT VALUES").execute(connection).await?;
    Ok(done.last_insert_rowid())
}

async fn placed(database: &Sqlite) -> i64 {
    sqlx::query_scalar("SELECT count(*) FROM placed").fetch_one(database.pool()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn record_rows_and_messages_are_one_commit() {
    let fixture = shop().await;
    // Two processes.
    let orders = [InTransaction::new(fixture.database.clone()), InTransaction::new(fixture.database.clone())];
    let mut calls = JoinSet::new();
    for number in 0..50 {
        let (orders, database) = (orders[number % 2].clone(), fixture.database.clone());
        calls.spawn(async move {
            let work = async |connection: &mut SqliteConnection| {
                database.enqueue(connection, &[message("a", 1)]).await.unwrap();
                insert(connection).await
            };
            let answer: Placed = orders.run(&order("1"), &request("first"), work).await;
            answer.unwrap()
        });
    }
    let answers = calls.join_all().await;
    assert!(answers.iter().all(|answer| answer.value == 1), "{answers:?}");
    assert_eq!((placed(&fixture.database).await, fixture.database.stats().await.unwrap().pending), (1, 1));
    let other: Placed = orders[0].run(&order("1"), &request("second"), async |_| Ok(9)).await;
    assert!(matches!(other, Err(Error::Mismatch)), "{other:?}");
}

#[tokio::test]
async fn failed_work_rolls_back_record_and_rows() {
    let fixture = shop().await;
    let orders = InTransaction::new(fixture.database.clone());
    let failed: Placed = orders
        .run(&order("1"), &request("first"), async |connection| {
            insert(connection).await?;
            Err(sqlx::Error::RowNotFound)
        })
        .await;
    assert!(matches!(failed, Err(Error::Work(sqlx::Error::RowNotFound))), "{failed:?}");
    assert_eq!(fixture.database.find_records(&RecordFilter::default(), 10).await.unwrap(), []);
    // The key is free, also for a corrected request.
    let placed_now: Placed = orders.run(&order("1"), &request("second"), async |c| insert(c).await).await;
    assert!(!placed_now.unwrap().is_replayed);
    assert_eq!(placed(&fixture.database).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn dropped_caller_leaves_nothing_behind() {
    let fixture = shop().await;
    let orders = InTransaction::new(fixture.database.clone());
    let (begun, never) = (Arc::new(Notify::new()), Arc::new(Semaphore::new(0)));
    let caller = tokio::spawn({
        let (orders, begun, never) = (orders.clone(), begun.clone(), never.clone());
        async move {
            let work = async |connection: &mut SqliteConnection| {
                let number = insert(connection).await?;
                begun.notify_one();
                never.acquire().await.unwrap().forget();
                Ok(number)
            };
            let answer: Placed = orders.run(&order("1"), &request("first"), work).await;
            answer
        }
    });
    begun.notified().await;
    caller.abort();
    assert!(caller.await.unwrap_err().is_cancelled());
    let next: Placed = orders.run(&order("1"), &request("first"), async |c| insert(c).await).await;
    assert!(!next.unwrap().is_replayed);
    assert_eq!(placed(&fixture.database).await, 1);
}

/// Nothing says that the work was not begun: it was, and the caller repeats the call to learn what became of it.
#[tokio::test]
async fn failed_commit_is_unconfirmed_and_a_repeat_runs() {
    let fixture = shop().await;
    let orders = InTransaction::new(fixture.database.clone());
    let child = "CREATE TABLE child (parent INTEGER REFERENCES placed (n) DEFERRABLE INITIALLY DEFERRED)";
    sqlx::query(child).execute(fixture.database.pool()).await.unwrap();
    for statement in ["INSERT INTO child VALUES (777)", "DELETE FROM landfall_idempotency"] {
        let failed: Placed = orders
            .run(&order("1"), &request("first"), async |connection| {
                let number = insert(&mut *connection).await?;
                sqlx::query(statement).execute(connection).await?;
                Ok(number)
            })
            .await;
        assert!(matches!(failed, Err(Error::Unconfirmed(_))), "{statement}: {failed:?}");
        assert!(!failed.unwrap_err().to_string().contains("not begun"));
        assert_eq!(placed(&fixture.database).await, 0, "{statement}");
    }
    let next: Placed = orders.run(&order("1"), &request("first"), async |c| insert(c).await).await;
    assert!(!next.unwrap().is_replayed);
}

#[tokio::test]
async fn value_that_is_no_json_or_was_another_type_is_named() {
    let fixture = shop().await;
    let orders = InTransaction::new(fixture.database.clone());
    type NoJson = HashMap<(u8, u8), u8>;
    let unstored: Result<Answer<NoJson>, Error<sqlx::Error>> = orders
        .run(&order("1"), &request("first"), async |connection| {
            insert(connection).await?;
            Ok(HashMap::from([((1, 2), 3)]))
        })
        .await;
    assert!(matches!(unstored, Err(Error::Value(_))), "{unstored:?}");
    assert_eq!(placed(&fixture.database).await, 0, "it is rolled back");
    let first: Placed = orders.run(&order("1"), &request("first"), async |c| insert(c).await).await;
    first.unwrap();
    let unread: Result<Answer<String>, Error<sqlx::Error>> =
        orders.run(&order("1"), &request("first"), async |_| Ok("again".into())).await;
    assert!(matches!(unread, Err(Error::Value(_))), "{unread:?}");
}
