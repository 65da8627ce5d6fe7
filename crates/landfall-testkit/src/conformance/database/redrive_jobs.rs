//! Redrive jobs: frozen selections, outcomes, guards, and runners that lost their lease.

use std::time::Duration;

use landfall_core::adapter::{Decision, Epoch};
use landfall_core::{
    ActiveRedrive, AuditFilter, AuditTrail, DeadLetterFilter, DispatchResult, ErrorCode, ErrorKind, ImmediateRedrive,
    JobFailure, JobLetterState, KeyRule, KeyRuleKind, KeyRules, Message, MessageId, OutboxQueue, RedriveControl,
    RedriveCounts, RedriveGuards, RedriveId, RedriveJob, RedriveLane, RedriveOptions, RedriveQueue, RedriveRequest,
    RedriveSelection, RedriveStarted, RedriveState, Redrives, StopRule, Timestamp,
};

use super::harness::{TIMEOUT, settlement};
use super::{DatabaseFixture, Harness};
use crate::conformance::sample::{group, keyed, series};

/// Guards that a case does not run into.
fn lenient() -> RedriveGuards {
    RedriveGuards { cool_down: Duration::ZERO, block_after: u32::MAX, max_redrives: u32::MAX, ..Default::default() }
}

fn request(selection: RedriveSelection) -> RedriveRequest {
    RedriveRequest {
        selection,
        options: RedriveOptions::new(RedriveLane::Slow),
        reason: "the stock is back".into(),
        shown: "{\"filter\":{}}".into(),
        given: None,
        expected: None,
    }
}

fn of_group(name: &str) -> RedriveSelection {
    RedriveSelection::Filter(Box::new(DeadLetterFilter { group: Some(group(name)), ..Default::default() }))
}

impl<F: DatabaseFixture> Harness<F> {
    async fn start(&self, selection: RedriveSelection) -> RedriveJob {
        match self.database.start_redrive(&request(selection), "alice").await.unwrap() {
            RedriveStarted::New(job) => job,
            other => panic!("not a new job: {other:?}"),
        }
    }

    async fn start_letters(&self, messages: &[Message]) -> RedriveJob {
        let mut ids = Vec::new();
        for message in messages {
            ids.push(self.letter(message).await.id);
        }
        self.start(RedriveSelection::Ids(ids)).await
    }

    async fn dispatch(&self, job: RedriveId, epoch: Epoch) -> DispatchResult {
        self.database.dispatch_redrive(job, epoch, 100, &lenient()).await.unwrap()
    }

    async fn settle_job(&self, job: RedriveId, epoch: Epoch) -> ActiveRedrive {
        let settled = self.database.settle_redrive(job, epoch, &StopRule::default()).await.unwrap();
        self.counts(job).await;
        settled
    }

    /// Returns the counts of a job, which must add up.
    async fn counts(&self, job: RedriveId) -> RedriveCounts {
        let counts = self.database.redrive_job(job).await.unwrap().expect("no such job").counts;
        assert_eq!(counts.matched, counts.settled() + counts.remaining, "{counts:?}");
        counts
    }

    async fn skips(&self, job: RedriveId) -> Vec<(String, u64)> {
        self.database.redrive_skips(job).await.unwrap()
    }

    /// Returns the details of an actor's rows in the audit trail.
    async fn details(&self, actor: &str, action: &str) -> Vec<String> {
        let (actor, action) = (Some(actor.to_owned()), Some(action.to_owned()));
        let filter = AuditFilter { actor, action, ..Default::default() };
        let rows = self.database.audit_entries(&filter, 100).await.unwrap();
        rows.into_iter().map(|row| row.detail).collect()
    }

    async fn park_all(&self, name: &str, messages: &[Message]) {
        for message in messages {
            self.park(&group(name), message).await;
        }
    }
}

