//! Requests for rehearsals: what is asked, who answers, and how often.

use std::time::Duration;

use landfall_core::{DeadLetters, RehearsalResult, Rehearsals, Rehearsed};

use super::harness::TIMEOUT;
use super::{DatabaseFixture, Harness};
use crate::conformance::sample::{group, keyed};
use crate::eventually;

pub async fn only_parked_letters_are_rehearsed<F: DatabaseFixture>(harness: Harness<F>) {
    let (discarded, parked, ignored) = (keyed("a", 1), keyed("b", 1), keyed("c", 1));
    for message in [&discarded, &parked, &ignored] {
        harness.park(&group("billing"), message).await;
    }
    let letter = harness.letter(&parked).await;
    let ignored = harness.letter(&ignored).await.id;
    harness.database.ignore(ignored, "", "alice").await.unwrap();
    let ids = [harness.letter(&discarded).await.id, letter.id, ignored, 1_000_000];
    let id = harness.database.request_rehearsal(&ids, "alice").await.unwrap();
    let asked: Vec<_> = harness.database.rehearsal(id).await.unwrap().into_iter().map(|letter| letter.id).collect();
    assert_eq!(asked, ids[..2]);
    let audited = harness.audit().await.into_iter().filter(|row| row.action == "rehearse").count();
    assert_eq!(audited, 2);

    // Discarded before a consumer looks.
    harness.discard(&discarded).await;
    assert!(harness.database.claim_rehearsal(&group("other"), TIMEOUT).await.unwrap().is_none());
    let task = harness.database.claim_rehearsal(&group("billing"), TIMEOUT).await.unwrap().expect("the parked letter");
    assert_eq!((task.rehearsal, task.letter, task.attempts), (id, letter.id, letter.attempts));
    assert_eq!(task.message.id, parked.id);
    assert_eq!((&task.message.key, &task.message.payload), (&parked.key, &parked.payload));
    assert_eq!((&task.message.headers, task.message.mode), (&parked.headers, parked.mode));
    assert!(harness.database.claim_rehearsal(&group("billing"), TIMEOUT).await.unwrap().is_none(), "claimed twice");
    let left = harness.database.rehearsal(id).await.unwrap();
    assert_eq!(left.iter().map(|letter| letter.id).collect::<Vec<_>>(), [letter.id]);
}

pub async fn expired_claim_is_taken_over_and_fenced<F: DatabaseFixture>(harness: Harness<F>) {
    let message = keyed("a", 1);
    harness.park(&group("billing"), &message).await;
    let letter = harness.letter(&message).await.id;
    let id = harness.database.request_rehearsal(&[letter], "alice").await.unwrap();
    // The claim of a consumer that crashed.
    let short = Duration::from_millis(1);
    let lost = harness.database.claim_rehearsal(&group("billing"), short).await.unwrap().unwrap();
    let mut taken = None;
    eventually(TIMEOUT, "the claim expires", async || {
        taken = harness.database.claim_rehearsal(&group("billing"), TIMEOUT).await.unwrap();
        taken.is_some()
    })
    .await;
    let taken = taken.unwrap();
    let (late, succeeds) = (RehearsalResult::from(Rehearsed::Stale), RehearsalResult::from(Rehearsed::Succeeds));
    assert!(!harness.database.record_rehearsal(&lost, &late).await.unwrap());
    assert!(harness.database.record_rehearsal(&taken, &succeeds).await.unwrap());
    assert!(!harness.database.record_rehearsal(&taken, &late).await.unwrap(), "the first result is final");
    assert_eq!(harness.database.rehearsal(id).await.unwrap()[0].result, Some(succeeds));
    assert!(harness.database.claim_rehearsal(&group("billing"), TIMEOUT).await.unwrap().is_none());
}
