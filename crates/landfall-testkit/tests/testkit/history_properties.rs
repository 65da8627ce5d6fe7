//! Property tests of the history checker: correct runs are never reported, and planted violations always are.
//!
//! A run consists of messages, each with an interval from invocation to outcome and a commit time inside it. A correct
//! system applies effects in the order of commits, however the intervals overlap.

use landfall_core::{Key, MessageId};
use landfall_testkit::history::{Event, History, check};
use proptest::prelude::*;

#[derive(Debug, Clone, Copy, PartialEq)]
enum SendOutcome {
    Ok,
    Failed,
    UnknownAndCommitted,
    UnknownAndLost,
}

#[derive(Debug, Clone)]
struct Sent {
    id: MessageId,
    key: Option<Key>,
    invoked: u64,
    committed: u64,
    completed: u64,
    outcome: SendOutcome,
}

impl Sent {
    fn has_effect(&self) -> bool {
        matches!(self.outcome, SendOutcome::Ok | SendOutcome::UnknownAndCommitted)
    }
}

/// Generates messages in commit order. Times are unique: each is a multiple of the number of messages plus the
/// message's own number.
fn run() -> impl Strategy<Value = Vec<Sent>> {
    let outcomes = prop_oneof![
        6 => Just(SendOutcome::Ok),
        1 => Just(SendOutcome::Failed),
        1 => Just(SendOutcome::UnknownAndCommitted),
        1 => Just(SendOutcome::UnknownAndLost),
    ];
    let message = (proptest::option::weighted(0.9, 0..3_u8), 0..1000_u64, 0..100_u64, 0..100_u64, outcomes);
    proptest::collection::vec(message, 2..40).prop_map(|messages| {
        let count = messages.len() as u64;
        let mut run: Vec<Sent> = messages
            .into_iter()
            .enumerate()
            .map(|(n, (key, start, before, after, outcome))| Sent {
                id: MessageId::new(),
                key: key.map(|key| Key::new(key.to_string()).unwrap()),
                invoked: start * 3 * count + n as u64,
                committed: (start * 3 + before + 1) * count + n as u64,
                completed: (start * 3 + before + after + 2) * count + n as u64,
                outcome,
            })
            .collect();
        run.sort_by_key(|sent| sent.committed);
        run
    })
}

/// Returns the history of a run with the given effects.
fn history(run: &[Sent], effects: &[Sent]) -> History {
    let mut events = Vec::new();
    for sent in run {
        let id = sent.id;
        events.push((sent.invoked, Event::Invoke { id, key: sent.key.clone(), sequence: None }));
        events.push((
            sent.completed,
            match sent.outcome {
                SendOutcome::Ok => Event::Ok { id },
                SendOutcome::Failed => Event::Failed { id },
                _ => Event::Unknown { id },
            },
        ));
    }
    events.sort_by_key(|(time, _)| *time);
    let mut history = History::new(["g"]);
    events.into_iter().for_each(|(time, event)| history.push_at(time, event));
    effects.iter().for_each(|sent| history.effect("g", sent.id, sent.key.clone()));
    history
}

fn effects_of(run: &[Sent]) -> Vec<Sent> {
    run.iter().filter(|sent| sent.has_effect()).cloned().collect()
}

proptest! {
    #[test]
    fn correct_run_is_never_reported(run in run()) {
        let report = check(&history(&run, &effects_of(&run)));
        prop_assert!(report.is_clean(), "{report}");
    }

    #[test]
    fn planted_loss_is_reported(run in run(), which in any::<prop::sample::Index>()) {
        let mut effects = effects_of(&run);
        let ok: Vec<_> = run.iter().filter(|sent| sent.outcome == SendOutcome::Ok).collect();
        prop_assume!(!ok.is_empty());
        let lost = which.get(&ok).id;
        effects.retain(|sent| sent.id != lost);
        let report = check(&history(&run, &effects));
        prop_assert_eq!(report.lost.iter().map(|violation| violation.id).collect::<Vec<_>>(), [lost]);
        prop_assert!(report.doubled.is_empty() && report.phantom.is_empty() && report.reordered.is_empty());
    }

    #[test]
    fn planted_double_is_reported(
        run in run(),
        which in any::<prop::sample::Index>(),
        at in any::<prop::sample::Index>(),
    ) {
        let mut effects = effects_of(&run);
        prop_assume!(!effects.is_empty());
        let index = which.index(effects.len());
        let doubled = effects[index].clone();
        // Anywhere after its first effect, as a redelivery would.
        let again = index + 1 + at.index(effects.len() - index);
        effects.insert(again, doubled.clone());
        let report = check(&history(&run, &effects));
        prop_assert_eq!(report.doubled.iter().map(|violation| violation.id).collect::<Vec<_>>(), [doubled.id]);
        prop_assert!(report.lost.is_empty() && report.phantom.is_empty() && report.reordered.is_empty());
    }

    #[test]
    fn planted_phantom_is_reported(
        run in run(),
        which in any::<prop::sample::Index>(),
        at in any::<prop::sample::Index>(),
    ) {
        let mut effects = effects_of(&run);
        let failed: Vec<_> = run.iter().filter(|sent| sent.outcome == SendOutcome::Failed).cloned().collect();
        let phantom = if failed.is_empty() {
            Sent { id: MessageId::new(), ..run[0].clone() }
        } else {
            which.get(&failed).clone()
        };
        effects.insert(at.index(effects.len() + 1), phantom.clone());
        let report = check(&history(&run, &effects));
        prop_assert_eq!(report.phantom.iter().map(|violation| violation.id).collect::<Vec<_>>(), [phantom.id]);
        prop_assert!(report.lost.is_empty() && report.doubled.is_empty() && report.reordered.is_empty());
    }

    #[test]
    fn planted_reordering_is_reported(run in run(), which in any::<prop::sample::Index>()) {
        let mut effects = effects_of(&run);
        // Pairs of one key, the first completed before the second was invoked.
        let mut pairs = Vec::new();
        for (first, a) in effects.iter().enumerate() {
            for (second, b) in effects.iter().enumerate().skip(first + 1) {
                if a.key.is_some() && a.key == b.key && a.outcome == SendOutcome::Ok && a.completed < b.invoked {
                    pairs.push((first, second));
                }
            }
        }
        prop_assume!(!pairs.is_empty());
        let (first, second) = *which.get(&pairs);
        let (overtaken, overtaking) = (effects[first].id, effects[second].id);
        let moved = effects.remove(second);
        effects.insert(first, moved);
        let report = check(&history(&run, &effects));
        let found = report.reordered.iter().any(|pair| (pair.first, pair.overtaken_by) == (overtaken, overtaking));
        prop_assert!(found, "{overtaking} overtook {overtaken}: {report}");
        prop_assert!(report.lost.is_empty() && report.doubled.is_empty() && report.phantom.is_empty());
    }
}
