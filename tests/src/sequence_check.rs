//! Checks that the effects of each key are exactly 1, 2, 3… up to the number of committed messages.

use std::collections::BTreeMap;

/// Describes every key with a gap, a repetition, a wrong order or a wrong number of effects. `committed` has the key of
/// each committed message, `effects` the key and the sequence of each effect. Without `is_ordered` any order is right.
pub fn bad_sequences<'a>(
    is_ordered: bool,
    committed: impl IntoIterator<Item = &'a str>,
    effects: impl IntoIterator<Item = (&'a str, i64)>,
) -> Vec<String> {
    let mut keys: BTreeMap<&str, (usize, Vec<i64>)> = BTreeMap::new();
    for key in committed {
        keys.entry(key).or_default().0 += 1;
    }
    for (key, sequence) in effects {
        keys.entry(key).or_default().1.push(sequence);
    }
    let mut bad_sequences = Vec::new();
    for (key, (committed, mut found)) in keys {
        if !is_ordered {
            found.sort_unstable();
        }
        let wrong = found.iter().zip(1..).position(|(sequence, expected)| *sequence != expected);
        if let Some(index) = wrong {
            let around = &found[index.saturating_sub(2)..found.len().min(index + 5)];
            bad_sequences.push(format!("{key}: … {around:?} … at effect {}", index + 1));
        } else if found.len() != committed {
            bad_sequences.push(format!("{key}: {} effects for {committed} committed", found.len()));
        }
    }
    bad_sequences
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gap_repetition_order_and_number_of_effects_are_checked() {
        let bad = |is_ordered, effects: &[i64]| {
            let committed = [("a", 1), ("a", 2), ("a", 3), ("b", 1)];
            let other = [("b", 1)].into_iter();
            let effects = other.chain(effects.iter().map(|sequence| ("a", *sequence)));
            bad_sequences(is_ordered, committed.map(|(key, _)| key), effects)
        };
        assert!(bad(true, &[1, 2, 3]).is_empty() && bad(false, &[3, 1, 2]).is_empty());
        for effects in [&[1, 3][..], &[1, 2], &[1, 2, 2, 3], &[1, 2, 3, 4], &[]] {
            assert_eq!((bad(true, effects).len(), bad(false, effects).len()), (1, 1), "{effects:?}");
        }
        assert_eq!(bad(true, &[2, 1, 3]), ["a: … [2, 1, 3] … at effect 1"]);
    }
}
