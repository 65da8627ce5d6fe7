//! The checker: one pass over the effects of each group.

use std::collections::HashMap;

use super::report::{Reordered, Report, Violation};
use super::{Effect, History, LogicalTime};
use crate::{Key, MessageId};

/// Compares sends with effects, in time and memory linear in the length of the history.
///
/// * **lost**: a message that was ok and has no effect in a group;
/// * **phantom**: an effect of a message that failed or was never sent;
/// * **doubled**: a message with more than one effect in a group;
/// * **reordered**: two messages of one key, the first ok before the second was invoked, whose effects are in the
///   opposite order; and, where messages have sequences, a sequence that does not exceed an earlier one of its key.
///   Each late message is reported once, with one message that overtook it.
///
/// A message with an unknown outcome may take effect or not. Sends that overlap in time may take effect in any order.
pub fn check(history: &History) -> Report {
    let mut report = Report { messages: history.sends.len(), ..Report::default() };
    for send in history.sends.values() {
        match (send.ok, send.is_failed()) {
            (Some(_), _) => report.ok += 1,
            (None, true) => report.failed += 1,
            (None, false) => report.unknown += 1,
        }
    }
    // Without groups and effects every message is lost, and must be reported as such.
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
    let violation =
        |id, key: &Option<Key>, effects| Violation { group: group.to_owned(), id, key: key.clone(), effects };
    for effect in effects {
        let count = seen.entry(effect.id).or_default();
        *count += 1;
        // Only the first effect of a message is checked for order; the others are reported as doubled.
        if *count > 1 {
            continue;
        }
        let send = history.sends.get(&effect.id).filter(|send| !send.is_failed());
        let Some((send, invoked)) = send.and_then(|send| Some((send, send.invoked?))) else {
            report.phantom.push(violation(effect.id, &effect.key, 1));
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
        // Taking the count reports each message once, at its first effect.
        let count = seen.get_mut(&effect.id).map(std::mem::take).filter(|count| *count > 1)?;
        Some(violation(effect.id, &effect.key, count))
    });
    report.doubled.extend(doubled);

    let mut lost: Vec<(LogicalTime, Violation)> = history
        .sends
        .iter()
        .filter(|(id, send)| send.ok.is_some() && !seen.contains_key(id))
        .map(|(id, send)| (send.invoked.unwrap_or_default(), violation(*id, &send.key, 0)))
        .collect();
    lost.sort_by_key(|(invoked, lost)| (*invoked, lost.id));
    report.lost.extend(lost.into_iter().map(|(_, lost)| lost));
}

/// The applied messages of one key, summarized: the one invoked last, and the one with the highest sequence.
#[derive(Default)]
struct KeyOrder {
    invoked_last: Option<(LogicalTime, MessageId)>,
    highest: Option<(i64, MessageId)>,
}

impl KeyOrder {
    /// Applies the next effect. Returns an earlier effect that overtook it, if any.
    fn apply(
        &mut self,
        id: MessageId,
        invoked: LogicalTime,
        ok: Option<LogicalTime>,
        sequence: Option<i64>,
    ) -> Option<MessageId> {
        // If any earlier effect was invoked after this message was ok, then so was the one invoked last.
        let by_time = self.invoked_last.filter(|(last, _)| ok.is_some_and(|ok| ok < *last)).map(|(_, id)| id);
        let by_sequence =
            self.highest.filter(|(highest, _)| sequence.is_some_and(|own| own <= *highest)).map(|(_, id)| id);
        if self.invoked_last.is_none_or(|(last, _)| last < invoked) {
            self.invoked_last = Some((invoked, id));
        }
        if let Some(sequence) = sequence
            && self.highest.is_none_or(|(highest, _)| highest < sequence)
        {
            self.highest = Some((sequence, id));
        }
        by_time.or(by_sequence)
    }
}