pub async fn job_redrives_exactly_its_frozen_selection<F: DatabaseFixture>(harness: Harness<F>) {
    let (selected, other, later) = ([keyed("a", 1), keyed("b", 1)], keyed("c", 1), keyed("d", 1));
    harness.park_all("stock", &selected).await;
    harness.park_all("mail", std::slice::from_ref(&other)).await;
    let job = harness.start(of_group("stock")).await;
    assert_eq!((job.state, job.counts.matched, job.counts.remaining), (RedriveState::Running, 2, 2));
    harness.park_all("stock", std::slice::from_ref(&later)).await;

    assert_eq!(harness.dispatch(job.id, 1).await.dispatched.len(), 2);
    let handled = harness.drain(&group("stock")).await;
    assert_eq!(handled, selected.iter().map(|message| message.id).collect::<Vec<MessageId>>());
    let ended = harness.settle_job(job.id, 1).await;
    assert_eq!((ended.state, ended.counts.succeeded), (RedriveState::Finished, 2));
    assert!(harness.drain(&group("stock")).await.is_empty(), "a letter that arrived later was redriven");
    assert!(harness.drain(&group("mail")).await.is_empty(), "a letter of another group was redriven");
    assert!(harness.database.active_redrives().await.unwrap().is_empty());
}

pub async fn letter_succeeds_when_handled_not_when_handed_back<F: DatabaseFixture>(harness: Harness<F>) {
    let messages = [keyed("a", 1), keyed("b", 1)];
    harness.park_all("stock", &messages).await;
    let job = harness.start(of_group("stock")).await;
    assert_eq!(harness.dispatch(job.id, 1).await.dispatched.len(), 2);
    let waiting = harness.settle_job(job.id, 1).await;
    assert_eq!((waiting.in_flight, waiting.counts.remaining, waiting.counts.succeeded), (2, 2, 0));
    harness.fail_one(&group("stock")).await;
    harness.drain(&group("stock")).await;
    let ended = harness.settle_job(job.id, 1).await;
    assert_eq!((ended.state, ended.in_flight), (RedriveState::Finished, 0));
    assert_eq!((ended.counts.failed, ended.counts.succeeded), (1, 1));
}

pub async fn relay_letter_succeeds_when_published<F: DatabaseFixture>(harness: Harness<F>) {
    let message = keyed("a", 1);
    harness.enqueue(std::slice::from_ref(&message)).await;
    let leases = harness.lease_all("one").await;
    let park = || Decision::Park { code: ErrorCode::TOO_LARGE, error: "too large".into(), holds_key: true };
    harness.settle(&leases, &message, park()).await;
    let job = harness.start_letters(std::slice::from_ref(&message)).await;
    assert_eq!(harness.dispatch(job.id, 1).await.dispatched.len(), 1);
    assert_eq!(harness.settle_job(job.id, 1).await.counts.succeeded, 0, "back in the outbox is not published");
    harness.settle(&leases, &message, park()).await;
    assert_eq!(harness.settle_job(job.id, 1).await.counts.failed, 1);

    let second = harness.start_letters(std::slice::from_ref(&message)).await;
    assert_eq!(harness.dispatch(second.id, 1).await.dispatched.len(), 1);
    harness.settle(&leases, &message, Decision::Published).await;
    assert_eq!(harness.settle_job(second.id, 1).await.counts.succeeded, 1);
}

pub async fn repeated_redrive_request_is_one_job<F: DatabaseFixture>(harness: Harness<F>) {
    harness.park_all("stock", &[keyed("a", 1)]).await;
    let asked = RedriveRequest { given: Some(MessageId::new()), ..request(of_group("stock")) };
    let start = async |request: &RedriveRequest| harness.database.start_redrive(request, "alice").await.unwrap();
    let (first, second) = tokio::join!(start(&asked), start(&asked));
    let job = |started: &RedriveStarted| match started {
        RedriveStarted::New(job) | RedriveStarted::Repeated(job) => job.id,
        RedriveStarted::Conflict(id) => panic!("a repetition conflicts with {id}"),
    };
    assert_eq!(job(&first), job(&second));
    assert!(matches!(start(&asked).await, RedriveStarted::Repeated(_)));
    assert_eq!(harness.database.redrive_jobs(None, 10).await.unwrap().len(), 1);
    let other = RedriveRequest { reason: "another".into(), ..asked };
    assert!(matches!(start(&other).await, RedriveStarted::Conflict(_)));
}

