use landfall_core::{ErrorKind, TablePrefix};
use landfall_stacks::tokio_postgres::Outbox;
use tokio_postgres::{Client, NoTls};

use crate::stage::{Stage, elaborate, many, plain, too_large};

async fn connect(stage: &Stage) -> Client {
    let (client, connection) = tokio_postgres::connect(&stage.url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

#[tokio::test]
async fn committed_messages_are_stored_unchanged() {
    let Some(stage) = Stage::new().await else { return };
    let mut client = connect(&stage).await;
    let (one, several) = (elaborate(), [plain(), elaborate()]);

    let transaction = client.transaction().await.unwrap();
    transaction.execute("INSERT INTO orders VALUES (1)", &[]).await.unwrap();
    Outbox::default().enqueue(&transaction, std::slice::from_ref(&one)).await.unwrap();
    Outbox::default().enqueue(&transaction, &several).await.unwrap();
    Outbox::default().enqueue(&transaction, &[]).await.unwrap();
    assert_eq!(stage.pending().await, 0, "nothing is visible before the commit");
    transaction.commit().await.unwrap();

    let [plain, second] = several;
    let mut due = stage.due().await;
    due.sort_by_key(|message| message.id);
    assert_eq!(due, [one, plain, second]);
    assert_eq!(stage.orders().await, 1);
}

#[tokio::test]
async fn rolled_back_messages_are_not_stored() {
    let Some(stage) = Stage::new().await else { return };
    let mut client = connect(&stage).await;

    let transaction = client.transaction().await.unwrap();
    transaction.execute("INSERT INTO orders VALUES (1)", &[]).await.unwrap();
    Outbox::default().enqueue(&transaction, &[elaborate()]).await.unwrap();
    transaction.rollback().await.unwrap();
    // Dropping rolls back too, and so does a savepoint for what followed it.
    let mut transaction = client.transaction().await.unwrap();
    Outbox::default().enqueue(&transaction, &[plain()]).await.unwrap();
    let savepoint = transaction.transaction().await.unwrap();
    Outbox::default().enqueue(&savepoint, &many()).await.unwrap();
    savepoint.rollback().await.unwrap();
    transaction.commit().await.unwrap();
    drop(client.transaction().await.unwrap());

    assert_eq!((stage.orders().await, stage.pending().await), (0, 1));
}

#[tokio::test]
async fn messages_of_one_key_keep_their_order() {
    let Some(stage) = Stage::new().await else { return };
    let mut client = connect(&stage).await;
    let transaction = client.transaction().await.unwrap();
    Outbox::default().enqueue(&transaction, &many()).await.unwrap();
    transaction.commit().await.unwrap();

    let sequences: Vec<_> = stage.due().await.iter().map(|message| message.sequence.unwrap()).collect();
    assert_eq!(sequences, (0..1203).collect::<Vec<_>>());
}

#[tokio::test]
async fn oversized_message_is_refused_before_any_write() {
    let Some(stage) = Stage::new().await else { return };
    let mut client = connect(&stage).await;
    let transaction = client.transaction().await.unwrap();
    let refused = Outbox::default().enqueue(&transaction, &[plain(), too_large()]).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    // The driver was not called, so the transaction is still usable.
    Outbox::default().enqueue(&transaction, &[elaborate()]).await.unwrap();
    transaction.commit().await.unwrap();
    assert_eq!(stage.pending().await, 1);
}

#[tokio::test]
async fn missing_tables_are_a_schema_error() {
    let Some(stage) = Stage::new().await else { return };
    let mut client = connect(&stage).await;
    let transaction = client.transaction().await.unwrap();
    let outbox = Outbox::new(&TablePrefix::new("elsewhere_").unwrap());
    assert_eq!(outbox.enqueue(&transaction, &[plain()]).await.unwrap_err().kind(), ErrorKind::Schema);
}

#[tokio::test]
async fn wake_ends_the_wait_of_a_relay() {
    let Some(stage) = Stage::new().await else { return };
    let client = connect(&stage).await;
    stage.relay_sleeps().await;
    Outbox::default().wake(&client).await.unwrap();
    stage.relay_wakes().await;
}
