//! The barrier in a file that cannot be written now.

use landfall_core::{BarrierWriter, Barriers, Database, HalfVerdict, MessageId, Schema, Timestamp};
use landfall_sqlite::{Options, Sqlite};

use crate::folder::TestFolder;

async fn enter(database: &Sqlite, id: MessageId) {
    let mut transaction = database.begin().await.unwrap();
    database.enter_barrier(&mut transaction, id).await.unwrap();
    database.commit(transaction).await.unwrap();
}

#[tokio::test]
async fn barrier_in_a_read_only_file_knows_commits_only() {
    let folder = TestFolder::new();
    let file = folder.path("orders.db");
    let database = Sqlite::open(file.to_str().unwrap(), Options::default()).await.unwrap();
    database.migrate().await.unwrap();
    let committed = MessageId::new();
    enter(&database, committed).await;
    let url = format!("sqlite://{}?mode=ro", file.display());
    let reader = Sqlite::open(&url, Options::default()).await.unwrap();
    assert_eq!(reader.ask_barrier(committed, Timestamp::now()).await.unwrap(), Some(HalfVerdict::Committed));
    assert_eq!(reader.ask_barrier(MessageId::new(), Timestamp::now()).await.unwrap(), None);
}

#[tokio::test]
async fn barrier_in_memory_is_unknown_while_a_transaction_is_open() {
    let database = Sqlite::open("sqlite::memory:", Options::default()).await.unwrap();
    database.migrate().await.unwrap();
    let id = MessageId::new();
    let mut transaction = database.begin().await.unwrap();
    database.enter_barrier(&mut transaction, id).await.unwrap();
    assert_eq!(database.ask_barrier(id, Timestamp::now()).await.unwrap(), None);
    database.commit(transaction).await.unwrap();
    assert_eq!(database.ask_barrier(id, Timestamp::now()).await.unwrap(), Some(HalfVerdict::Committed));
}