pub async fn redrive_of_another_number_of_letters_is_refused<F: DatabaseFixture>(harness: Harness<F>) {
    harness.park_all("stock", &[keyed("a", 1), keyed("b", 1)]).await;
    let start = async |expected| {
        let request = RedriveRequest { expected: Some(expected), ..request(of_group("stock")) };
        harness.database.start_redrive(&request, "alice").await
    };
    for wrong in [0, 1, 3] {
        assert_eq!(start(wrong).await.unwrap_err().kind(), ErrorKind::Conflict, "{wrong} were expected");
    }
    assert!(harness.database.redrive_jobs(None, 10).await.unwrap().is_empty());
    assert!(matches!(start(2).await.unwrap(), RedriveStarted::New(_)));
}

pub async fn redrive_without_a_condition_is_refused<F: DatabaseFixture>(harness: Harness<F>) {
    harness.park_all("stock", &[keyed("a", 1)]).await;
    let after = DeadLetterFilter { after: Some(0), ..Default::default() };
    for selection in [
        RedriveSelection::Filter(Box::default()),
        RedriveSelection::Filter(Box::new(after)),
        RedriveSelection::Ids(Vec::new()),
    ] {
        let error = harness.database.start_redrive(&request(selection), "alice").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    }
    assert!(harness.database.redrive_jobs(None, 10).await.unwrap().is_empty());
}

pub async fn second_job_skips_the_letters_of_the_first<F: DatabaseFixture>(harness: Harness<F>) {
    harness.park_all("stock", &[keyed("a", 1), keyed("b", 1)]).await;
    let (first, second) = (harness.start(of_group("stock")).await, harness.start(of_group("stock")).await);
    assert_eq!(harness.dispatch(first.id, 1).await.dispatched.len(), 2);
    assert_eq!(harness.dispatch(second.id, 1).await, DispatchResult { dispatched: Vec::new(), settled: 2 });
    assert_eq!(harness.drain(&group("stock")).await.len(), 2);
    assert_eq!(harness.settle_job(first.id, 1).await.counts.succeeded, 2);
    assert_eq!(harness.settle_job(second.id, 1).await.counts.skipped, 2);
    assert_eq!(harness.skips(second.id).await, [("not-parked".to_owned(), 2)]);
    assert_eq!(harness.effects().await.len(), 2);
}

pub async fn outdated_runner_changes_no_job<F: DatabaseFixture>(harness: Harness<F>) {
    harness.park_all("stock", &[keyed("a", 1)]).await;
    let job = harness.start(of_group("stock")).await;
    harness.settle_job(job.id, 7).await;
    let late = harness.database.dispatch_redrive(job.id, 6, 10, &lenient()).await.unwrap_err();
    assert_eq!(late.kind(), ErrorKind::Conflict, "{late}");
    let late = harness.database.settle_redrive(job.id, 6, &StopRule::default()).await.unwrap_err();
    assert_eq!(late.kind(), ErrorKind::Conflict, "{late}");
    assert!(harness.drain(&group("stock")).await.is_empty(), "an outdated runner handed a letter back");
    assert_eq!(harness.dispatch(job.id, 8).await.dispatched.len(), 1);
}

