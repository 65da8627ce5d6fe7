//! Assigns partitions to the members of a group.

use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Gives every partition one owner among `members`; the shares of any two differ by at most one.
///
/// Sticky: a member keeps its partitions unless it has more than its share. A moved partition must be read again by
/// its new owner, and its messages in flight are delivered twice. Without members, no partition has an owner.
pub(crate) fn balance(owners: &mut [Option<u64>], members: &[u64]) {
    let mut owned: BTreeMap<u64, usize> = members.iter().map(|member| (*member, 0)).collect();
    for owner in owners.iter_mut() {
        match owner.and_then(|member| owned.get_mut(&member)) {
            Some(count) => *count += 1,
            None => *owner = None,
        }
    }
    let Some(least) = owners.len().checked_div(owned.len()) else { return };
    let larger_shares = owners.len() % owned.len();
    // The larger shares go to the members that own most, so that fewer partitions move.
    let mut by_count: Vec<(u64, usize)> = owned.into_iter().collect();
    by_count.sort_by_key(|(member, count)| (Reverse(*count), *member));
    let share = |(place, (member, _)): (usize, &(u64, usize))| (*member, least + usize::from(place < larger_shares));
    let mut left: BTreeMap<u64, usize> = by_count.iter().enumerate().map(share).collect();

    for owner in owners.iter_mut() {
        match owner.and_then(|member| left.get_mut(&member)) {
            Some(left) if *left > 0 => *left -= 1,
            _ => *owner = None,
        }
    }
    let mut takers = left.into_iter().flat_map(|(member, left)| std::iter::repeat_n(member, left));
    owners.iter_mut().filter(|owner| owner.is_none()).for_each(|owner| *owner = takers.next());
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, Clone)]
    enum Step {
        Join,
        /// The member at this index.
        Leave(proptest::sample::Index),
        Grow(usize),
    }

    fn any_step() -> impl Strategy<Value = Step> {
        prop_oneof![
            3 => Just(Step::Join),
            2 => any::<proptest::sample::Index>().prop_map(Step::Leave),
            1 => (1..5_usize).prop_map(Step::Grow),
        ]
    }

    fn count(owners: &[Option<u64>], member: u64) -> usize {
        owners.iter().filter(|owner| **owner == Some(member)).count()
    }

    /// The minimum of moves that gives `members` even shares of `before`: partitions without an owner, and those
    /// beyond the best share of their owner.
    fn fewest_moves(before: &[Option<u64>], members: &[u64]) -> usize {
        let (least, larger) = (before.len() / members.len(), before.len() % members.len());
        let mut counts: Vec<usize> = members.iter().map(|member| count(before, *member)).collect();
        counts.sort_unstable_by(|one, other| other.cmp(one));
        let kept = |(place, count): (usize, &usize)| (*count).min(least + usize::from(place < larger));
        before.len() - counts.iter().enumerate().map(kept).sum::<usize>()
    }

    proptest! {
        #[test]
        fn every_partition_has_one_owner_shares_are_even_and_moves_are_minimal(
            partitions in 1..20_usize,
            steps in proptest::collection::vec(any_step(), 1..40),
        ) {
            let (mut owners, mut members, mut next) = (vec![None; partitions], Vec::new(), 0);
            for step in steps {
                match step {
                    Step::Join => {
                        members.push(next);
                        next += 1;
                    }
                    Step::Leave(_) if members.is_empty() => {}
                    Step::Leave(place) => drop(members.remove(place.index(members.len()))),
                    Step::Grow(by) => owners.resize(owners.len() + by, None),
                }
                let before = owners.clone();
                balance(&mut owners, &members);
                if members.is_empty() {
                    prop_assert!(owners.iter().all(Option::is_none));
                    continue;
                }
                prop_assert!(owners.iter().all(|owner| owner.is_some_and(|owner| members.contains(&owner))));
                let counts: Vec<usize> = members.iter().map(|member| count(&owners, *member)).collect();
                prop_assert!(counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 1, "{:?}", counts);
                let moved = before.iter().zip(&owners).filter(|(before, after)| before != after).count();
                prop_assert_eq!(moved, fewest_moves(&before, &members));
                let settled = owners.clone();
                balance(&mut owners, &members);
                prop_assert_eq!(&owners, &settled, "nothing moves without a membership change");
            }
        }
    }

    #[test]
    fn joining_member_takes_only_its_share() {
        let mut owners = [Some(1), Some(1), Some(1), Some(2), Some(2), Some(2)];
        balance(&mut owners, &[1, 2, 3]);
        assert_eq!(owners, [Some(1), Some(1), Some(3), Some(2), Some(2), Some(3)]);
        balance(&mut owners, &[1, 3]);
        assert_eq!(owners, [Some(1), Some(1), Some(3), Some(1), Some(3), Some(3)]);
    }
}
