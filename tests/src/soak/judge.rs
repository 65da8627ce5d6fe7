//! What became of a soak: what the processes said and what stands in the tables, judged by the history checker.

use std::collections::{BTreeMap, HashMap, HashSet};

use landfall::{Key, Message, MessageId, Position};
use landfall_testkit::history::{Event as Happened, History, Report, check};

use super::handler::parse;
use super::ledger::Entry;
use super::order::Order;
use crate::history::Event;
use crate::setup::GROUP;

#[derive(Debug, Default)]
pub struct Judgement {
    /// Lost, phantom, doubled, reordered.
    pub report: Report,
    /// What a writer was told and the database does not confirm: a commit that is gone, a rollback that is there, one
    /// operation that is there twice.
    pub contradicted: Vec<MessageId>,
    /// Accounts whose effects are not exactly 1, 2, 3… up to what was committed, in any sequence if there is no order.
    pub uneven: Vec<String>,
    /// Messages that came after a later one of their account where nothing had to be in order.
    pub overtaken: usize,
    /// Epochs of a shard under which more than one process settled.
    pub shared_epochs: Vec<(u16, i64)>,
    pub rolled_back: usize,
    /// Messages under a commit that broke off, and how many of them were there when somebody looked.
    pub unknown: usize,
    pub unknown_committed: usize,
    /// Messages whose writer died before it could tell, and how many of them were committed.
    pub unanswered: usize,
    pub unanswered_committed: usize,
}

impl Judgement {
    pub fn is_clean(&self) -> bool {
        self.report.is_clean()
            && self.contradicted.is_empty()
            && self.uneven.is_empty()
            && self.shared_epochs.is_empty()
            && self.report.ok > 0
    }
}

/// What was said of one operation's message.
#[derive(Debug, Default)]
struct Track {
    key: String,
    invoked: usize,
    failed: usize,
    is_ok: bool,
}

/// `lives` is what each process said.
pub fn judge(order: Order, lives: &[Vec<Event>], sent: &[Entry], applied: &[Entry]) -> Judgement {
    let mut judgement = Judgement { shared_epochs: shared_epochs(lives), ..Judgement::default() };
    let tracks = judgement.follow(lives);
    let mut committed: HashMap<MessageId, Vec<&Entry>> = HashMap::new();
    for entry in sent {
        committed.entry(entry.token).or_default().push(entry);
    }
    for (token, track) in &tracks {
        let times = committed.get(token).map_or(0, Vec::len);
        let is_answered = track.is_ok || track.failed >= track.invoked;
        if !is_answered {
            judgement.unanswered += 1;
            judgement.unanswered_committed += times.min(1);
        }
        if track.is_ok && times != 1 || is_answered && !track.is_ok && times != 0 || times > 1 {
            judgement.contradicted.push(*token);
        }
    }
    let unheard_of = committed.keys().filter(|token| !tracks.contains_key(token));
    judgement.contradicted.extend(unheard_of);

    // Who writes for one account in several processes has no common clock: everything happens at one time, and the
    // numbers that were taken under the account's lock are the order.
    let mut history = History::new([GROUP]);
    for (id, track) in tracks {
        let entry = committed.get(&id).and_then(|entries| entries.first());
        let sequence = entry.map(|entry| entry.number);
        history.push_at(1, Happened::Invoke { id, key: Key::new(&track.key).ok(), sequence });
        history.push_at(1, if entry.is_some() { Happened::Ok { id } } else { Happened::Failed { id } });
    }
    for effect in applied {
        history.effect(GROUP, effect.token, Key::new(&effect.account).ok());
    }
    judgement.report = check(&history);
    if order == Order::None {
        judgement.overtaken = std::mem::take(&mut judgement.report.reordered).len();
    }
    judgement.uneven = uneven(order, sent, applied);
    judgement
}