pub async fn paused_and_stopped_jobs_hand_back_nothing<F: DatabaseFixture>(harness: Harness<F>) {
    harness.park_all("stock", &[keyed("a", 1), keyed("b", 1)]).await;
    let job = harness.start(of_group("stock")).await;
    let control = async |control| harness.database.control_redrive(job.id, control, "bob").await;
    assert_eq!(control(RedriveControl::Pause).await.unwrap().state, RedriveState::Paused);
    assert!(harness.dispatch(job.id, 1).await.dispatched.is_empty());
    assert_eq!(control(RedriveControl::Resume).await.unwrap().state, RedriveState::Running);
    let one = harness.database.dispatch_redrive(job.id, 1, 1, &lenient()).await.unwrap();
    assert_eq!(one.dispatched.len(), 1);
    let stopped = control(RedriveControl::Stop).await.unwrap();
    assert_eq!((stopped.state, stopped.stop_reason.as_deref()), (RedriveState::Stopped, Some("stopped by bob")));
    assert!(harness.dispatch(job.id, 1).await.dispatched.is_empty());
    assert_eq!(harness.drain(&group("stock")).await.len(), 1, "what is in flight is handled");
    let ended = harness.settle_job(job.id, 1).await;
    assert_eq!((ended.state, ended.counts.succeeded, ended.counts.remaining), (RedriveState::Stopped, 1, 1));
    assert_eq!(control(RedriveControl::Resume).await.unwrap_err().kind(), ErrorKind::Conflict);
    let missing = harness.database.control_redrive(MessageId::new(), RedriveControl::Stop, "bob").await;
    assert_eq!(missing.unwrap_err().kind(), ErrorKind::NotFound);
}

pub async fn letters_of_a_key_are_handed_back_in_turn<F: DatabaseFixture>(harness: Harness<F>) {
    let messages = series("a", 3);
    harness.enqueue(&messages).await;
    let leases = harness.lease_all("one").await;
    let park = || Decision::Park { code: ErrorCode::TOO_LARGE, error: "too large".into(), holds_key: true };
    let due = harness.due(&leases).await;
    let settlements: Vec<_> = due.iter().map(|entry| settlement(entry, park())).collect();
    harness.database.settle(&leases, &settlements).await.unwrap();

    let job = harness.start_letters(&messages).await;
    for message in &messages {
        let result = harness.dispatch(job.id, 1).await;
        assert_eq!(result.dispatched, [harness.letter(message).await.id], "the key is not redriven in turn");
        // The key is held by the letters behind it.
        let is_last = message.id == messages[2].id;
        assert_eq!(harness.due(&leases).await.is_empty(), !is_last, "a held key was published");
    }
    assert_eq!(harness.due_ids(&leases).await, messages.iter().map(|message| message.id).collect::<Vec<_>>());
}

pub async fn letter_behind_an_unselected_one_is_skipped<F: DatabaseFixture>(harness: Harness<F>) {
    let messages = series("a", 2);
    harness.enqueue(&messages).await;
    let leases = harness.lease_all("one").await;
    let park = || Decision::Park { code: ErrorCode::TOO_LARGE, error: "too large".into(), holds_key: true };
    let due = harness.due(&leases).await;
    let settlements: Vec<_> = due.iter().map(|entry| settlement(entry, park())).collect();
    harness.database.settle(&leases, &settlements).await.unwrap();
    let job = harness.start_letters(&messages[1..]).await;
    assert_eq!(harness.dispatch(job.id, 1).await, DispatchResult { dispatched: Vec::new(), settled: 1 });
    assert_eq!(harness.skips(job.id).await, [("predecessor".to_owned(), 1)]);
    assert!(harness.due(&leases).await.is_empty());
}

