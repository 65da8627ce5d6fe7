//! Import of an existing outbox table, from its rows to the broker.

use std::sync::Arc;
use std::time::Duration;

use landfall::import::{ImportOrder, Importer, Mapping, Options, TableName};
use landfall::{DeadLetterFilter, DeadLetters, Leases};
use landfall_testkit::eventually;
use tokio::task::JoinHandle;

use crate::fixture::{Fixture, TIMEOUT};

impl Fixture {
    async fn import(&self) -> JoinHandle<landfall::Result<()>> {
        let options = Options { lease_ttl: Duration::from_millis(600), batch: 3, ..Options::default() };
        let database = Arc::new(self.database.clone());
        let mapping = Mapping::debezium(TableName::new("outbox").unwrap()).unwrap();
        let importer = Importer::new(&*database, database.clone(), mapping, options).await.unwrap();
        assert_eq!(importer.order(), &ImportOrder::Known("rowid".into()));
        tokio::spawn(importer.run(self.stop.child_token()))
    }

    async fn with_table() -> Self {
        let fixture = Self::new().await;
        let table =
            "CREATE TABLE outbox (id TEXT PRIMARY KEY, aggregatetype TEXT, aggregateid TEXT, type TEXT, payload)";
        sqlx::query(table).execute(fixture.database.pool()).await.unwrap();
        fixture
    }

    async fn write(&self, kind: Option<&str>, payload: &str) {
        sqlx::query("INSERT INTO outbox VALUES (?, ?, 'k', 'Placed', ?)")
            .bind(row_id(payload))
            .bind(kind)
            .bind(payload)
            .execute(self.database.pool())
            .await
            .unwrap();
    }
}

fn row_id(payload: &str) -> String {
    format!("row-{payload}")
}

#[tokio::test(flavor = "multi_thread")]
async fn imported_rows_are_published_in_order_and_invalid_ones_parked() {
    let fixture = Fixture::with_table().await;
    for number in 0..20 {
        fixture.write(Some("Order"), &number.to_string()).await;
    }
    fixture.write(None, "bad").await;
    let (relay, import) = (fixture.relay(), fixture.import().await);
    eventually(TIMEOUT, "published and parked", async || {
        let stats = fixture.stats().await;
        (stats.published, stats.parked) == (20, 1)
    })
    .await;
    assert_eq!(fixture.published(), (0..20).map(|number| number.to_string()).collect::<Vec<_>>());

    let letters = fixture.database.find(&DeadLetterFilter::default(), 10).await.unwrap();
    assert_eq!(letters[0].error_code, "VALIDATION_ERROR");
    assert!(letters[0].error.contains("column aggregatetype is null"), "{}", letters[0].error);
    let contents = String::from_utf8(letters[0].payload.to_vec()).unwrap();
    assert!(contents.contains(r#""payload":"bad""#) && contents.contains(r#""id":"row-bad""#), "{contents}");

    // After a redrive it is still invalid and is parked again.
    fixture.database.redrive(&DeadLetterFilter::default(), "test").await.unwrap();
    eventually(TIMEOUT, "parked again", async || {
        let letters = fixture.database.find(&DeadLetterFilter::default(), 10).await.unwrap();
        letters.len() == 1 && letters[0].redrives == 1 && letters[0].status.as_str() == "parked"
    })
    .await;
    fixture.stop.cancel();
    import.await.unwrap().unwrap();
    relay.await.unwrap().unwrap();
    assert!(fixture.database.held("import/").await.unwrap().is_empty(), "the lease is released");
}

#[tokio::test(flavor = "multi_thread")]
async fn second_importer_takes_over_from_a_dead_one() {
    let fixture = Fixture::with_table().await;
    let (first, second) = (fixture.import().await, fixture.import().await);
    fixture.write(Some("Order"), "1").await;
    let relay = fixture.relay();
    eventually(TIMEOUT, "the first row", async || fixture.stats().await.published == 1).await;
    // An aborted importer does not release its lease.
    first.abort();
    fixture.write(Some("Order"), "2").await;
    eventually(TIMEOUT, "the row after the takeover", async || fixture.stats().await.published == 2).await;
    second.abort();
    let third = fixture.import().await;
    fixture.write(Some("Order"), "3").await;
    eventually(TIMEOUT, "the row after the second takeover", async || fixture.stats().await.published == 3).await;
    assert_eq!(fixture.published(), ["1", "2", "3"]);
    fixture.stop.cancel();
    third.await.unwrap().unwrap();
    relay.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_column_stops_the_importer_with_an_error() {
    let fixture = Fixture::with_table().await;
    let import = fixture.import().await;
    sqlx::query("ALTER TABLE outbox RENAME COLUMN aggregatetype TO kind")
        .execute(fixture.database.pool())
        .await
        .unwrap();
    sqlx::query("INSERT INTO outbox (id) VALUES ('1')").execute(fixture.database.pool()).await.unwrap();
    let ended = tokio::time::timeout(TIMEOUT, import).await.expect("the importer stops").unwrap();
    ended.unwrap_err();
}
