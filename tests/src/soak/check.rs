//! The result of a soak: the processes' events and the tables, compared by the history checker.

use std::collections::{BTreeMap, HashMap, HashSet};

use landfall::{Key, Message, MessageId, Position};
use landfall_testkit::history::{Event as Happened, History, Report, check};

use super::handler::parse;
use super::ledger::Entry;
use super::order::Order;
use crate::history::Event;
use crate::sequence_check::bad_sequences;

#[derive(Debug, Default)]
pub struct SoakReport {
    /// Lost, phantom, duplicate and reordered messages.
    pub report: Report,
    /// Results of writers that contradict the database: a lost commit, a rollback that is stored, an operation that is
    /// stored twice.
    pub contradicted: Vec<MessageId>,
    /// Accounts whose effects are not exactly 1, 2, 3… up to the committed number; in any order if there is none.
    pub bad_sequences: Vec<String>,
    /// Messages that took effect after a later one of their account, where no order is promised.
    pub overtaken: usize,
    /// Epochs of a shard under which more than one process settled.
    pub shared_epochs: Vec<(u16, i64)>,
    pub rolled_back: usize,
    /// Messages of commits with an unknown outcome, and those that were found committed.
    pub unknown: usize,
    pub unknown_committed: usize,
    /// Messages whose writer was killed before it could report the outcome, and those that were committed.
    pub unanswered: usize,
    pub unanswered_committed: usize,
}

impl SoakReport {
    pub fn is_clean(&self) -> bool {
        self.report.is_clean()
            && self.contradicted.is_empty()
            && self.bad_sequences.is_empty()
            && self.shared_epochs.is_empty()
            && self.report.ok > 0
    }
}

/// The events of one operation's message.
#[derive(Debug, Default)]
struct Track {
    key: String,
    invoked: usize,
    failed: usize,
    is_ok: bool,
}

/// Checks a soak. `histories` are the events of each process, `effects` those of each group that receives all messages.
pub fn check_history(
    order: Order,
    histories: &[Vec<Event>],
    sent: &[Entry],
    effects: &[(&str, &[Entry])],
) -> SoakReport {
    let mut soak_report = SoakReport { shared_epochs: shared_epochs(histories), ..SoakReport::default() };
    let tracks = soak_report.track(histories);
    let mut committed: HashMap<MessageId, Vec<&Entry>> = HashMap::new();
    for entry in sent {
        committed.entry(entry.token).or_default().push(entry);
    }
    for (token, track) in &tracks {
        let times = committed.get(token).map_or(0, Vec::len);
        let is_answered = track.is_ok || track.failed >= track.invoked;
        if !is_answered {
            soak_report.unanswered += 1;
            soak_report.unanswered_committed += times.min(1);
        }
        if track.is_ok && times != 1 || is_answered && !track.is_ok && times != 0 || times > 1 {
            soak_report.contradicted.push(*token);
        }
    }
    let unreported = committed.keys().filter(|token| !tracks.contains_key(token));
    soak_report.contradicted.extend(unreported);

    // Writers of one account in several processes have no common clock. So all events have the same time, and the
    // numbers that were assigned under the account's lock define the order.
    let mut history = History::new(effects.iter().map(|(group, _)| *group));
    for (id, track) in tracks {
        let entry = committed.get(&id).and_then(|entries| entries.first());
        let sequence = entry.map(|entry| entry.number);
        history.push_at(1, Happened::Invoke { id, key: Key::new(&track.key).ok(), sequence });
        history.push_at(1, if entry.is_some() { Happened::Ok { id } } else { Happened::Failed { id } });
    }
    for (group, applied) in effects {
        for effect in *applied {
            history.effect(group, effect.token, Key::new(&effect.account).ok());
        }
    }
    soak_report.report = check(&history);
    if order == Order::None {
        soak_report.overtaken = std::mem::take(&mut soak_report.report.reordered).len();
    }
    for (group, applied) in effects {
        let bad_sequences = bad_sequences(
            order == Order::Key,
            sent.iter().map(|entry| entry.account.as_str()),
            applied.iter().map(|entry| (entry.account.as_str(), entry.number)),
        );
        soak_report.bad_sequences.extend(bad_sequences.into_iter().map(|bad| format!("{group}, {bad}")));
    }
    soak_report
}

impl SoakReport {
    fn track(&mut self, histories: &[Vec<Event>]) -> HashMap<MessageId, Track> {
        let mut tracks: HashMap<MessageId, Track> = HashMap::new();
        for event in histories.iter().flatten() {
            match event {
                Event::Invoke { id, key } => {
                    let track = tracks.entry(*id).or_default();
                    track.key.clone_from(key);
                    track.invoked += 1;
                }
                Event::Ok { id } => tracks.entry(*id).or_default().is_ok = true,
                Event::Failed { id } => {
                    self.rolled_back += 1;
                    tracks.entry(*id).or_default().failed += 1;
                }
                Event::Unknown { .. } => self.unknown += 1,
                Event::Resolved { id, committed } => {
                    let track = tracks.entry(*id).or_default();
                    self.unknown_committed += usize::from(*committed);
                    track.is_ok |= committed;
                    track.failed += usize::from(!committed);
                }
                Event::Ready | Event::Stopped | Event::Settled { .. } => {}
            }
        }
        tracks
    }
}

