//! States and notes of failure groups.

use std::time::Duration;

use landfall_core::{
    DeadLetterFilter, DeadLetterGroup, DeadLetters, ErrorKind, GroupChange, GroupState, LetterGroups, Timestamp,
};

use super::harness::TIMEOUT;
use super::{DatabaseFixture, Harness};
use crate::conformance::sample::{group, keyed};
use crate::eventually;

impl<F: DatabaseFixture> Harness<F> {
    async fn groups(&self, state: Option<GroupState>) -> Vec<DeadLetterGroup> {
        let filter = DeadLetterFilter { group_state: state, ..DeadLetterFilter::default() };
        self.database.dead_letter_groups(&filter, 10).await.unwrap()
    }

    /// Parks a letter and returns its group.
    async fn one_group(&self) -> DeadLetterGroup {
        self.park(&group("stock"), &keyed("a", 1)).await;
        self.groups(None).await.remove(0)
    }

    async fn change(&self, fingerprint: &str, change: GroupChange, note: &str) -> GroupState {
        self.database.change_group(fingerprint, change, note, "alice").await.unwrap().state
    }

    async fn group_actions(&self) -> Vec<String> {
        let rows = self.audit().await.into_iter().filter(|row| row.action.starts_with("group-"));
        rows.map(|row| format!("{} {}", row.actor, row.action)).collect()
    }
}

pub async fn group_has_a_state_and_a_note<F: DatabaseFixture>(harness: Harness<F>) {
    let before = harness.one_group().await;
    assert_eq!((before.state, before.note.as_str(), before.last_hour, before.last_day), (GroupState::Open, "", 1, 1));
    let fingerprint = before.fingerprint.as_str();
    for _ in 0..2 {
        let state = harness.change(fingerprint, GroupChange::Acknowledge, "see INC-42").await;
        assert_eq!(state, GroupState::Acknowledged);
    }
    let acknowledged = harness.groups(Some(GroupState::Acknowledged)).await;
    assert_eq!((acknowledged.len(), acknowledged[0].note.as_str()), (1, "see INC-42"));
    assert!(harness.groups(Some(GroupState::Open)).await.is_empty());
    harness.change(fingerprint, GroupChange::Reopen, "").await;
    assert_eq!(harness.groups(Some(GroupState::Open)).await[0].note, "see INC-42", "the note was lost");
    harness.change(fingerprint, GroupChange::Note, "").await;
    assert_eq!(harness.groups(None).await, std::slice::from_ref(&before));
    let expected = ["alice group-acknowledge", "alice group-reopen", "alice group-note"];
    assert_eq!(harness.group_actions().await, expected, "a repetition was audited");
    let error = harness.database.change_group("1-0", GroupChange::Resolve, "", "alice").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
}

pub async fn resolved_group_regresses_with_a_new_letter<F: DatabaseFixture>(harness: Harness<F>) {
    let (stock, fingerprint) = (group("stock"), harness.one_group().await.fingerprint);
    let other = keyed("c", 1);
    harness.park(&stock, &other).await;
    harness.redrive(&other).await;
    // The clock of the database moves on by a millisecond.
    tokio::time::sleep(Duration::from_millis(20)).await;
    harness.change(&fingerprint, GroupChange::Resolve, "").await;
    assert_eq!(harness.groups(None).await[0].state, GroupState::Resolved);
    tokio::time::sleep(Duration::from_millis(20)).await;
    harness.fail_with(&stock, "another error").await;
    let resolved = harness.groups(Some(GroupState::Resolved)).await;
    assert_eq!(resolved.len(), 1, "a letter of another group changed it");
    harness.park(&stock, &keyed("b", 1)).await;
    assert_eq!(harness.groups(Some(GroupState::Regressed)).await.len(), 1);
    assert_eq!(harness.groups(Some(GroupState::Regressed)).await.len(), 1);
    assert_eq!(harness.group_actions().await, ["alice group-resolve", "landfall group-regress"]);
    tokio::time::sleep(Duration::from_millis(20)).await;
    harness.change(&fingerprint, GroupChange::Resolve, "").await;
    assert_eq!(harness.groups(Some(GroupState::Resolved)).await.len(), 1, "old letters made it regress again");
}

pub async fn muted_group_opens_when_its_time_is_over<F: DatabaseFixture>(harness: Harness<F>) {
    let fingerprint = harness.one_group().await.fingerprint;
    let at = |ms| Timestamp::from_millis(Timestamp::now().as_millis() + ms);
    let past = GroupChange::Mute { until: at(-1000) };
    let error = harness.database.change_group(&fingerprint, past, "", "alice").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    harness.change(&fingerprint, GroupChange::Mute { until: at(3_600_000) }, "").await;
    let muted = harness.groups(Some(GroupState::Muted)).await;
    assert!(muted.len() == 1 && muted[0].muted_until.is_some());
    harness.change(&fingerprint, GroupChange::Mute { until: at(300) }, "").await;
    eventually(TIMEOUT, "the group is open", async || harness.groups(Some(GroupState::Open)).await.len() == 1).await;
    assert_eq!(harness.groups(None).await[0].muted_until, None);
    let expected = ["alice group-mute", "alice group-mute", "landfall group-reopen"];
    assert_eq!(harness.group_actions().await, expected);
}
