//! Which member of a group should have which shard: fair, and as little moved as possible.

use std::collections::BTreeMap;

/// A member of a group: a new name for every subscriber, later ones greater.
pub(crate) type MemberName = String;

/// The shards by number with the member that should have each. `owners` is who has them now. Every member that sees
/// the same comes to the same plan; one that sees something else harms nobody, because taking a shard fences its owner.
pub(crate) fn plan(owners: &[Option<MemberName>], members: &[MemberName]) -> Vec<Option<MemberName>> {
    let mut planned: Vec<Option<MemberName>> = vec![None; owners.len()];
    if members.is_empty() {
        return planned;
    }
    let (fair, mut extra) = (owners.len() / members.len(), owners.len() % members.len());
    let mut has: BTreeMap<&MemberName, usize> = members.iter().map(|member| (member, 0)).collect();
    let mut may_have = |count: usize| match count {
        count if count < fair => true,
        count if count == fair && extra > 0 => {
            extra -= 1;
            true
        }
        _ => false,
    };
    // Whoever has a shard keeps it, as far as is fair.
    for (shard, owner) in owners.iter().enumerate() {
        let Some((member, count)) = owner.as_ref().and_then(|owner| has.get_key_value(owner)) else { continue };
        if may_have(*count) {
            planned[shard] = Some((*member).clone());
            *has.entry(*member).or_default() += 1;
        }
    }
    for shard in planned.iter_mut().filter(|shard| shard.is_none()) {
        let Some((member, count)) = has.iter_mut().min_by_key(|(_, count)| **count) else { continue };
        *shard = Some((*member).clone());
        *count += 1;
    }
    planned
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn names(members: &[&str]) -> Vec<MemberName> {
        members.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn one_alone_has_everything() {
        assert_eq!(plan(&[None, None], &names(&["a"])), [Some("a".into()), Some("a".into())]);
    }

    #[test]
    fn a_second_gets_half_and_nothing_else_moves() {
        let owners = vec![Some("a".to_owned()); 4];
        let planned = plan(&owners, &names(&["a", "b"]));
        assert_eq!(planned.iter().flatten().collect::<Vec<_>>(), ["a", "a", "b", "b"]);
        assert_eq!(plan(&planned, &names(&["a", "b"])), planned);
    }

    proptest! {
        #[test]
        fn it_is_fair_and_stays_as_it_is(
            owners in proptest::collection::vec(proptest::option::of(0_usize..6), 1..40), count in 1_usize..6,
        ) {
            let members: Vec<_> = (0..count).map(|number| format!("member-{number}")).collect();
            let owners: Vec<_> = owners.iter().map(|owner| owner.map(|number| format!("member-{number}"))).collect();
            let planned = plan(&owners, &members);
            let of = |member| planned.iter().flatten().filter(|owner| *owner == member).count();
            let counts: Vec<_> = members.iter().map(of).collect();
            prop_assert_eq!(counts.iter().sum::<usize>(), owners.len());
            prop_assert!(counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 1, "{:?}", counts);
            prop_assert_eq!(plan(&planned, &members), planned);
        }
    }
}
