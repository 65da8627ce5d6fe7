use proptest::prelude::*;

use super::*;
use crate::{LetterObservations, ObservedGroup, ParkedLetters};

const CHANNEL: &str = "chat";

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_millis(1_700_000_000_000 + seconds as i64 * 1000)
}

fn rule(kind: AlertKind) -> AlertRule {
    AlertRule { channels: vec![CHANNEL.into()], ..AlertRule::built_in(kind) }
}

/// Parked letters of one topic, of which `newest` was recorded last.
fn parked(count: u64, newest: i64) -> AlertObservations {
    let one =
        ParkedLetters { topic: "orders".into(), group: "mailer".into(), count, oldest: 1, newest, oldest_at: at(0) };
    let letters = LetterObservations { parked: (count > 0).then_some(one).into_iter().collect(), ..Default::default() };
    AlertObservations { letters: Some(letters), ..Default::default() }
}

fn with_group(fingerprint: &str) -> AlertObservations {
    let group = ObservedGroup {
        fingerprint: fingerprint.into(),
        count: 1,
        sample: 7,
        topic: "orders".into(),
        group: "mailer".into(),
        error_code: "HTTP_500".into(),
        error: "broken".into(),
    };
    let groups = if fingerprint.is_empty() { Vec::new() } else { vec![group] };
    let groups = [("new-group".to_owned(), groups)].into();
    AlertObservations { letters: Some(LetterObservations { groups, ..Default::default() }), ..Default::default() }
}

/// The stored alerts, and a clock.
#[derive(Default)]
struct World {
    stored: Vec<Alert>,
}

impl World {
    /// Evaluates at a time, stores the changes, and returns the kinds of the notices.
    fn pass(&mut self, rule: &AlertRule, seen: &AlertObservations, seconds: u64) -> Vec<NoticeKind> {
        let rules = std::slice::from_ref(rule);
        let conditions = AlertConditions::new(rules, seen, at(seconds));
        let changes = evaluate_alerts(rules, &conditions, &self.stored, at(seconds));
        let mut notices = Vec::new();
        for change in changes {
            let known = self.stored.iter().position(|alert| alert.id == change.alert.id);
            let before = known.map_or(0, |place| self.stored.remove(place).version);
            assert_eq!(change.alert.version, before + 1, "the version does not follow the stored one");
            notices.extend(change.notices.into_iter().map(|(channel, kind)| {
                assert_eq!(channel, CHANNEL);
                kind
            }));
            self.stored.push(change.alert);
        }
        notices
    }

    fn only(&self) -> &Alert {
        let alerts: Vec<_> = self.stored.iter().filter(|alert| alert.state != AlertState::Rule).collect();
        assert_eq!(alerts.len(), 1, "{alerts:?}");
        alerts[0]
    }
}

const NONE: [NoticeKind; 0] = [];
const FIRING: [NoticeKind; 1] = [NoticeKind::Firing];
const RESOLVED: [NoticeKind; 1] = [NoticeKind::Resolved];

#[test]
fn alert_fires_once_and_resolves_once() {
    let (mut world, rule) = (World::default(), rule(AlertKind::DeadLetter));
    assert_eq!(world.pass(&rule, &parked(0, 0), 0), NONE);
    assert_eq!(world.pass(&rule, &parked(1, 1), 5), FIRING);
    assert_eq!(world.only().summary, "1 dead letter of topic orders, group mailer is parked");
    assert_eq!(world.only().subject(), "group=mailer topic=orders");
    for seconds in [10, 15, 1000] {
        assert_eq!(world.pass(&rule, &parked(1, 1), seconds), NONE, "{seconds}");
    }
    assert_eq!(world.pass(&rule, &parked(0, 0), 1005), RESOLVED);
    assert_eq!(world.pass(&rule, &parked(0, 0), 1010), NONE);
}

