//! Text payloads that plain SQL writes into `payload_text`.

use std::time::Duration;

use landfall_core::adapter::{Decision, OutboxEntry};
use landfall_core::{Database, ErrorCode, OutboxQueue, OutboxState, OutboxView};

use super::harness::{LONG, TIMEOUT, settlement};
use super::{DatabaseFixture, Harness};
use crate::conformance::sample::keyed;
use crate::eventually;

/// What a bytea literal corrupts or refuses, and what needs more than one byte.
const TEXTS: [&str; 8] = [
    r#"{"path":"a\\b"}"#,
    r"\x00 and \134",
    "Zoë",
    "two\nlines\tand a tab",
    r#"{"it's": [1, 2.50, null, "\u00e9"]}"#,
    "😀",
    " ",
    "",
];

async fn execute<F: DatabaseFixture>(harness: &Harness<F>, statement: &str) -> Result<(), String> {
    let mut transaction = harness.database.begin().await.unwrap();
    harness.fixture.execute_text(&mut transaction, statement).await?;
    harness.database.commit(transaction).await.unwrap();
    Ok(())
}

async fn insert_text<F: DatabaseFixture>(harness: &Harness<F>, text: &str) {
    let text = text.replace('\'', "''");
    let insert = format!("INSERT INTO landfall_outbox (topic, {{key}}, payload_text) VALUES ('orders', 'a', '{text}')");
    execute(harness, &insert).await.unwrap();
}

fn payload(entry: &OutboxEntry) -> &[u8] {
    &entry.message.as_ref().unwrap().payload
}

pub async fn text_payload_arrives_byte_for_byte<F: DatabaseFixture>(harness: Harness<F>) {
    for text in TEXTS {
        insert_text(&harness, text).await;
    }
    let leases = harness.lease_all("one").await;
    let due = harness.due(&leases).await;
    assert_eq!(due.iter().map(payload).collect::<Vec<_>>(), TEXTS.map(str::as_bytes));
    let shown = harness.database.show(due[0].message_id).await.unwrap();
    assert_eq!((&shown[0].payload[..], shown[0].row.payload_bytes), (TEXTS[0].as_bytes(), TEXTS[0].len() as u64));

    let published: Vec<_> = due.iter().map(|entry| settlement(entry, Decision::Published)).collect();
    assert_eq!(harness.database.settle(&leases, &published).await.unwrap().len(), TEXTS.len());
    assert!(harness.due(&leases).await.is_empty());
}

pub async fn text_payload_is_parked_and_redriven_unchanged<F: DatabaseFixture>(harness: Harness<F>) {
    insert_text(&harness, TEXTS[0]).await;
    insert_text(&harness, TEXTS[2]).await;
    let leases = harness.lease_all("one").await;
    let due = harness.due(&leases).await;
    let retry = Decision::Retry { after: Duration::from_millis(1), error: "not yet".into() };
    harness.database.settle(&leases, &[settlement(&due[0], retry)]).await.unwrap();
    let mut due = Vec::new();
    eventually(TIMEOUT, "the message is due again", async || {
        due = harness.due(&leases).await;
        !due.is_empty()
    })
    .await;
    assert_eq!(payload(&due[0]), TEXTS[0].as_bytes());
    let park = Decision::Park { code: ErrorCode::TOO_LARGE, error: "too large".into(), holds_key: true };
    harness.database.settle(&leases, &[settlement(&due[0], park)]).await.unwrap();
    assert!(harness.due(&leases).await.is_empty(), "the key is not held");
    assert_eq!(&harness.letters().await[0].payload[..], TEXTS[0].as_bytes());
    assert_eq!(&harness.database.show(due[0].message_id).await.unwrap()[0].payload[..], TEXTS[0].as_bytes());

    harness.redrive_all().await;
    let due = harness.due(&leases).await;
    assert_eq!(due.iter().map(payload).collect::<Vec<_>>(), [TEXTS[0].as_bytes(), TEXTS[2].as_bytes()]);
}

pub async fn sent_text_payload_is_kept_as_bytes<F: DatabaseFixture>(harness: Harness<F>) {
    let keeping = harness.fixture.open_keeping_sent(LONG).await;
    insert_text(&harness, TEXTS[2]).await;
    let leases = harness.lease_all("one").await;
    let due = OutboxQueue::next(&keeping, &leases, 10).await.unwrap();
    let published = [settlement(&due[0], Decision::Published)];
    assert_eq!(OutboxQueue::settle(&keeping, &leases, &published).await.unwrap().len(), 1);
    let shown = keeping.show(due[0].message_id).await.unwrap();
    assert_eq!((shown[0].row.state, &shown[0].payload[..]), (OutboxState::Sent, TEXTS[2].as_bytes()));
}

/// The table refuses the row, or the relay parks it with the reason. Either way its predecessor is published.
pub async fn row_without_exactly_one_payload_is_refused_or_parked<F: DatabaseFixture>(harness: Harness<F>) {
    for (key, columns, values) in [("both", ", payload, payload_text", ", 'x', 'y'"), ("neither", "", "")] {
        harness.enqueue(&[keyed(key, 1)]).await;
        let insert =
            format!("INSERT INTO landfall_outbox (topic, {{key}}{columns}) VALUES ('orders', '{key}'{values})");
        let inserted = execute(&harness, &insert).await;
        let leases = harness.lease_all("one").await;
        let due = harness.due(&leases).await;
        assert!(due[0].message.is_ok(), "the predecessor cannot be published");
        harness.database.settle(&leases, &[settlement(&due[0], Decision::Published)]).await.unwrap();
        let reason = match inserted {
            Err(refusal) => refusal,
            Ok(()) => {
                let error = due[1].message.as_ref().unwrap_err().to_string();
                let park = Decision::Park { code: ErrorCode::VALIDATION, error: error.clone(), holds_key: true };
                harness.database.settle(&leases, &[settlement(&due[1], park.clone())]).await.unwrap();
                let letters = harness.letters().await;
                assert!(letters.iter().any(|letter| letter.message_id == due[1].message_id && letter.error == error));
                // Redriven, it is still not a message.
                harness.redrive_all().await;
                let due = harness.due(&leases).await;
                assert!(due.iter().all(|entry| entry.message.is_err()));
                let parks: Vec<_> = due.iter().map(|entry| settlement(entry, park.clone())).collect();
                assert_eq!(harness.database.settle(&leases, &parks).await.unwrap().len(), parks.len());
                error
            }
        };
        assert!(reason.contains("payload_text"), "{reason}");
    }
}