pub async fn job_stops_by_itself_on_failures<F: DatabaseFixture>(harness: Harness<F>) {
    let messages: Vec<Message> = (0..30).map(|number| keyed(&format!("k{number}"), 1)).collect();
    harness.park_all("stock", &messages).await;
    let job = harness.start(of_group("stock")).await;
    let first = harness.database.dispatch_redrive(job.id, 1, 20, &lenient()).await.unwrap();
    assert_eq!(first.dispatched.len(), 20);
    harness.fail_one(&group("stock")).await;
    harness.fail_one(&group("stock")).await;
    assert_eq!(harness.settle_job(job.id, 1).await.state, RedriveState::Running, "2 outcomes are too few");
    harness.drain(&group("stock")).await;
    let stopped = harness.settle_job(job.id, 1).await;
    assert_eq!((stopped.state, stopped.counts.failed, stopped.counts.succeeded), (RedriveState::Stopped, 2, 18));
    assert!(harness.dispatch(job.id, 1).await.dispatched.is_empty());
    let job = harness.database.redrive_job(job.id).await.unwrap().unwrap();
    assert!(job.stop_reason.is_some_and(|reason| reason.contains("2 of 20")), "no reason");
}

pub async fn new_error_stops_the_job<F: DatabaseFixture>(harness: Harness<F>) {
    harness.park_all("stock", &[keyed("a", 1), keyed("b", 1), keyed("c", 1)]).await;
    let job = harness.start(of_group("stock")).await;
    let two = harness.database.dispatch_redrive(job.id, 1, 2, &lenient()).await.unwrap();
    assert_eq!(two.dispatched.len(), 2);
    harness.fail_one(&group("stock")).await;
    assert_eq!(harness.settle_job(job.id, 1).await.state, RedriveState::Running, "the error is the known one");
    harness.fail_with(&group("stock"), "the warehouse burnt down").await;
    let stopped = harness.settle_job(job.id, 1).await;
    assert_eq!((stopped.state, stopped.counts.failed, stopped.counts.remaining), (RedriveState::Stopped, 2, 1));
}

pub async fn guards_skip_letters_with_their_reason<F: DatabaseFixture>(harness: Harness<F>) {
    use landfall_core::DeadLetters;
    let messages = [keyed("a", 1), keyed("b", 1), keyed("c", 1)];
    harness.park_all("stock", &messages).await;
    harness.redrive(&messages[0]).await;
    harness.fail_one(&group("stock")).await;
    harness.database.ignore(harness.letter(&messages[1]).await.id, "a test order", "alice").await.unwrap();
    let mut ids = vec![i64::MAX];
    for message in &messages {
        ids.push(harness.letter(message).await.id);
    }
    let job = harness.start(RedriveSelection::Ids(ids)).await;
    assert_eq!(job.counts.matched, 4);
    let strict = RedriveGuards::default();
    let result = harness.database.dispatch_redrive(job.id, 1, 100, &strict).await.unwrap();
    assert_eq!((result.dispatched, result.settled), (vec![harness.letter(&messages[2]).await.id], 3));
    let skips = [("cool-down".to_owned(), 1), ("ignored".to_owned(), 1)];
    assert_eq!(harness.skips(job.id).await, skips);
    assert_eq!(harness.counts(job.id).await.missing, 1);
    let limited = harness.start_letters(&messages[..1]).await;
    let strict = RedriveGuards { max_redrives: 1, ..lenient() };
    harness.database.dispatch_redrive(limited.id, 1, 100, &strict).await.unwrap();
    assert_eq!(harness.skips(limited.id).await, [("limit".to_owned(), 1)]);
}