#[test]
fn half_messages_that_need_a_person_fire_and_resolve() {
    let (mut world, rule) = (World::default(), rule(AlertKind::HalfMessage));
    let waiting = |count| AlertObservations { half_messages: Some(count), ..Default::default() };
    assert_eq!(world.pass(&rule, &waiting(0), 0), NONE);
    assert_eq!(world.pass(&rule, &waiting(1), 5), FIRING);
    assert_eq!(world.only().summary, "1 half messages are parked or contradicted and need a person");
    assert_eq!(world.pass(&rule, &AlertObservations::default(), 10), NONE, "unknown is not resolved");
    assert_eq!(world.pass(&rule, &waiting(0), 15), RESOLVED);
}

#[test]
fn condition_must_hold_before_the_alert_fires() {
    let mut world = World::default();
    let rule = AlertRule { hold_for: Duration::from_secs(60), ..rule(AlertKind::DeadLetter) };
    assert_eq!(world.pass(&rule, &parked(1, 1), 0), NONE);
    assert_eq!(world.only().state, AlertState::Pending);
    assert_eq!(world.pass(&rule, &parked(0, 0), 30), NONE, "it never fired");
    assert_eq!(world.pass(&rule, &parked(1, 2), 40), NONE, "the time begins again");
    assert_eq!(world.pass(&rule, &parked(1, 2), 99), NONE);
    assert_eq!(world.pass(&rule, &parked(1, 2), 100), FIRING);
}

#[test]
fn further_letters_are_reported_after_the_quiet_period() {
    let (mut world, rule) = (World::default(), rule(AlertKind::DeadLetter));
    assert_eq!(world.pass(&rule, &parked(1, 1), 0), FIRING);
    assert_eq!(world.pass(&rule, &parked(2, 2), 10), NONE, "quiet");
    assert_eq!(world.pass(&rule, &parked(3, 3), 300), FIRING, "five minutes later");
    assert_eq!(world.pass(&rule, &parked(3, 3), 900), NONE, "nothing new");
    assert_eq!(world.pass(&rule, &parked(2, 9), 905), FIRING, "one was redriven and another recorded");
    assert_eq!(world.pass(&rule, &parked(2, 9), 905 + 4 * 3600), FIRING, "repeated");
    let never = AlertRule { repeat: None, ..rule };
    assert_eq!(world.pass(&never, &parked(2, 9), 1_000_000), NONE);
}

#[test]
fn flapping_alert_is_quiet() {
    let (mut world, rule) = (World::default(), rule(AlertKind::DeadLetter));
    assert_eq!(world.pass(&rule, &parked(1, 1), 0), FIRING);
    assert_eq!(world.pass(&rule, &parked(0, 0), 5), RESOLVED);
    assert_eq!(world.pass(&rule, &parked(1, 2), 10), NONE, "quiet, but firing");
    assert_eq!(world.only().state, AlertState::Firing);
    assert_eq!(world.pass(&rule, &parked(0, 0), 15), NONE, "what was not reported is not resolved");
    assert_eq!(world.pass(&rule, &parked(1, 3), 20), NONE);
    assert_eq!(world.pass(&rule, &parked(1, 3), 300), FIRING, "the quiet period delays a notice, and loses none");
}

#[test]
fn mute_delays_firing_and_not_resolved() {
    let (mut world, rule) = (World::default(), rule(AlertKind::DeadLetter));
    assert_eq!(world.pass(&rule, &parked(1, 1), 0), FIRING);
    world.stored[0].muted_until = Some(at(1000));
    assert_eq!(world.pass(&rule, &parked(5, 5), 500), NONE);
    assert_eq!(world.pass(&rule, &parked(0, 0), 505), RESOLVED, "its receiver may wait for it");
    assert_eq!(world.pass(&rule, &parked(1, 6), 900), NONE, "muted");
    assert_eq!(world.pass(&rule, &parked(1, 6), 1000), FIRING, "the mute has ended");

    let (mut world, mut row) = (World::default(), Alert::of_rule(&rule.name, at(0)));
    row.muted_until = Some(at(100));
    world.stored.push(row);
    assert_eq!(world.pass(&rule, &parked(1, 1), 0), NONE, "the rule is muted");
    assert_eq!(world.pass(&rule, &parked(1, 1), 100), FIRING);
}