impl Judgement {
    fn follow(&mut self, lives: &[Vec<Event>]) -> HashMap<MessageId, Track> {
        let mut tracks: HashMap<MessageId, Track> = HashMap::new();
        for event in lives.iter().flatten() {
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

fn shared_epochs(lives: &[Vec<Event>]) -> Vec<(u16, i64)> {
    let mut holders: BTreeMap<(u16, i64), usize> = BTreeMap::new();
    for event in lives.iter().flatten() {
        // Each process tells of each of its epochs once.
        if let Event::Settled { shard, epoch } = event {
            *holders.entry((*shard, *epoch)).or_default() += 1;
        }
    }
    holders.into_iter().filter(|(_, holders)| *holders > 1).map(|(epoch, _)| epoch).collect()
}

/// Where the relays put an account out of order, copies left out: the consumer is not to blame for these.
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
        for (place, pair) in arrivals.windows(2).enumerate() {
            if pair[1].0 < pair[0].0 {
                let around = &arrivals[place.saturating_sub(2)..arrivals.len().min(place + 5)];
                let numbers: Vec<_> = around.iter().map(|(number, _)| *number).collect();
                disorder.push(format!("{account}: … {numbers:?} … at offset {}", pair[1].1));
            }
        }
    }
    disorder
}

fn uneven(order: Order, sent: &[Entry], applied: &[Entry]) -> Vec<String> {
    let mut accounts: BTreeMap<&str, (i64, Vec<i64>)> = BTreeMap::new();
    for entry in sent {
        accounts.entry(&entry.account).or_default().0 += 1;
    }
    for entry in applied {
        accounts.entry(&entry.account).or_default().1.push(entry.number);
    }
    let mut uneven = Vec::new();
    for (account, (committed, mut numbers)) in accounts {
        if order == Order::None {
            numbers.sort_unstable();
        }
        let wrong = numbers.iter().zip(1..).position(|(number, expected)| *number != expected);
        if let Some(place) = wrong {
            let found = &numbers[place.saturating_sub(2)..numbers.len().min(place + 5)];
            uneven.push(format!("{account}: … {found:?} … at effect {}", place + 1));
        } else if numbers.len() as i64 != committed {
            uneven.push(format!("{account}: {} effects of {committed} committed", numbers.len()));
        }
    }
    uneven
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(token: MessageId, number: i64) -> Entry {
        Entry { token, account: "account-1".into(), number }
    }

    fn invoke(id: MessageId) -> Event {
        Event::Invoke { id, key: "account-1".into() }
    }

    #[test]
    fn a_commit_that_is_found_is_as_good_as_one_that_was_told() {
        let (told, found, done_again) = (MessageId::new(), MessageId::new(), MessageId::new());
        let life = vec![
            invoke(told),
            Event::Ok { id: told },
            invoke(found),
            Event::Unknown { id: found },
            Event::Resolved { id: found, committed: true },
            invoke(done_again),
            Event::Unknown { id: done_again },
            Event::Resolved { id: done_again, committed: false },
            invoke(done_again),
            Event::Ok { id: done_again },
        ];
        let all = [entry(told, 1), entry(found, 2), entry(done_again, 3)];
        let judgement = judge(Order::Key, std::slice::from_ref(&life), &all, &all);
        assert!(judgement.is_clean(), "{judgement:?}");
        assert_eq!((judgement.unknown, judgement.unknown_committed), (2, 1));
        // What was found and is gone, what was not found and is there twice, what never took effect.
        assert_eq!(judge(Order::Key, std::slice::from_ref(&life), &all[..1], &all[..1]).contradicted.len(), 2);
        let twice = [entry(told, 1), entry(found, 2), entry(done_again, 3), entry(done_again, 4)];
        let judgement = judge(Order::Key, std::slice::from_ref(&life), &twice, &twice);
        assert_eq!((judgement.contradicted, judgement.report.doubled.len()), (vec![done_again], 1));
        let judgement = judge(Order::Key, &[life], &all, &all[..2]);
        assert_eq!((judgement.report.lost.len(), judgement.uneven.len()), (1, 1));
    }

    #[test]
    fn numbers_out_of_order_are_seen_whoever_wrote_them() {
        let (one, two) = (MessageId::new(), MessageId::new());
        let lives = [vec![invoke(two), Event::Ok { id: two }], vec![invoke(one), Event::Ok { id: one }]];
        let (sent, applied) = ([entry(one, 1), entry(two, 2)], [entry(two, 2), entry(one, 1)]);
        assert!(judge(Order::Key, &lives, &sent, &sent).is_clean());
        let judgement = judge(Order::Key, &lives, &sent, &applied);
        assert_eq!((judgement.report.reordered.len(), judgement.uneven.len()), (1, 1));
        // Without order it is counted, and no fault; what is missing still is one.
        let judgement = judge(Order::None, &lives, &sent, &applied);
        assert!(judgement.is_clean() && judgement.overtaken == 1, "{judgement:?}");
        let judgement = judge(Order::None, &lives, &sent, &applied[..1]);
        assert_eq!((judgement.report.lost.len(), judgement.uneven.len()), (1, 1));
    }

    #[test]
    fn an_epoch_that_two_processes_settled_under_is_named() {
        let settled = |epoch| Event::Settled { shard: 3, epoch };
        assert_eq!(shared_epochs(&[vec![settled(1), settled(3)], vec![settled(2), settled(3)]]), [(3, 3)]);
    }
}