pub async fn immediate_redrive_skips_what_a_job_would<F: DatabaseFixture>(harness: Harness<F>) {
    use landfall_core::DeadLetters;
    let messages = [keyed("a", 1), keyed("b", 1), keyed("c", 1), keyed("d", 1), keyed("e", 1)];
    harness.park_all("stock", &messages).await;
    let mut ids = Vec::new();
    for message in &messages {
        ids.push(harness.letter(message).await.id);
    }
    harness.redrive(&messages[0]).await;
    harness.fail_one(&group("stock")).await;
    harness.database.ignore(ids[1], "a test order", "alice").await.unwrap();
    harness.redrive(&messages[2]).await;
    let rule = KeyRule {
        topic: messages[3].topic.clone(),
        key: messages[3].key.clone().unwrap(),
        rule: KeyRuleKind::Blocked,
        until: None,
        reason: "see INC-42".into(),
        actor: "alice".into(),
        since: Timestamp::now(),
    };
    harness.database.set_key_rule(&rule).await.unwrap();

    let filter = DeadLetterFilter { group: Some(group("stock")), ..Default::default() };
    let guards = Some(RedriveGuards::default());
    let request = ImmediateRedrive { filter, guards, limit: None, reason: "the stock is back".into() };
    let done = harness.database.redrive_at_once(&request, "bob").await.unwrap();
    assert_eq!((&done.letters.redriven[..], &done.letters.skipped[..]), (&ids[4..], &ids[..4]));
    let reasons =
        ["cool-down", "ignored", "not-parked", "blocked"].into_iter().zip(&ids).map(|(why, id)| (why, vec![*id]));
    assert_eq!(done.reasons, reasons.collect());

    // A person who names one letter is not bound by the guards.
    let one = DeadLetterFilter { id: Some(ids[0]), ..Default::default() };
    let request = ImmediateRedrive { filter: one, guards: None, ..request };
    assert_eq!(harness.database.redrive_at_once(&request, "bob").await.unwrap().letters.redriven, ids[..1]);
    let again = harness.database.redrive_at_once(&request, "bob").await.unwrap();
    assert_eq!((again.letters.redriven.len(), &again.letters.skipped[..]), (0, &ids[..1]));
    assert_eq!(harness.details("bob", "redrive").await, ["the stock is back"; 2]);
}

pub async fn immediate_redrive_is_limited_and_keeps_keys_in_order<F: DatabaseFixture>(harness: Harness<F>) {
    let messages = series("a", 3);
    harness.enqueue(&messages).await;
    let leases = harness.lease_all("one").await;
    let park = || Decision::Park { code: ErrorCode::TOO_LARGE, error: "too large".into(), holds_key: true };
    let due = harness.due(&leases).await;
    let settlements: Vec<_> = due.iter().map(|entry| settlement(entry, park())).collect();
    harness.database.settle(&leases, &settlements).await.unwrap();
    let (head, behind) = (harness.letter(&messages[0]).await.id, harness.letter(&messages[1]).await.id);
    let redrive = async |filter: DeadLetterFilter, limit| {
        let guards = Some(lenient());
        let request = ImmediateRedrive { filter, guards, limit, reason: String::new() };
        harness.database.redrive_at_once(&request, "bob").await.unwrap()
    };
    let done = redrive(DeadLetterFilter { after: Some(head), ..Default::default() }, None).await;
    assert!(done.letters.redriven.is_empty(), "a letter behind a parked one was redriven");
    assert_eq!(done.reasons["predecessor"].len(), 2);
    let done = redrive(DeadLetterFilter::default(), Some(2)).await;
    assert_eq!((&done.letters.redriven[..], done.letters.skipped.len()), (&[head, behind][..], 0));
    assert!(redrive(DeadLetterFilter::default(), None).await.letters.redriven.len() == 1);
    assert_eq!(harness.due_ids(&leases).await, messages.iter().map(|message| message.id).collect::<Vec<_>>());
}

pub async fn audit_names_the_job_and_the_reason<F: DatabaseFixture>(harness: Harness<F>) {
    harness.park_all("stock", &[keyed("a", 1), keyed("b", 1)]).await;
    let job = harness.start(of_group("stock")).await;
    assert_eq!(harness.dispatch(job.id, 1).await.dispatched.len(), 2);
    let expected = format!("redrive {}: the stock is back", job.id);
    assert_eq!(harness.details("alice", "redrive").await, [expected.as_str(); 2]);
    let stop = harness.database.control_redrive_because(job.id, RedriveControl::Stop, "wrong letters", "bob").await;
    assert_eq!(stop.unwrap().stop_reason.as_deref(), Some("stopped by bob: wrong letters"));
    assert_eq!(harness.details("bob", "redrive-stop").await, ["wrong letters"]);
}

