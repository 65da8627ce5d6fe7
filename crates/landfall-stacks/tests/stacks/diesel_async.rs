use diesel::sql_query;
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl};
use landfall_core::{ErrorKind, TablePrefix};
use landfall_stacks::diesel_async::Outbox;

use crate::stage::{Stage, elaborate, many, plain, too_large};

type Failure = Box<dyn std::error::Error + Send + Sync>;

async fn connect(stage: &Stage) -> AsyncPgConnection {
    AsyncPgConnection::establish(&stage.url).await.unwrap()
}

#[tokio::test]
async fn committed_messages_are_stored_unchanged() {
    let Some(stage) = Stage::new().await else { return };
    let mut connection = connect(&stage).await;
    let (one, several) = (elaborate(), [plain(), elaborate()]);

    let committed = connection.transaction::<(), Failure, _>(async |connection| {
        sql_query("INSERT INTO orders VALUES (1)").execute(connection).await?;
        Outbox::default().enqueue(connection, std::slice::from_ref(&one)).await?;
        Outbox::default().enqueue(connection, &several).await?;
        Outbox::default().enqueue(connection, &[]).await?;
        assert_eq!(stage.pending().await, 0, "nothing is visible before the commit");
        Ok(())
    });
    committed.await.unwrap();

    let [plain, second] = several;
    let mut due = stage.due().await;
    due.sort_by_key(|message| message.id);
    assert_eq!(due, [one, plain, second]);
    assert_eq!(stage.orders().await, 1);
}

#[tokio::test]
async fn rolled_back_messages_are_not_stored() {
    let Some(stage) = Stage::new().await else { return };
    let mut connection = connect(&stage).await;
    let rolled_back = connection.transaction::<(), Failure, _>(async |connection| {
        sql_query("INSERT INTO orders VALUES (1)").execute(connection).await?;
        Outbox::default().enqueue(connection, &[elaborate()]).await?;
        Err("the customer has changed their mind".into())
    });
    rolled_back.await.unwrap_err();
    assert_eq!((stage.orders().await, stage.pending().await), (0, 0));
}

#[tokio::test]
async fn messages_of_one_key_keep_their_order() {
    let Some(stage) = Stage::new().await else { return };
    let mut connection = connect(&stage).await;
    let committed = connection
        .transaction::<(), Failure, _>(async |connection| Ok(Outbox::default().enqueue(connection, &many()).await?));
    committed.await.unwrap();

    let sequences: Vec<_> = stage.due().await.iter().map(|message| message.sequence.unwrap()).collect();
    assert_eq!(sequences, (0..1203).collect::<Vec<_>>());
}

#[tokio::test]
async fn oversized_message_is_refused_before_any_write() {
    let Some(stage) = Stage::new().await else { return };
    let mut connection = connect(&stage).await;
    let committed = connection.transaction::<(), Failure, _>(async |connection| {
        let refused = Outbox::default().enqueue(connection, &[plain(), too_large()]).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid);
        // The driver was not called, so the transaction is still usable.
        Ok(Outbox::default().enqueue(connection, &[elaborate()]).await?)
    });
    committed.await.unwrap();
    assert_eq!(stage.pending().await, 1);
}

#[tokio::test]
async fn missing_tables_are_an_error() {
    let Some(stage) = Stage::new().await else { return };
    let mut connection = connect(&stage).await;
    let outbox = Outbox::new(&TablePrefix::new("elsewhere_").unwrap());
    let refused = outbox.enqueue(&mut connection, &[plain()]).await.unwrap_err();
    assert!(refused.to_string().contains("elsewhere_outbox"), "{refused}");
}

#[tokio::test]
async fn wake_ends_the_wait_of_a_relay() {
    let Some(stage) = Stage::new().await else { return };
    let mut connection = connect(&stage).await;
    stage.relay_sleeps().await;
    Outbox::default().wake(&mut connection).await.unwrap();
    stage.relay_wakes().await;
}
