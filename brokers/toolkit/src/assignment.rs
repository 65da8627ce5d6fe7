//! Which member of a group gets which partition.

use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Gives every partition one owner among `members`. The shares of any two members differ by at most one.
///
/// A member keeps its partitions as far as its share allows, and no more move than must: a partition that moves is read
/// again by its new owner, and what was in flight in it is delivered twice. Without members no partition has an owner.
/// Members that see the same `owners` and `members`, in whatever order, compute the same assignment.
pub fn balance<M: Ord + Clone>(owners: &mut [Option<M>], members: &[M]) {
    let mut owned: BTreeMap<&M, usize> = members.iter().map(|member| (member, 0)).collect();
    for owner in owners.iter_mut() {
        match owner.as_ref().and_then(|member| owned.get_mut(member)) {
            Some(count) => *count += 1,
            None => *owner = None,
        }
    }
    // The larger shares go to those that own most, so that they give up less.
    let mut by_count: Vec<(&M, usize)> = owned.into_iter().collect();
    by_count.sort_by_key(|(member, count)| (Reverse(*count), *member));
    let (partitions, count) = (owners.len(), by_count.len());
    let shares = by_count.iter().enumerate().map(|(rank, (member, _))| (*member, share(partitions, count, rank)));
    let mut left: BTreeMap<&M, usize> = shares.collect();

    for owner in owners.iter_mut() {
        match owner.as_ref().and_then(|member| left.get_mut(member)) {
            Some(left) if *left > 0 => *left -= 1,
            _ => *owner = None,
        }
    }
    let mut takers = left.into_iter().flat_map(|(member, left)| std::iter::repeat_n(member, left));
    owners.iter_mut().filter(|owner| owner.is_none()).for_each(|owner| *owner = takers.next().cloned());
}

/// How many of `partitions` the member at `rank` among `members` gets. If they do not divide evenly, the first members
/// get one more. For groups whose members claim partitions without knowing who owns which.
pub fn share(partitions: usize, members: usize, rank: usize) -> usize {
    let members = members.max(1);
    partitions / members + usize::from(rank < partitions % members)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, Clone)]
    enum Step {
        Join,
        /// The member at this place among those present.
        Leave(proptest::sample::Index),
        Grow(usize),
        /// A member that saw something else claims the partition at this place.
        Claim(proptest::sample::Index, proptest::sample::Index),
    }

    fn any_step() -> impl Strategy<Value = Step> {
        prop_oneof![
            3 => Just(Step::Join),
            2 => any::<proptest::sample::Index>().prop_map(Step::Leave),
            1 => (1..5_usize).prop_map(Step::Grow),
            2 => any::<(proptest::sample::Index, proptest::sample::Index)>().prop_map(|(p, m)| Step::Claim(p, m)),
        ]
    }

    fn count(owners: &[Option<u64>], member: u64) -> usize {
        owners.iter().filter(|owner| **owner == Some(member)).count()
    }

    /// The least that must move so that `members` share `before` evenly: partitions without an owner, and those that a
    /// member has beyond its share, where the larger shares go to the members that own most.
    fn fewest_moves(before: &[Option<u64>], members: &[u64]) -> usize {
        let (least, larger) = (before.len() / members.len(), before.len() % members.len());
        let mut counts: Vec<usize> = members.iter().map(|member| count(before, *member)).collect();
        counts.sort_unstable_by(|one, other| other.cmp(one));
        let kept = |(place, count): (usize, &usize)| (*count).min(least + usize::from(place < larger));
        before.len() - counts.iter().enumerate().map(kept).sum::<usize>()
    }

    proptest! {
        #[test]
        fn shares_are_even_stable_and_move_no_more_than_they_must(
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
                    Step::Claim(..) if members.is_empty() => {}
                    Step::Claim(place, member) => {
                        let place = place.index(owners.len());
                        owners[place] = Some(members[member.index(members.len())]);
                    }
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
                let (settled, mut same) = (owners.clone(), before);
                balance(&mut owners, &members);
                prop_assert_eq!(&owners, &settled, "nothing moves while no member joins or leaves");
                members.reverse();
                balance(&mut same, &members);
                members.reverse();
                prop_assert_eq!(&same, &settled, "the order in which the members are listed does not matter");
            }
        }

        #[test]
        fn shares_by_rank_are_even_and_cover_every_partition(partitions in 0..50_usize, members in 1..20_usize) {
            let shares: Vec<usize> = (0..members).map(|rank| share(partitions, members, rank)).collect();
            prop_assert_eq!(shares.iter().sum::<usize>(), partitions);
            prop_assert!(shares.iter().max().unwrap() - shares.iter().min().unwrap() <= 1, "{:?}", shares);
        }
    }

    #[test]
    fn a_member_that_joins_takes_only_its_share_from_the_others() {
        let mut owners = [Some(1), Some(1), Some(1), Some(2), Some(2), Some(2)];
        balance(&mut owners, &[1, 2, 3]);
        assert_eq!(owners, [Some(1), Some(1), Some(3), Some(2), Some(2), Some(3)]);
        balance(&mut owners, &[1, 3]);
        assert_eq!(owners, [Some(1), Some(1), Some(3), Some(1), Some(3), Some(3)]);
    }
}