pub async fn letters_of_a_job_have_their_outcomes<F: DatabaseFixture>(harness: Harness<F>) {
    use landfall_core::DeadLetters;
    let messages = ["a", "b", "c", "d", "e"].map(|key| keyed(key, 1));
    harness.park_all("stock", &messages).await;
    let mut ids = Vec::new();
    for message in &messages {
        ids.push(harness.letter(message).await.id);
    }
    harness.database.ignore(ids[3], "a test order", "alice").await.unwrap();
    let job = harness.start(RedriveSelection::Ids([&ids[..], &[i64::MAX]].concat())).await;
    assert_eq!(harness.database.dispatch_redrive(job.id, 1, 3, &lenient()).await.unwrap().dispatched, ids[..3]);
    harness.fail_one(&group("stock")).await;
    harness.fail_with(&group("stock"), "the warehouse burnt down").await;
    harness.drain(&group("stock")).await;
    harness.settle_job(job.id, 1).await;

    let known = harness.letter(&messages[4]).await.fingerprint;
    let read = async |state, after, limit| harness.database.job_letters(job.id, state, after, limit).await.unwrap();
    let letters = read(None, None, 10).await;
    let states: Vec<_> = letters.iter().map(|letter| (letter.dead_letter_id, letter.state.as_str())).collect();
    let expected = ["failed", "failed", "succeeded", "skipped", "waiting", "missing"];
    assert_eq!(states, ids.iter().copied().chain([i64::MAX]).zip(expected).collect::<Vec<_>>());
    let failures: Vec<_> = letters.iter().map(|letter| letter.failure).collect();
    assert_eq!(failures, [Some(JobFailure::Same), Some(JobFailure::New), None, None, None, None]);
    assert_eq!((&letters[0].fingerprint, &letters[0].selected_fingerprint), (&Some(known.clone()), &Some(known)));
    assert!(letters[1].fingerprint.is_some() && letters[1].fingerprint != letters[0].fingerprint);
    assert_eq!((letters[3].skip.as_deref(), letters[0].skip.as_deref()), (Some("ignored"), None));
    assert_eq!(read(Some(JobLetterState::Failed), Some(ids[0]), 10).await, letters[1..2]);
    assert_eq!(read(None, Some(ids[1]), 2).await, letters[2..4]);
}

pub async fn old_redrive_jobs_are_removed_in_steps<F: DatabaseFixture>(harness: Harness<F>) {
    let messages = ["a", "b", "c"].map(|key| keyed(key, 1));
    harness.park_all("stock", &messages).await;
    let (ended, running) = (harness.start(of_group("stock")).await.id, harness.start(of_group("stock")).await.id);
    harness.database.control_redrive(ended, RedriveControl::Stop, "bob").await.unwrap();
    let later = Timestamp::from_millis(Timestamp::now().as_millis() + 60_000);
    let remove = async |before, at_most| harness.database.remove_redrives(before, at_most).await.unwrap();
    let letters = async |job| harness.database.job_letters(job, None, None, 10).await.unwrap().len();
    assert_eq!(remove(Timestamp::from_millis(1), 100).await, 0, "not old enough");
    assert_eq!((remove(later, 2).await, letters(ended).await), (2, 1));
    assert!(harness.database.redrive_job(ended).await.unwrap().is_some(), "a job went before its letters");
    assert_eq!((remove(later, 100).await, letters(ended).await), (2, 0));
    assert!(harness.database.redrive_job(ended).await.unwrap().is_none());
    assert_eq!((remove(later, 100).await, letters(running).await), (0, 3), "a running job stays");
    assert_eq!(harness.details("bob", "redrive-stop").await.len(), 1, "the audit trail stays");
}

