//! Alerts: changes and their notices in one transaction, deliveries under stable ids, mutes.

use std::time::Duration;

use landfall_core::{
    ALERT_MEMORY, Alert, AlertChange, AlertFilter, AlertLabels, AlertQueue, AlertState, Alerts, AuditFilter,
    AuditTrail, ErrorKind, GroupQuery, LetterObservations, LetterQuery, MessageId, MuteTarget, NoticeBatch,
    NoticeClaim, NoticeFilter, NoticeKind, NoticeOutcome, NoticeState, Timestamp,
};

use super::{DatabaseFixture, Harness};
use crate::conformance::sample::{group, keyed};

const SECOND: Duration = Duration::from_secs(1);

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_millis(1_700_000_000_000 + seconds * 1000)
}

fn labels(topic: &str) -> AlertLabels {
    [("topic".to_owned(), topic.to_owned())].into()
}

fn alert(topic: &str) -> Alert {
    Alert {
        id: Alert::id_of("dead-letter", &labels(topic)),
        labels: labels(topic),
        state: AlertState::Firing,
        value: 3,
        summary: "3 dead letters of \"größe\"".into(),
        sample: Some(17),
        firing_since: Some(at(0)),
        version: 1,
        ..Alert::of_rule("dead-letter", at(0))
    }
}

fn change(alert: Alert, kinds: &[(&str, NoticeKind)]) -> AlertChange {
    AlertChange { alert, notices: kinds.iter().map(|(channel, kind)| ((*channel).to_owned(), *kind)).collect() }
}

fn next(alert: &Alert, state: AlertState) -> Alert {
    Alert { state, version: alert.version + 1, ..alert.clone() }
}

fn claim(channel: &str, now: Timestamp) -> NoticeClaim {
    NoticeClaim { channel: channel.into(), now, at_most: 10, spacing: Duration::ZERO, patience: 30 * SECOND }
}

impl<F: DatabaseFixture> Harness<F> {
    async fn record(&self, changes: &[AlertChange]) {
        self.database.record_alerts(changes, at(0)).await.unwrap();
    }

    async fn claim(&self, seconds: i64) -> Option<NoticeBatch> {
        self.database.claim_notices(&claim("chat", at(seconds))).await.unwrap()
    }

    async fn settle_batch(&self, batch: &NoticeBatch, outcome: NoticeOutcome, seconds: i64) -> bool {
        self.database.settle_notices(batch, &outcome, at(seconds)).await.unwrap()
    }

    async fn stored_alerts(&self) -> Vec<Alert> {
        self.database.alerts(&AlertFilter::default(), 100).await.unwrap()
    }

    async fn waiting(&self) -> usize {
        let filter = NoticeFilter { state: Some(NoticeState::Waiting), ..Default::default() };
        self.database.alert_notices(&filter, 100).await.unwrap().len()
    }

    async fn observed(&self) -> LetterObservations {
        let rule = GroupQuery { rule: "new-group".into(), topic: None, group: None, most: 10 };
        let now = Timestamp::now();
        // The database has microseconds.
        let soon = Timestamp::from_millis(now.as_millis() + 60_000);
        let query = LetterQuery { keys_before: soon, most_keys: 10, now, groups: vec![rule] };
        self.database.observe_letters(&query).await.unwrap()
    }
}

pub async fn alert_and_its_notices_are_stored_together<F: DatabaseFixture>(harness: Harness<F>) {
    let stored = Alert { muted_until: Some(at(9)), notified_sample: Some(17), notified_value: 3, ..alert("orders") };
    harness.record(&[change(stored.clone(), &[("chat", NoticeKind::Firing), ("pager", NoticeKind::Firing)])]).await;
    assert_eq!(harness.stored_alerts().await, std::slice::from_ref(&stored), "every field survives");
    assert_eq!(harness.database.open_alerts(&[]).await.unwrap(), std::slice::from_ref(&stored));
    let notices = harness.database.alert_notices(&NoticeFilter::default(), 10).await.unwrap();
    assert_eq!(notices.len(), 2);
    assert!(notices.iter().all(|notice| notice.body.alert == stored.id && notice.body.summary == stored.summary));
    let ended = Alert { resolved_at: Some(at(5)), ..next(&stored, AlertState::Resolved) };
    harness.record(&[change(ended.clone(), &[])]).await;
    assert!(harness.database.open_alerts(&[]).await.unwrap().is_empty());
    assert_eq!(harness.database.open_alerts(&[stored.id, MessageId::new()]).await.unwrap(), [ended]);
}