fn shared_epochs(histories: &[Vec<Event>]) -> Vec<(u16, i64)> {
    let mut holders: BTreeMap<(u16, i64), usize> = BTreeMap::new();
    for event in histories.iter().flatten() {
        // Each process reports each of its epochs once.
        if let Event::Settled { shard, epoch } = event {
            *holders.entry((*shard, *epoch)).or_default() += 1;
        }
    }
    holders.into_iter().filter(|(_, holders)| *holders > 1).map(|(epoch, _)| epoch).collect()
}

/// Accounts that the relays published out of order, duplicates ignored: these are not faults of the consumer.
pub fn disorder_at_broker(published: &[(Position, Message)]) -> Vec<String> {
    let mut accounts: BTreeMap<&str, Vec<(i64, u64)>> = BTreeMap::new();
    let mut seen = HashSet::new();
    for (position, message) in published {
        let (Some(key), Some((_, _, number))) = (&message.key, parse(&message.payload)) else { continue };
        if seen.insert(message.id) {
            accounts.entry(key.as_str()).or_default().push((number, position.offset));
        }
    }
    let mut disorder = Vec::new();
    for (account, arrivals) in accounts {
        for (index, pair) in arrivals.windows(2).enumerate() {
            if pair[1].0 < pair[0].0 {
                let around = &arrivals[index.saturating_sub(2)..arrivals.len().min(index + 5)];
                let numbers: Vec<_> = around.iter().map(|(number, _)| *number).collect();
                disorder.push(format!("{account}: … {numbers:?} … at offset {}", pair[1].1));
            }
        }
    }
    disorder
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setup::GROUP;

    fn check_one_group(order: Order, histories: &[Vec<Event>], sent: &[Entry], applied: &[Entry]) -> SoakReport {
        check_history(order, histories, sent, &[(GROUP, applied)])
    }

    fn entry(token: MessageId, number: i64) -> Entry {
        Entry { token, account: "account-1".into(), number }
    }

    fn invoke(id: MessageId) -> Event {
        Event::Invoke { id, key: "account-1".into() }
    }

    #[test]
    fn commit_found_later_counts_as_committed() {
        let (reported, found, repeated) = (MessageId::new(), MessageId::new(), MessageId::new());
        let history = vec![
            invoke(reported),
            Event::Ok { id: reported },
            invoke(found),
            Event::Unknown { id: found },
            Event::Resolved { id: found, committed: true },
            invoke(repeated),
            Event::Unknown { id: repeated },
            Event::Resolved { id: repeated, committed: false },
            invoke(repeated),
            Event::Ok { id: repeated },
        ];
        let histories = [history];
        let all = [entry(reported, 1), entry(found, 2), entry(repeated, 3)];
        let soak_report = check_one_group(Order::Key, &histories, &all, &all);
        assert!(soak_report.is_clean(), "{soak_report:?}");
        assert_eq!((soak_report.unknown, soak_report.unknown_committed), (2, 1));
        // Found but missing; not found but stored twice; without an effect.
        assert_eq!(check_one_group(Order::Key, &histories, &all[..1], &all[..1]).contradicted.len(), 2);
        let twice = [entry(reported, 1), entry(found, 2), entry(repeated, 3), entry(repeated, 4)];
        let soak_report = check_one_group(Order::Key, &histories, &twice, &twice);
        assert_eq!((soak_report.contradicted, soak_report.report.doubled.len()), (vec![repeated], 1));
        let soak_report = check_one_group(Order::Key, &histories, &all, &all[..2]);
        assert_eq!((soak_report.report.lost.len(), soak_report.bad_sequences.len()), (1, 1));
    }

    #[test]
    fn effects_out_of_order_are_detected_across_writers() {
        let (one, two) = (MessageId::new(), MessageId::new());
        let histories = [vec![invoke(two), Event::Ok { id: two }], vec![invoke(one), Event::Ok { id: one }]];
        let (sent, applied) = ([entry(one, 1), entry(two, 2)], [entry(two, 2), entry(one, 1)]);
        assert!(check_one_group(Order::Key, &histories, &sent, &sent).is_clean());
        let soak_report = check_one_group(Order::Key, &histories, &sent, &applied);
        assert_eq!((soak_report.report.reordered.len(), soak_report.bad_sequences.len()), (1, 1));
        // Without order it is counted but not a fault; a missing effect is a fault.
        let soak_report = check_one_group(Order::None, &histories, &sent, &applied);
        assert!(soak_report.is_clean() && soak_report.overtaken == 1, "{soak_report:?}");
        let soak_report = check_one_group(Order::None, &histories, &sent, &applied[..1]);
        assert_eq!((soak_report.report.lost.len(), soak_report.bad_sequences.len()), (1, 1));
    }

    #[test]
    fn effect_missing_in_one_group_is_reported() {
        let id = MessageId::new();
        let (histories, sent) = ([vec![invoke(id), Event::Ok { id }]], [entry(id, 1)]);
        let check = |pushed| check_history(Order::Key, &histories, &sent, &[(GROUP, &sent), ("mailer", pushed)]);
        assert!(check(&sent).is_clean());
        let soak_report = check(&[]);
        assert_eq!((soak_report.report.lost.len(), soak_report.bad_sequences.len()), (1, 1));
    }

    #[test]
    fn epoch_shared_by_two_processes_is_reported() {
        let settled = |epoch| Event::Settled { shard: 3, epoch };
        assert_eq!(shared_epochs(&[vec![settled(1), settled(3)], vec![settled(2), settled(3)]]), [(3, 3)]);
    }
}