pub async fn redrive_jobs_are_listed_and_audited<F: DatabaseFixture>(harness: Harness<F>) {
    harness.park_all("stock", &[keyed("a", 1)]).await;
    let mut jobs = Vec::new();
    for _ in 0..3 {
        jobs.push(harness.start(of_group("stock")).await.id);
    }
    let mut listed = Vec::new();
    while let Some(job) = harness.database.redrive_jobs(listed.last().copied(), 1).await.unwrap().pop() {
        listed.push(job.id);
    }
    listed.sort();
    jobs.sort();
    assert_eq!(listed, jobs, "a page lost or repeated a job");
    harness.database.control_redrive(jobs[0], RedriveControl::Stop, "bob").await.unwrap();
    let filter = AuditFilter { message_id: Some(jobs[0]), ..Default::default() };
    let trail = harness.database.audit_entries(&filter, 10).await.unwrap();
    let trail: Vec<_> = trail.iter().map(|row| (row.actor.as_str(), row.action.as_str())).collect();
    assert_eq!(trail, [("alice", "redrive-start"), ("bob", "redrive-stop")]);
    let everything = harness.database.audit_entries(&AuditFilter::default(), 100).await.unwrap();
    let after = AuditFilter { after: Some(everything[0].id), ..Default::default() };
    assert_eq!(harness.database.audit_entries(&after, 100).await.unwrap(), everything[1..]);
    let of_bob = AuditFilter { actor: Some("bob".into()), ..Default::default() };
    assert_eq!(harness.database.audit_entries(&of_bob, 100).await.unwrap().len(), 1);
}

pub async fn rehearsal_predicts_what_the_job_does<F: DatabaseFixture>(harness: Harness<F>) {
    use landfall_core::{DeadLetters, Predicted, Skip};
    let messages = series("a", 2);
    harness.enqueue(&messages).await;
    let leases = harness.lease_all("one").await;
    let park = || Decision::Park { code: ErrorCode::TOO_LARGE, error: "too large".into(), holds_key: true };
    let due = harness.due(&leases).await;
    let settlements: Vec<_> = due.iter().map(|entry| settlement(entry, park())).collect();
    harness.database.settle(&leases, &settlements).await.unwrap();
    let ignored = keyed("b", 1);
    harness.park_all("stock", std::slice::from_ref(&ignored)).await;
    let (head, behind) = (harness.letter(&messages[0]).await.id, harness.letter(&messages[1]).await.id);
    let other = harness.letter(&ignored).await.id;
    harness.database.ignore(other, "", "alice").await.unwrap();

    let rehearse = async |ids: Vec<i64>, limit| -> Vec<(i64, Predicted, Option<i64>)> {
        let selection = RedriveSelection::Ids(ids);
        let predictions = harness.database.rehearse_redrive(&selection, &lenient(), limit).await.unwrap();
        predictions.iter().map(|letter| (letter.id, letter.outcome, letter.predecessor)).collect()
    };
    let all = rehearse(vec![head, behind, other, i64::MAX], 10).await;
    let skipped = |skip| Predicted::Skipped(skip);
    assert_eq!(
        all,
        [
            (head, Predicted::Ready, None),
            (behind, Predicted::Waits, Some(head)),
            (other, skipped(Skip::Ignored), None),
            (i64::MAX, Predicted::Missing, None),
        ]
    );
    assert_eq!(rehearse(vec![behind], 10).await, [(behind, skipped(Skip::Predecessor), Some(head))]);
    assert_eq!(rehearse(vec![head, behind], 1).await.len(), 1);
    let old = RedriveGuards { max_age: Some(Duration::ZERO), ..lenient() };
    let selection = RedriveSelection::Ids(vec![head]);
    // From the next millisecond on.
    crate::eventually(TIMEOUT, "the age", async || {
        let late = harness.database.rehearse_redrive(&selection, &old, 10).await.unwrap();
        late[0].outcome == skipped(Skip::TooOld)
    })
    .await;

    let job = harness.start_letters(&messages[1..]).await;
    assert_eq!(harness.dispatch(job.id, 1).await.settled, 1);
    assert_eq!(harness.skips(job.id).await, [("predecessor".to_owned(), 1)], "the job does what was predicted");
}
