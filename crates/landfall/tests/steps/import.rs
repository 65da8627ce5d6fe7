//! An outbox that is already there, from its rows to the broker.

use std::sync::Arc;
use std::time::Duration;

use landfall::import::{ImportOrder, Importer, Mapping, Options, TableName};
use landfall::{DeadLetterFilter, DeadLetters, Leases};
use landfall_testkit::eventually;
use tokio::task::JoinHandle;

use crate::stage::{PATIENCE, Stage};

impl Stage {
    async fn import(&self) -> JoinHandle<landfall::Result<()>> {
        let options = Options { lease_ttl: Duration::from_millis(600), batch: 3, ..Options::default() };
        let database = Arc::new(self.database.clone());
        let mapping = Mapping::debezium(TableName::new("outbox").unwrap()).unwrap();
        let importer = Importer::new(&*database, database.clone(), mapping, options).await.unwrap();
        assert_eq!(importer.order(), &ImportOrder::Known("rowid".into()));
        tokio::spawn(importer.run(self.stop.child_token()))
    }

    async fn with_table() -> Self {
        let stage = Self::new().await;
        let table =
            "CREATE TABLE outbox (id TEXT PRIMARY KEY, aggregatetype TEXT, aggregateid TEXT, type TEXT, payload)";
        sqlx::query(table).execute(stage.database.pool()).await.unwrap();
        stage
    }

    async fn write(&self, kind: Option<&str>, payload: &str) {
        sqlx::query("INSERT INTO outbox VALUES (?, ?, 'k', 'Placed', ?)")
            .bind(uuid_of(payload))
            .bind(kind)
            .bind(payload)
            .execute(self.database.pool())
            .await
            .unwrap();
    }
}

fn uuid_of(payload: &str) -> String {
    format!("row-{payload}")
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_reach_the_broker_in_order_and_what_is_no_message_is_parked_with_its_contents() {
    let stage = Stage::with_table().await;
    for number in 0..20 {
        stage.write(Some("Order"), &number.to_string()).await;
    }
    stage.write(None, "bad").await;
    let (relay, import) = (stage.relay(), stage.import().await);
    eventually(PATIENCE, "published and parked", async || {
        let stats = stage.stats().await;
        (stats.published, stats.parked) == (20, 1)
    })
    .await;
    assert_eq!(stage.published(), (0..20).map(|number| number.to_string()).collect::<Vec<_>>());

    let letters = stage.database.find(&DeadLetterFilter::default(), 10).await.unwrap();
    assert_eq!(letters[0].error_code, "VALIDATION_ERROR");
    assert!(letters[0].error.contains("column aggregatetype is null"), "{}", letters[0].error);
    let contents = String::from_utf8(letters[0].payload.to_vec()).unwrap();
    assert!(contents.contains(r#""payload":"bad""#) && contents.contains(r#""id":"row-bad""#), "{contents}");

    // Redriven, it is no message either, and parked again.
    stage.database.redrive(&DeadLetterFilter::default(), "test").await.unwrap();
    eventually(PATIENCE, "parked again", async || {
        let letters = stage.database.find(&DeadLetterFilter::default(), 10).await.unwrap();
        letters.len() == 1 && letters[0].redrives == 1 && letters[0].status.as_str() == "parked"
    })
    .await;
    stage.stop.cancel();
    import.await.unwrap().unwrap();
    relay.await.unwrap().unwrap();
    assert!(stage.database.held("import/").await.unwrap().is_empty(), "the lease was given back");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_mover_takes_over_when_the_first_falls_silent() {
    let stage = Stage::with_table().await;
    let (first, second) = (stage.import().await, stage.import().await);
    stage.write(Some("Order"), "1").await;
    let relay = stage.relay();
    eventually(PATIENCE, "the first row", async || stage.stats().await.published == 1).await;
    // Whichever of them holds the lease: aborted, it gives nothing back.
    first.abort();
    stage.write(Some("Order"), "2").await;
    eventually(PATIENCE, "the row after the takeover", async || stage.stats().await.published == 2).await;
    second.abort();
    let third = stage.import().await;
    stage.write(Some("Order"), "3").await;
    eventually(PATIENCE, "the row after the second takeover", async || stage.stats().await.published == 3).await;
    assert_eq!(stage.published(), ["1", "2", "3"]);
    stage.stop.cancel();
    third.await.unwrap().unwrap();
    relay.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_column_that_disappears_ends_the_mover_with_an_error() {
    let stage = Stage::with_table().await;
    let import = stage.import().await;
    sqlx::query("ALTER TABLE outbox RENAME COLUMN aggregatetype TO kind").execute(stage.database.pool()).await.unwrap();
    sqlx::query("INSERT INTO outbox (id) VALUES ('1')").execute(stage.database.pool()).await.unwrap();
    let ended = tokio::time::timeout(PATIENCE, import).await.expect("it ends by itself").unwrap();
    ended.unwrap_err();
}