#[test]
fn uncertain_records_fire_until_a_person_has_resolved_them() {
    let (mut world, rule) = (World::default(), rule(AlertKind::IdempotencyUncertain));
    let seen = |count| AlertObservations { uncertain_records: count, ..Default::default() };
    assert_eq!(world.pass(&rule, &seen(Some(0)), 0), NONE);
    assert_eq!(world.pass(&rule, &seen(Some(1)), 5), FIRING);
    assert_eq!(world.only().summary, "1 idempotency records are uncertain and need a person");
    assert_eq!(world.pass(&rule, &seen(None), 10), NONE, "a store that does not answer resolves nothing");
    assert_eq!(world.pass(&rule, &seen(Some(1)), 15), NONE);
    assert_eq!(world.pass(&rule, &seen(Some(0)), 20), RESOLVED);
}

#[test]
fn unknown_is_neither_firing_nor_resolved() {
    let (mut world, rule) = (World::default(), rule(AlertKind::DeadLetter));
    assert_eq!(world.pass(&rule, &parked(1, 1), 0), FIRING);
    assert_eq!(world.pass(&rule, &AlertObservations::default(), 5), NONE);
    assert_eq!(world.only().state, AlertState::Firing);
}

#[test]
fn only_errors_after_the_first_pass_are_new() {
    let (mut world, rule) = (World::default(), rule(AlertKind::NewGroup));
    assert_eq!(world.pass(&rule, &with_group("1-old"), 0), NONE, "known before the rule");
    assert_eq!(world.pass(&rule, &with_group("1-new"), 5), FIRING);
    assert_eq!(world.pass(&rule, &with_group(""), 10), RESOLVED);
    assert_eq!(world.pass(&rule, &with_group("1-new"), 100_000), NONE, "it was seen before");
    assert_eq!(world.pass(&rule, &with_group("1-old"), 200_000), NONE);
    let mut fresh = World::default();
    assert_eq!(fresh.pass(&rule, &with_group(""), 0), NONE);
    assert_eq!(fresh.pass(&rule, &with_group("1-any"), 5), FIRING, "the first error of a new system");
}

#[test]
fn clock_that_was_ahead_delays_no_notice() {
    let mut world = World::default();
    let rule = AlertRule { hold_for: Duration::from_secs(60), ..rule(AlertKind::DeadLetter) };
    assert_eq!(world.pass(&rule, &parked(1, 1), 1_000_000), NONE);
    assert_eq!(world.pass(&rule, &parked(1, 1), 0), FIRING, "the clock was set back");
    assert_eq!(world.pass(&rule, &parked(2, 2), 5), NONE, "quiet");
    assert_eq!(world.pass(&rule, &parked(2, 2), 300), FIRING);
}

#[test]
fn rule_without_channels_is_reported_when_it_has_one() {
    let mut world = World::default();
    let silent = AlertRule::built_in(AlertKind::DeadLetter);
    assert_eq!(world.pass(&silent, &parked(1, 1), 0), NONE);
    assert_eq!(world.only().state, AlertState::Firing);
    assert_eq!(world.pass(&rule(AlertKind::DeadLetter), &parked(1, 1), 5), FIRING);
}

#[test]
fn removed_rule_resolves_its_alerts_in_silence() {
    let mut world = World::default();
    world.pass(&rule(AlertKind::DeadLetter), &parked(1, 1), 0);
    assert_eq!(world.pass(&rule(AlertKind::OutboxAge), &parked(1, 1), 5), NONE);
    assert_eq!(world.only().state, AlertState::Resolved);
}

