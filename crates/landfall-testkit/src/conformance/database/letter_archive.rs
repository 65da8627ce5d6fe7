//! Dead letters that leave the database for an archive, and come back.

use std::time::Duration;

use landfall_core::adapter::Decision;
use landfall_core::{
    ArchivableLetters, ArchivedLetter, AuditFilter, AuditTrail, Database, DeadLetterFilter, DeadLetterStatus,
    DeadLetters, ErrorCode, Expiring, Housekeeping, RestoredLetters,
};

use super::harness::{LONG, TIMEOUT};
use super::{DatabaseFixture, Harness};
use crate::conformance::sample::{group, keyed};
use crate::eventually;

const PLACE: &str = "dead-letters/1.jsonl.zst";

impl<F: DatabaseFixture> Harness<F> {
    async fn old(&self, count: usize) -> Vec<ArchivedLetter> {
        let mut old = Vec::new();
        eventually(TIMEOUT, "old dead letters", async || {
            old = self.database.old_letters(Duration::ZERO, 100).await.unwrap();
            old.len() == count
        })
        .await;
        old
    }

    /// Stores a done letter, an edited and discarded one, one of the relay, and one that stays parked.
    async fn finished_letters(&self) -> Vec<ArchivedLetter> {
        let stock = group("stock");
        let (done, discarded, relayed) = (keyed("done", 1), keyed("discarded", 1), keyed("relay", 1));
        self.park(&stock, &done).await;
        self.redrive(&done).await;
        self.drain(&stock).await;
        self.park(&stock, &discarded).await;
        self.database.edit(self.letter(&discarded).await.id, b"\xff\x00 edited", "alice").await.unwrap();
        self.discard(&discarded).await;
        self.enqueue(std::slice::from_ref(&relayed)).await;
        let leases = self.lease_all("one").await;
        let decision = Decision::Park { code: ErrorCode::TOO_LARGE, error: "too large".into(), holds_key: true };
        self.settle(&leases, &relayed, decision).await;
        self.discard(&relayed).await;
        self.park(&stock, &keyed("parked", 1)).await;
        self.old(3).await
    }

    async fn remove(&self, letters: &[ArchivedLetter]) -> u64 {
        let ids: Vec<_> = letters.iter().map(|letter| letter.id).collect();
        self.database.remove_archived_letters(&ids, PLACE, "housekeeping").await.unwrap()
    }

    async fn restore(&self, letters: &[ArchivedLetter]) -> RestoredLetters {
        self.database.restore_letters(letters, PLACE, "bob").await.unwrap()
    }

    async fn run(&self, statement: &str) {
        let mut transaction = self.database.begin().await.unwrap();
        self.fixture.execute_text(&mut transaction, statement).await.unwrap();
        self.database.commit(transaction).await.unwrap();
    }
}

fn ids(letters: &[ArchivedLetter]) -> Vec<i64> {
    letters.iter().map(|letter| letter.id).collect()
}

/// Without the rows that the archive itself adds.
fn before_archive(mut letters: Vec<ArchivedLetter>) -> Vec<ArchivedLetter> {
    for letter in &mut letters {
        letter.history.retain(|row| !matches!(row.action.as_str(), "archive" | "restore"));
    }
    letters
}

pub async fn final_letters_are_archived_with_their_history<F: DatabaseFixture>(harness: Harness<F>) {
    let old = harness.finished_letters().await;
    assert!(harness.database.old_letters(LONG, 100).await.unwrap().is_empty(), "they are not old yet");
    assert_eq!(harness.database.old_letters(Duration::ZERO, 1).await.unwrap().len(), 1);
    let discarded = old.iter().find(|letter| letter.key.as_deref() == Some("discarded")).unwrap();
    assert!(discarded.discarded && &discarded.payload[..] == b"\xff\x00 edited");
    assert_eq!(discarded.original_payload.as_deref(), Some(&b"discarded/1"[..]));
    let actions: Vec<_> = discarded.history.iter().map(|row| row.action.as_str()).collect();
    assert_eq!(actions, ["park", "edit", "discard"]);
    let relayed = old.iter().find(|letter| letter.group.is_empty()).unwrap();
    assert!(relayed.outbox_id.is_some());

    assert_eq!(harness.remove(&old).await, 3);
    assert_eq!(harness.remove(&old).await, 0, "a repetition removes nothing");
    let left: Vec<_> = harness.letters().await.iter().map(|letter| letter.status).collect();
    assert_eq!(left, [DeadLetterStatus::Parked]);
    let archived = harness.audit().await.into_iter().filter(|row| row.action == "archive");
    assert_eq!(archived.count(), 3, "each removal is audited once");
}

