//! Through PgBouncer in transaction mode: every statement may run on another server connection.

use landfall_core::adapter::{Admission, Decision, LeaseName};
use landfall_core::{
    Database, DeadLetterFilter, DeadLetters, ErrorCode, Expiring, GroupName, Holder, Housekeeping, ImportSource, Inbox,
    Leases, Mapping, OutboxControl, OutboxFilter, OutboxQueue, OutboxView, Schema, TableName,
};
use landfall_postgres::{Options, Postgres};
use landfall_testkit::eventually;
use landfall_testkit::servers::PgBouncer;

use crate::stage::{LONG, SOON, lease_all, message, publish_everything, settlement};

async fn connect(pooler: &PgBouncer) -> Postgres {
    let mut connected = None;
    eventually(SOON, "the pooler answers", async || {
        let options = Options { max_connections: 6, ..Options::default() };
        connected = Postgres::connect(pooler.url(), options).await.ok();
        connected.is_some()
    })
    .await;
    connected.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_works_through_a_pooler_in_transaction_mode() {
    let Some(pooler) = PgBouncer::fresh_database().await else { return };
    let database = connect(&pooler).await;
    assert!(database.migrate().await.unwrap());
    database.check().await.unwrap();
    let leases = lease_all(&database, "one", LONG).await;
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..8 {
        let database = if writer % 2 == 0 { database.clone() } else { connect(&pooler).await };
        writers.spawn(async move {
            for n in 1..=20 {
                database.append(&[message(&format!("k{writer}"), n), message("shared", n)]).await.unwrap();
            }
        });
    }
    let mut sent = Vec::new();
    while sent.len() < 320 {
        assert_eq!(database.renew(&leases, LONG).await.unwrap().len(), leases.len());
        let entries = database.next(&leases, 50).await.unwrap();
        let settlements: Vec<_> = entries.iter().map(|entry| settlement(entry, Decision::Published)).collect();
        assert_eq!(database.settle(&leases, &settlements).await.unwrap().len(), entries.len());
        sent.extend(entries.into_iter().map(|entry| entry.message.unwrap()));
        while let Some(ended) = writers.try_join_next() {
            ended.unwrap();
        }
        tokio::task::yield_now().await;
    }
    for writer in 0..8 {
        let key = format!("k{writer}");
        let of_key = sent.iter().filter(|message| message.key.as_ref().is_some_and(|found| found.as_str() == key));
        let numbers: Vec<_> = of_key.filter_map(|message| message.sequence).collect();
        assert_eq!(numbers, (1..=20).collect::<Vec<_>>(), "{key}");
    }
    what_fails_is_handled_too(&database).await;
}

async fn what_fails_is_handled_too(database: &Postgres) {
    let leases = lease_all(database, "one", LONG).await;
    database.append(&[message("a", 1), message("b", 1)]).await.unwrap();
    let entries = database.next(&leases, 10).await.unwrap();
    let park = Decision::Park { code: ErrorCode::TOO_LARGE, error: "too large".into(), holds_key: true };
    let retry = Decision::Retry { after: LONG, error: "busy".into() };
    let settlements = [settlement(&entries[0], park), settlement(&entries[1], retry)];
    assert_eq!(database.settle(&leases, &settlements).await.unwrap().len(), 2);
    assert_eq!(database.list(&OutboxFilter::default(), 10).await.unwrap().len(), 1);
    assert_eq!(database.retry(&[entries[1].row], "alice").await.unwrap(), [entries[1].row]);
    assert_eq!(database.redrive(&DeadLetterFilter::default(), "alice").await.unwrap().redriven.len(), 1);
    assert_eq!(database.find(&DeadLetterFilter::default(), 10).await.unwrap().len(), 1);
    assert_eq!(publish_everything(database, &leases).await.len(), 2);
    assert_eq!(database.stats().await.unwrap().published, 322);

    let (stock, handled) = (GroupName::new("stock").unwrap(), message("a", 1));
    for expected in [Admission::Fresh, Admission::Duplicate] {
        let mut transaction = database.begin().await.unwrap();
        assert_eq!(database.admit(&mut transaction, &stock, &handled, None).await.unwrap(), expected);
        database.commit(transaction).await.unwrap();
    }
    assert_eq!(database.remove_expired(Expiring::HandledIds, LONG, 10).await.unwrap(), 0);
    database.rotate().await.unwrap();
    database.release(&leases).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn existing_outbox_is_imported_through_a_pooler() {
    let Some(pooler) = PgBouncer::fresh_database().await else { return };
    let database = connect(&pooler).await;
    database.migrate().await.unwrap();
    sqlx::raw_sql(
        "CREATE TABLE outbox (id uuid PRIMARY KEY, aggregatetype varchar(255), aggregateid varchar(255),
            type varchar(255), payload jsonb)",
    )
    .execute(database.pool())
    .await
    .unwrap();
    // Several at once, on more connections than the pooler has: a statement may run on a connection that another client
    // has prepared statements on.
    let mut imports = tokio::task::JoinSet::new();
    for number in 0..6 {
        let database = connect(&pooler).await;
        imports.spawn(async move {
            let mapping = Mapping::debezium(TableName::new("outbox").unwrap()).unwrap();
            let import = database.prepare_import(mapping).await.unwrap();
            let holder = Holder(format!("holder-{number}"));
            let lease = LeaseName(format!("import/{number}"));
            let lease = database.acquire(&lease, &holder, LONG).await.unwrap().unwrap();
            for _ in 0..10 {
                let insert = "INSERT INTO outbox SELECT gen_random_uuid(), 'Order', '42', 'OrderPlaced', '{}'";
                sqlx::raw_sql(insert).execute(database.pool()).await.unwrap();
                while let Err(error) = import.import(&lease, 10).await {
                    assert!(error.is_temporary(), "{error}");
                }
            }
        });
    }
    imports.join_all().await;
    let leases = lease_all(&database, "one", LONG).await;
    eventually(SOON, "every row is imported", async || database.stats().await.unwrap().pending == 60).await;
    assert_eq!(publish_everything(&database, &leases).await.len(), 60);
}

#[tokio::test]
async fn unknown_pooler_mode_is_refused() {
    let error = Postgres::connect("postgres://h/x?pooler=session", Options::default()).await.unwrap_err();
    assert_eq!(error.kind(), landfall_core::ErrorKind::Invalid);
    assert!(error.to_string().contains("pooler=transaction"), "{error}");
}
