//! A row that can never be published holds the rows after it, not those before it.

use landfall::relay::{Options, Relay};
use landfall::{Broker, DeadLetterFilter, ErrorCode};
use landfall_testkit::{Fault, eventually};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::database::TestDatabase;
use crate::fixture::{Fixture, QUICK, TIMEOUT};

/// Rows of one key, written by plain SQL in one transaction. The second is not a valid message.
async fn insert_with_a_poison_row<D: TestDatabase>(fixture: &Fixture<D>) {
    // `key` is a reserved word of MySQL, and backticks are not quotes in PostgreSQL.
    let key = if D::ERRORS_BREAK { "key" } else { "`key`" };
    let insert = format!(
        "INSERT INTO landfall_outbox (topic, {key}, headers, payload) VALUES
         ('orders', 'a', '{{}}', '1'), ('orders', 'a', '{{\"a\":1}}', 'poison'), ('orders', 'a', '{{}}', '3')"
    );
    fixture.database.run(&insert).await;
}

fn relay<D: TestDatabase>(fixture: &Fixture<D>) -> (CancellationToken, JoinHandle<landfall::Result<()>>) {
    let options = Options { backoff: QUICK, ..Options::default() };
    let relay = Relay::builder(fixture.database.clone(), fixture.broker.publisher()).options(options).build().unwrap();
    let stop = CancellationToken::new();
    (stop.clone(), tokio::spawn(relay.run(stop)))
}

/// Waits until the poison row is parked, and checks that its predecessor is published and its successor waits.
async fn only_the_successor_waits<D: TestDatabase>(fixture: Fixture<D>) {
    let (stop, relay) = relay(&fixture);
    eventually(TIMEOUT, "the poison row is parked", async || fixture.letters().await.len() == 1).await;
    eventually(TIMEOUT, "its predecessor is published", async || !fixture.broker.published().is_empty()).await;
    let published: Vec<_> = fixture.broker.published().into_iter().map(|(_, message)| message.payload).collect();
    assert_eq!(published, [&b"1"[..]]);
    let letter = &fixture.database.find(&DeadLetterFilter::default(), 10).await.unwrap()[0];
    assert_eq!((&letter.payload[..], letter.error_code.as_str()), (&b"poison"[..], ErrorCode::VALIDATION.as_str()));
    stop.cancel();
    relay.await.unwrap().unwrap();
}

async fn poison_row_does_not_block_its_predecessor<D: TestDatabase>(fixture: Fixture<D>) {
    insert_with_a_poison_row(&fixture).await;
    only_the_successor_waits(fixture).await;
}

async fn poison_row_waits_for_a_retrying_predecessor<D: TestDatabase>(fixture: Fixture<D>) {
    fixture.broker.fail_next(2, Fault::Refuse);
    insert_with_a_poison_row(&fixture).await;
    only_the_successor_waits(fixture).await;
}

crate::on_every_database!(poison_row_does_not_block_its_predecessor, poison_row_waits_for_a_retrying_predecessor);