#[test]
fn filters_select_topics_and_groups() {
    let topic = |name: &str| Some(crate::TopicName::new(name).unwrap());
    let conditions = |topic| {
        let rule = AlertRule { topic, ..rule(AlertKind::DeadLetter) };
        alert_conditions(&rule, &parked(1, 1), at(0)).unwrap().len()
    };
    assert_eq!((conditions(topic("orders")), conditions(topic("other")), conditions(None)), (1, 0, 1));
}

/// A mistake that an evaluator could make.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Planted {
    Nothing,
    IgnoresQuiet,
    /// As after a restart of a daemon that keeps its state in memory.
    ForgetsState,
    ResolvesUnreported,
    /// Counts a notice as made that the quiet period delayed.
    LosesDelayed,
}

/// A pause in seconds, how many letters are parked after it, and whether one of them is new.
type Step = (u64, u64, bool);

/// Runs a history and checks its notices: firing and resolved alternate but for repetitions, no two firing notices are
/// closer than the quiet period, and no condition that lasts stays unreported.
fn check(planted: Planted, steps: &[Step]) -> Result<(), String> {
    let (mut world, rule) = (World::default(), rule(AlertKind::DeadLetter));
    let quiet = rule.quiet.as_secs();
    let evaluated = match planted {
        Planted::IgnoresQuiet => AlertRule { quiet: Duration::ZERO, ..rule },
        _ => rule,
    };
    let (mut seconds, mut newest, mut open) = (0, 0, false);
    let mut last_firing: Option<u64> = None;
    let end = (quiet, 1, true);
    for (pause, count, is_new) in steps.iter().chain([&end]) {
        seconds += pause;
        newest += i64::from(*is_new);
        match planted {
            Planted::ForgetsState => world.stored.clear(),
            Planted::ResolvesUnreported => {
                world.stored.iter_mut().for_each(|alert| alert.notified_at = alert.firing_since.or(alert.notified_at));
            }
            Planted::LosesDelayed => {
                let unreported = world.stored.iter_mut().filter(|alert| alert.state == AlertState::Firing);
                unreported.for_each(|alert| (alert.notified_value, alert.notified_sample) = (*count, Some(newest)));
            }
            Planted::Nothing | Planted::IgnoresQuiet => {}
        }
        for kind in world.pass(&evaluated, &parked(*count, newest), seconds) {
            match kind {
                NoticeKind::Firing => {
                    if last_firing.is_some_and(|last| seconds - last < quiet) {
                        return Err(format!("two notices within {quiet} s, at {seconds} s"));
                    }
                    (last_firing, open) = (Some(seconds), true);
                }
                NoticeKind::Resolved if !open => return Err("resolved without firing".into()),
                NoticeKind::Resolved => open = false,
            }
        }
        if *count == 0 && open {
            return Err("the condition ended and the receiver was not told".into());
        }
    }
    // The last letter is new, and the quiet period is over.
    if last_firing != Some(seconds) {
        return Err("the last letter was not reported".into());
    }
    Ok(())
}

#[test]
fn planted_evaluators_are_found() {
    let flapping = [(1, 1, true), (5, 0, false), (5, 1, true), (5, 0, false), (5, 2, true)];
    assert_eq!(check(Planted::Nothing, &flapping), Ok(()));
    for planted in [Planted::IgnoresQuiet, Planted::ForgetsState, Planted::ResolvesUnreported] {
        assert!(check(planted, &flapping).is_err(), "{planted:?} was not found");
    }
    assert!(check(Planted::LosesDelayed, &[(1, 1, true), (5, 2, true)]).is_err());
}

proptest! {
    #[test]
    fn notices_follow_the_rules(steps in prop::collection::vec((1_u64..200, 0_u64..4, any::<bool>()), 1..80)) {
        prop_assert_eq!(check(Planted::Nothing, &steps), Ok(()));
    }
}