pub async fn outdated_change_stores_nothing<F: DatabaseFixture>(harness: Harness<F>) {
    let (one, other) = (alert("one"), alert("other"));
    let first = [change(one.clone(), &[("chat", NoticeKind::Firing)])];
    harness.record(&first).await;
    // A second daemon that read the same state.
    let late = [change(other.clone(), &[("chat", NoticeKind::Firing)]), first[0].clone()];
    let error = harness.database.record_alerts(&late, at(1)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    let resolved = next(&one, AlertState::Resolved);
    harness.record(&[change(resolved.clone(), &[])]).await;
    let late = [change(other, &[]), change(resolved, &[("chat", NoticeKind::Resolved)])];
    assert!(harness.database.record_alerts(&late, at(1)).await.is_err());
    assert_eq!((harness.stored_alerts().await.len(), harness.waiting().await), (1, 1));

    let race = [change(alert("race"), &[("chat", NoticeKind::Firing)])];
    let second = harness.second().await;
    let (a, b) = tokio::join!(harness.database.record_alerts(&race, at(2)), second.record_alerts(&race, at(2)));
    assert!(a.is_ok() != b.is_ok(), "exactly one of two daemons makes the notice: {a:?} {b:?}");
    assert_eq!(harness.waiting().await, 2);
}

pub async fn notices_are_delivered_under_a_stable_id<F: DatabaseFixture>(harness: Harness<F>) {
    let changes = ["one", "two"].map(|topic| change(alert(topic), &[("chat", NoticeKind::Firing)]));
    harness.record(&changes).await;
    assert!(harness.database.claim_notices(&claim("pager", at(1))).await.unwrap().is_none(), "not its channel");
    let first = harness.claim(1).await.unwrap();
    assert_eq!((first.attempt, first.notices.len(), first.created_at), (1, 2, at(0)));
    // More notices come while it is in flight.
    harness.record(&[change(alert("three"), &[("chat", NoticeKind::Firing)])]).await;
    let other = harness.claim(2).await.unwrap();
    assert!(other.id != first.id && other.notices.len() == 1, "{other:?}");
    assert!(harness.claim(3).await.is_none(), "both are in flight");
    // The daemon died. The delivery is the same one.
    let again = harness.claim(31).await.unwrap();
    assert_eq!((again.id, again.attempt, &again.notices), (first.id, 2, &first.notices));
    assert!(!harness.settle_batch(&first, NoticeOutcome::Delivered, 32).await, "a late result of an earlier attempt");
    assert!(harness.settle_batch(&again, NoticeOutcome::Delivered, 33).await);
    assert!(!harness.settle_batch(&again, NoticeOutcome::Delivered, 34).await, "once");
    let given_up = NoticeOutcome::GivenUp { error: "HTTP 404".into() };
    assert!(harness.settle_batch(&other, given_up, 35).await);
    assert!(harness.claim(100_000).await.is_none());
    let log = harness.database.alert_notices(&NoticeFilter::default(), 10).await.unwrap();
    let states: Vec<_> = log.iter().map(|one| (one.state, one.attempts, one.error.as_deref())).collect();
    let delivered = (NoticeState::Delivered, 2, None);
    assert_eq!(states, [(NoticeState::GivenUp, 1, Some("HTTP 404")), delivered, delivered]);
    let page = NoticeFilter { before: Some(log[0].id), ..Default::default() };
    assert_eq!(harness.database.alert_notices(&page, 10).await.unwrap(), log[1..]);
}

pub async fn end_of_an_alert_waits_for_its_beginning<F: DatabaseFixture>(harness: Harness<F>) {
    let firing = alert("orders");
    harness.record(&[change(firing.clone(), &[("chat", NoticeKind::Firing)])]).await;
    harness.record(&[change(next(&firing, AlertState::Resolved), &[("chat", NoticeKind::Resolved)])]).await;
    let first = harness.claim(1).await.unwrap();
    assert_eq!(first.notices.iter().map(|one| one.kind).collect::<Vec<_>>(), [NoticeKind::Firing]);
    assert!(harness.claim(2).await.is_none(), "in flight");
    let retry = NoticeOutcome::Retry { at: at(10), error: "HTTP 500".into() };
    assert!(harness.settle_batch(&first, retry, 3).await);
    assert!(harness.claim(9).await.is_none(), "the retry is not due");
    let again = harness.claim(10).await.unwrap();
    assert!(harness.settle_batch(&again, NoticeOutcome::Delivered, 11).await);
    let second = harness.claim(12).await.unwrap();
    assert_eq!(second.notices.iter().map(|one| one.kind).collect::<Vec<_>>(), [NoticeKind::Resolved]);
}

pub async fn channel_rests_between_attempts_and_when_told<F: DatabaseFixture>(harness: Harness<F>) {
    let changes = ["one", "two"].map(|topic| change(alert(topic), &[("chat", NoticeKind::Firing)]));
    harness.record(&changes).await;
    let slow = |seconds| NoticeClaim { at_most: 1, spacing: 4 * SECOND, ..claim("chat", at(seconds)) };
    let attempt = async |seconds| harness.database.claim_notices(&slow(seconds)).await.unwrap();
    let first = attempt(1).await.unwrap();
    assert!(attempt(4).await.is_none(), "within the spacing");
    let hold = NoticeOutcome::Hold { until: at(600), error: "130101 too many".into() };
    assert!(harness.settle_batch(&first, hold, 5).await);
    assert!(attempt(599).await.is_none(), "the server wants a rest, also for others");
    let again = attempt(600).await.unwrap();
    assert_eq!((again.id, again.attempt), (first.id, 2));
    assert!(harness.settle_batch(&again, NoticeOutcome::Delivered, 601).await);
    assert!(attempt(604).await.is_none(), "the spacing counts from the answer");
    let last = attempt(605).await.unwrap();
    let hold = NoticeOutcome::Hold { until: at(700_000), error: "a wrong clock".into() };
    assert!(harness.settle_batch(&last, hold, 606).await);
    assert_eq!(attempt(620).await.map(|batch| batch.id), Some(last.id), "a time that no server asks for");
}

pub async fn concurrent_claims_deliver_each_notice_once<F: DatabaseFixture>(harness: Harness<F>) {
    let changes: Vec<_> =
        (0..20).map(|number| change(alert(&format!("t{number}")), &[("chat", NoticeKind::Firing)])).collect();
    harness.record(&changes).await;
    let second = harness.second().await;
    let mut seen = Vec::new();
    for seconds in 1..40 {
        let some = NoticeClaim { at_most: 3, ..claim("chat", at(seconds)) };
        let (a, b) = tokio::join!(harness.database.claim_notices(&some), second.claim_notices(&some));
        // The one that was later fails or finds nothing, and tries again.
        for batch in [a, b].into_iter().filter_map(|claimed| claimed.ok().flatten()) {
            assert_eq!(batch.attempt, 1, "{batch:?}");
            seen.extend(batch.notices.iter().map(|notice| notice.alert));
            assert!(harness.settle_batch(&batch, NoticeOutcome::Delivered, seconds).await);
        }
    }
    let count = seen.len();
    seen.sort();
    seen.dedup();
    assert_eq!((count, seen.len(), harness.waiting().await), (20, 20, 0));
}

pub async fn mutes_are_stored_and_audited<F: DatabaseFixture>(harness: Harness<F>) {
    let firing = alert("orders");
    harness.record(&[change(firing.clone(), &[])]).await;
    let until = Timestamp::from_millis(Timestamp::now().as_millis() + 3_600_000);
    let mute = async |target: &MuteTarget, until| harness.database.mute_alert(target, until, "known", "maria").await;
    mute(&MuteTarget::Alert(firing.id), until).await.unwrap();
    assert_eq!(harness.stored_alerts().await[0].muted_until, Some(until));
    let stale = harness.database.record_alerts(&[change(next(&firing, AlertState::Resolved), &[])], at(1)).await;
    assert_eq!(stale.unwrap_err().kind(), ErrorKind::Conflict, "an evaluation must not undo a mute");
    let rule = MuteTarget::Rule("outbox-age".into());
    mute(&rule, until).await.unwrap();
    mute(&rule, at(0)).await.unwrap();
    let rows = AlertFilter { state: Some(AlertState::Rule), ..Default::default() };
    let rows = harness.database.alerts(&rows, 10).await.unwrap();
    assert_eq!(
        rows.iter().map(|row| (row.rule.as_str(), row.muted_until)).collect::<Vec<_>>(),
        [("outbox-age", Some(at(0)))]
    );
    assert_eq!(harness.stored_alerts().await.len(), 1, "a rule is no alert");
    let missing = mute(&MuteTarget::Alert(MessageId::new()), until).await.unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound, "{missing}");
    let filter = AuditFilter { actor: Some("maria".into()), ..Default::default() };
    let audit = harness.database.audit_entries(&filter, 10).await.unwrap();
    let actions: Vec<_> = audit.iter().map(|entry| (entry.action.as_str(), entry.message_id)).collect();
    let of_rule = Some(Alert::id_of_rule("outbox-age"));
    assert_eq!(actions, [("alert-mute", Some(firing.id)), ("alert-mute", of_rule), ("alert-unmute", of_rule)]);
    assert!(audit[0].detail.contains("known"), "{audit:?}");
}

