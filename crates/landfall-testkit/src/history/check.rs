//! The rules, in one pass over the effects of each group.

use std::collections::HashMap;

use landfall_core::{Key, MessageId};

use super::report::{Named, Reordered, Report};
use super::{Effect, History, LogicalTime};

/// Compares what was sent with what took effect, in time and memory linear in the length of the history.
///
/// * **lost**: ok, and without effect in a group;
/// * **phantom**: an effect of what failed or was never sent;
/// * **doubled**: more than one effect in a group;
/// * **reordered**: two messages of one key, the first ok before the second was invoked, with effects the other way
///   round; and where a key's messages are numbered, a number that does not exceed one applied before. Each message
///   that came too late is named once, beside one that it should have come before.
///
/// A message whose outcome nobody knows may take effect or not; sends that overlap in time may take effect in any
/// order.
pub fn check(history: &History) -> Report {
    let mut report = Report { messages: history.sends.len(), ..Report::default() };
    for send in history.sends.values() {
        match (send.ok, send.is_failed()) {
            (Some(_), _) => report.ok += 1,
            (None, true) => report.failed += 1,
            (None, false) => report.unknown += 1,
        }
    }
    // Somebody who named no group and recorded no effect still wants to know that everything is lost.
    let unnamed = [(String::new(), Vec::new())];
    let groups = if history.effects.is_empty() { &unnamed[..] } else { &history.effects[..] };
    for (group, effects) in groups {
        check_group(history, group, effects, &mut report);
    }
    report
}

fn check_group(history: &History, group: &str, effects: &[Effect], report: &mut Report) {
    report.effects += effects.len();
    let mut seen: HashMap<MessageId, usize> = HashMap::with_capacity(effects.len());
    let mut keys: HashMap<&Key, KeyOrder> = HashMap::new();
    let named = |id, key: &Option<Key>, times| Named { group: group.to_owned(), id, key: key.clone(), times };
    for effect in effects {
        let times = seen.entry(effect.id).or_default();
        *times += 1;
        // Only the first effect of a message has a place in the order; the others are reported as doubled.
        if *times > 1 {
            continue;
        }
        let send = history.sends.get(&effect.id).filter(|send| !send.is_failed());
        let Some((send, invoked)) = send.and_then(|send| Some((send, send.invoked?))) else {
            report.phantom.push(named(effect.id, &effect.key, 1));
            continue;
        };
        let Some(key) = &send.key else { continue };
        let order = keys.entry(key).or_default();
        if let Some(overtaken_by) = order.apply(effect.id, invoked, send.ok, send.sequence) {
            let key = key.clone();
            report.reordered.push(Reordered { group: group.to_owned(), key, first: effect.id, overtaken_by });
        }
    }
    let doubled = effects.iter().filter_map(|effect| {
        // Taking the count away names each message once, at the place of its first effect.
        let times = seen.get_mut(&effect.id).map(std::mem::take).filter(|times| *times > 1)?;
        Some(named(effect.id, &effect.key, times))
    });
    report.doubled.extend(doubled);

    let mut lost: Vec<(LogicalTime, Named)> = history
        .sends
        .iter()
        .filter(|(id, send)| send.ok.is_some() && !seen.contains_key(id))
        .map(|(id, send)| (send.invoked.unwrap_or_default(), named(*id, &send.key, 0)))
        .collect();
    lost.sort_by_key(|(invoked, lost)| (*invoked, lost.id));
    report.lost.extend(lost.into_iter().map(|(_, lost)| lost));
}

/// What was applied so far of one key: the message that was invoked last, and the highest number.
#[derive(Default)]
struct KeyOrder {
    invoked_last: Option<(LogicalTime, MessageId)>,
    highest: Option<(i64, MessageId)>,
}

impl KeyOrder {
    /// Applies the next effect, and answers with an earlier one that it should have come before.
    fn apply(
        &mut self,
        id: MessageId,
        invoked: LogicalTime,
        ok: Option<LogicalTime>,
        sequence: Option<i64>,
    ) -> Option<MessageId> {
        // If any message applied before was invoked after this one was ok, then so was the one invoked last.
        let by_time = self.invoked_last.filter(|(last, _)| ok.is_some_and(|ok| ok < *last)).map(|(_, id)| id);
        let by_number =
            self.highest.filter(|(highest, _)| sequence.is_some_and(|own| own <= *highest)).map(|(_, id)| id);
        if self.invoked_last.is_none_or(|(last, _)| last < invoked) {
            self.invoked_last = Some((invoked, id));
        }
        if let Some(sequence) = sequence
            && self.highest.is_none_or(|(highest, _)| highest < sequence)
        {
            self.highest = Some((sequence, id));
        }
        by_time.or(by_number)
    }
}