pub async fn open_letter_is_never_archived<F: DatabaseFixture>(harness: Harness<F>) {
    let parked = keyed("a", 1);
    harness.park(&group("stock"), &parked).await;
    let id = harness.letter(&parked).await.id;
    assert_eq!(harness.database.remove_archived_letters(&[id], PLACE, "housekeeping").await.unwrap(), 0);
    assert_eq!(harness.letters().await.len(), 1);
}

pub async fn restored_letters_are_the_archived_ones<F: DatabaseFixture>(harness: Harness<F>) {
    let old = harness.finished_letters().await;
    let any = DeadLetterFilter { status: None, ..DeadLetterFilter::default() };
    let before = format!("{:?}", harness.database.find(&any, 100).await.unwrap());
    harness.remove(&old).await;
    harness.run("DELETE FROM landfall_audit").await;
    let done = harness.restore(&old).await;
    assert_eq!(done, RestoredLetters { restored: ids(&old), present: vec![] });
    assert_eq!(format!("{:?}", harness.database.find(&any, 100).await.unwrap()), before);
    let again = harness.old(3).await;
    assert_eq!(before_archive(again), old);
}

pub async fn repeated_restore_changes_nothing<F: DatabaseFixture>(harness: Harness<F>) {
    let old = harness.finished_letters().await;
    // One of them was not removed: the removal crashed.
    harness.remove(&old[1..]).await;
    assert_eq!(harness.restore(&old).await, RestoredLetters { restored: ids(&old[1..]), present: ids(&old[..1]) });
    let audit = harness.audit().await;
    assert_eq!(audit.iter().filter(|row| row.action == "restore" && row.actor == "bob").count(), 2);
    assert_eq!(harness.restore(&old).await, RestoredLetters { restored: vec![], present: ids(&old) });
    assert_eq!(harness.audit().await, audit);

    // Archived and restored once more, its history is not doubled.
    harness.remove(&old).await;
    harness.restore(&old).await;
    let filter = AuditFilter { dead_letter: Some(old[2].id), ..AuditFilter::default() };
    let rows = harness.database.audit_entries(&filter, 100).await.unwrap();
    let parks = rows.iter().filter(|row| row.action == "park").count();
    assert_eq!(parks, 1, "{rows:?}");
}

pub async fn restored_letter_gets_another_id_if_its_own_is_taken<F: DatabaseFixture>(harness: Harness<F>) {
    let mut old = harness.finished_letters().await;
    let parked = harness.letter(&harness_message(&harness).await).await.id;
    harness.remove(&old).await;
    // As from another database: one id is another letter's, one is not assigned yet.
    old[0].id = parked;
    old[1].id = 1_000_000_000;
    old[1].history[0].id = 2_000_000_000;
    let done = harness.restore(&old).await.restored;
    assert_eq!(done.len(), 3);
    assert_ne!(done[0], parked);
    for number in 0..3 {
        harness.park(&group("stock"), &keyed(&format!("later{number}"), 1)).await;
    }
    let filter = AuditFilter { dead_letter: Some(done[0]), ..AuditFilter::default() };
    let rows = harness.database.audit_entries(&filter, 100).await.unwrap();
    assert_eq!(rows.last().map(|row| row.action.as_str()), Some("restore"), "{rows:?}");
    assert!(rows.len() > 1, "the history follows the letter: {rows:?}");
    assert_eq!(harness.restore(&old).await.restored, Vec::<i64>::new());
}

async fn harness_message<F: DatabaseFixture>(harness: &Harness<F>) -> landfall_core::Message {
    let filter = DeadLetterFilter { status: Some(DeadLetterStatus::Parked), ..DeadLetterFilter::default() };
    let letter = harness.database.find(&filter, 1).await.unwrap().remove(0);
    landfall_core::Message::new(letter.topic, letter.payload).with_id(letter.message_id)
}

/// The letter was done long ago, and restored just now.
pub async fn restored_letter_is_kept_for_the_full_retention<F: DatabaseFixture>(harness: Harness<F>) {
    let mut old = harness.finished_letters().await;
    harness.remove(&old).await;
    for letter in &mut old {
        letter.last_attempt -= LONG.as_millis() as i64;
        letter.done_at = letter.done_at.map(|at| at - LONG.as_millis() as i64);
    }
    harness.restore(&old).await;
    let half = LONG / 2;
    assert!(harness.database.old_letters(half, 100).await.unwrap().is_empty());
    assert_eq!(harness.database.remove_expired(Expiring::DoneLetters, half, 100).await.unwrap(), 0);
    harness.run("UPDATE landfall_dead_letter SET restored_at = 1").await;
    assert_eq!(harness.database.old_letters(half, 100).await.unwrap().len(), 3);
    assert_eq!(harness.database.remove_expired(Expiring::DoneLetters, half, 100).await.unwrap(), 3);
}