pub async fn old_alerts_and_settled_notices_are_removed<F: DatabaseFixture>(harness: Harness<F>) {
    let (firing, ended) = (alert("firing"), Alert { state: AlertState::Resolved, ..alert("ended") });
    let told = [("chat", NoticeKind::Firing)];
    harness.record(&[change(firing.clone(), &told), change(ended, &told)]).await;
    harness.record(&[change(Alert { version: 1, ..Alert::of_rule("new-group", at(0)) }, &[])]).await;
    assert_eq!(harness.database.remove_alerts(at(100), 10).await.unwrap(), 1, "the resolved one; notices still wait");
    let batch = harness.claim(1).await.unwrap();
    harness.settle_batch(&batch, NoticeOutcome::Delivered, 50).await;
    assert_eq!(harness.database.remove_alerts(at(50), 10).await.unwrap(), 0, "not old enough");
    assert_eq!(harness.database.remove_alerts(at(100), 1).await.unwrap(), 1, "in steps");
    assert_eq!(harness.database.remove_alerts(at(100), 10).await.unwrap(), 1);
    let left = harness.database.open_alerts(&[]).await.unwrap();
    assert_eq!(left.len(), 2, "a firing alert and the row of a rule stay: {left:?}");
}

pub async fn letters_are_observed_by_topic_key_and_error<F: DatabaseFixture>(harness: Harness<F>) {
    assert_eq!(harness.observed().await.parked, []);
    let (first, second, other) = (keyed("a", 1), keyed("b", 1), keyed("c", 1));
    for message in [&first, &second] {
        harness.park(&group("stock"), message).await;
    }
    harness.park(&group("mail"), &other).await;
    let seen = harness.observed().await;
    let of_stock = seen.parked.iter().find(|one| one.group == "stock").unwrap();
    let ids = [harness.letter(&first).await.id, harness.letter(&second).await.id];
    assert_eq!((of_stock.count, of_stock.oldest, of_stock.newest), (2, ids[0], ids[1]));
    assert!(of_stock.oldest_at.elapsed_since(Timestamp::now()) < 600 * SECOND, "{of_stock:?}");
    assert_eq!((seen.parked.len(), seen.keys.len()), (2, 3));
    let key = seen.keys.iter().find(|one| one.group == "mail").unwrap();
    assert_eq!((key.key.as_str(), key.count), (other.key.as_ref().unwrap().as_str(), 1));
    let recorded: u64 = seen.recorded.iter().map(|one| one.recent).sum();
    assert_eq!((recorded, seen.recorded.iter().map(|one| one.before).sum::<u64>()), (3, 0));
    let groups = &seen.groups["new-group"];
    assert_eq!((groups.len(), groups[0].count, groups[0].group.as_str()), (1, 3, "mail"), "they have one error");

    let narrow = |name: &str| GroupQuery { rule: name.into(), topic: None, group: Some(group(name)), most: 10 };
    let (now, groups_of) = (Timestamp::now(), vec![narrow("stock"), narrow("none")]);
    let query = LetterQuery { keys_before: now, most_keys: 0, now, groups: groups_of };
    let narrowed = harness.database.observe_letters(&query).await.unwrap().groups;
    assert_eq!((narrowed["stock"][0].count, narrowed["none"].len()), (2, 0), "only of the group");

    // The error is known from now on, and observed while its alert is open, or was not stored for long.
    let labels: AlertLabels = [("fingerprint".to_owned(), groups[0].fingerprint.clone())].into();
    let id = Alert::id_of("new-group", &labels);
    let known = Alert { id, labels, rule: "new-group".into(), updated_at: Timestamp::now(), ..alert("x") };
    harness.record(&[change(known.clone(), &[])]).await;
    assert_eq!(harness.observed().await.groups["new-group"].len(), 1, "open");
    let known = next(&known, AlertState::Resolved);
    harness.record(&[change(known.clone(), &[])]).await;
    assert_eq!(harness.observed().await.groups["new-group"], []);
    let before = Timestamp::now().as_millis() - ALERT_MEMORY.as_millis() as i64 - 1;
    let updated_at = Timestamp::from_millis(before);
    harness.record(&[change(Alert { updated_at, ..next(&known, AlertState::Resolved) }, &[])]).await;
    assert_eq!(harness.observed().await.groups["new-group"].len(), 1, "to be remembered");

    harness.redrive_all().await;
    assert_eq!(harness.observed().await.parked.len(), 2, "a redriven letter may fail again");
    harness.drain(&group("stock")).await;
    harness.drain(&group("mail")).await;
    let seen = harness.observed().await;
    assert!(seen.parked.is_empty() && seen.keys.is_empty() && seen.groups["new-group"].is_empty(), "{seen:?}");
}
