//! Ids that are numbers: 63 bits that grow with time, for those who must store or show an id as an integer.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::{Error, ErrorKind, MessageId, Result, Timestamp};

const TIME_BITS: u32 = 41;
const NODE_BITS: u32 = 10;
const SEQUENCE_BITS: u32 = 12;

/// 2024-01-01T00:00:00Z, in milliseconds since 1970. Times are counted from here, up to September 2093.
const FIRST_MS: i64 = 1_704_067_200_000;

/// How far the ids may be ahead of the clock.
const AHEAD_LIMIT_MS: u64 = 10_000;

/// The last 58 bits of a message id that is a number, so that it can be told from others.
const MARK: u64 = 0x02d4_c3a5_96b7_8f1e;
const MARK_BITS: u32 = 58;

/// Makes message ids that are numbers of 63 bits, each greater than the one before.
///
/// ```text
///   41 bits                                  10 bits   12 bits
/// ┌────────────────────────────────────────┬─────────┬───────────┐
/// │ milliseconds since 2024                │ node    │ sequence  │
/// └────────────────────────────────────────┴─────────┴───────────┘
/// ```
///
/// A UUIDv7 ([`MessageId::new`]) needs nothing of this and is the better choice where 128 bits fit.
///
/// # Node ids
///
/// Two generators that run at the same time must have different nodes, or they make the same ids. Give each process a
/// number from 0 to 1023 that no other has: the ordinal of a stateful set, a row that it leases, a line of its
/// configuration. A number that is derived by hashing a host's name or address is not enough: among 40 hosts two
/// get the same one more often than not. One generator per process is shared by all its threads.
///
/// # Clocks that step back
///
/// The generator never follows its clock backwards. It goes on from the last time that it used, and so it does when
/// more than 4096 ids are made in a millisecond: it takes them from the next. If it gets more than ten
/// seconds ahead of the clock, it makes no more ids until the clock has caught up to that
/// ([`ErrorKind::Unavailable`]), because a clock that is so far off may be wrong about everything else.
///
/// What a process does not know is the last id of the one before it. Where a clock may step back while a process
/// restarts, begin behind the last id that was stored: [`Snowflake::after`].
///
/// ```
/// # fn main() -> landfall_core::Result<()> {
/// let ids = landfall_core::Snowflake::new(7)?;
/// let (first, second) = (ids.next()?, ids.next()?);
/// assert!(first < second && first.as_snowflake() < second.as_snowflake());
/// # Ok(())
/// # }
/// ```
pub struct Snowflake {
    node: u16,
    /// Time and sequence of the last id, as one number: a sequence that overflows takes the next millisecond by itself.
    last: AtomicU64,
    clock: Box<dyn Fn() -> Timestamp + Send + Sync>,
}

impl Snowflake {
    /// A generator for `node`, from 0 to 1023.
    pub fn new(node: u16) -> Result<Self> {
        Self::with_clock(node, Timestamp::now)
    }

    /// A generator that asks `clock` for the time.
    pub fn with_clock(node: u16, clock: impl Fn() -> Timestamp + Send + Sync + 'static) -> Result<Self> {
        if node >> NODE_BITS > 0 {
            return Err(Error::invalid(format!("node {node} is none of the nodes from 0 to 1023")));
        }
        Ok(Self { node, last: AtomicU64::new(0), clock: Box::new(clock) })
    }

    /// Makes only ids that are greater than `id`, which another generator made, whatever the clock says.
    pub fn after(self, id: MessageId) -> Result<Self> {
        let Some(number) = id.as_snowflake() else {
            return Err(Error::invalid(format!("message id {id} is no snowflake")));
        };
        // The sequence counts within the node, so the first of the next millisecond is surely greater.
        let time = (number >> (NODE_BITS + SEQUENCE_BITS)).min((1 << TIME_BITS) - 1);
        self.last.fetch_max(((time + 1) << SEQUENCE_BITS) - 1, Ordering::Relaxed);
        Ok(self)
    }

    /// A new id, greater than any that this generator made before.
    pub fn next(&self) -> Result<MessageId> {
        let now = self.now()?;
        let mut last = self.last.load(Ordering::Relaxed);
        loop {
            let next = (last + 1).max(now << SEQUENCE_BITS);
            let (time, sequence) = (next >> SEQUENCE_BITS, next & ((1 << SEQUENCE_BITS) - 1));
            let ahead_ms = time - now;
            if ahead_ms > AHEAD_LIMIT_MS {
                return Err(Error::new(
                    ErrorKind::Unavailable,
                    format!(
                        "the clock stepped back: it is {ahead_ms} ms behind the last id and may be {AHEAD_LIMIT_MS}"
                    ),
                ));
            }
            match self.last.compare_exchange_weak(last, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => {
                    let node = u64::from(self.node) << SEQUENCE_BITS;
                    return Ok(MessageId::from_snowflake(time << (NODE_BITS + SEQUENCE_BITS) | node | sequence));
                }
                Err(found) => last = found,
            }
        }
    }

    /// Milliseconds since 2024.
    fn now(&self) -> Result<u64> {
        let now = (self.clock)();
        // What may be borrowed from the future must fit too.
        let range = 0..(1 << TIME_BITS) - AHEAD_LIMIT_MS;
        match u64::try_from(now.as_millis().saturating_sub(FIRST_MS)) {
            Ok(now) if range.contains(&now) => Ok(now),
            _ => {
                let sentence = format!("the clock says {now}, and ids are made from 2024 to 2093 only");
                Err(Error::new(ErrorKind::Unavailable, sentence))
            }
        }
    }
}

impl fmt::Debug for Snowflake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snowflake").field("node", &self.node).finish_non_exhaustive()
    }
}

impl MessageId {
    /// The id that is this number, whoever made it: a UUIDv8. Ids sort like their numbers.
    pub fn from_snowflake(number: u64) -> Self {
        // Version and variant stand between the bits of the number, and are the same in all of them.
        let number = u128::from(number);
        let (first, middle, last) = (number >> 16, (number >> 4) & 0xfff, number & 0xf);
        let bits = (first << 80) | (8 << 76) | (middle << 64) | (0b10 << 62) | (last << MARK_BITS) | u128::from(MARK);
        Self::from_bytes(bits.to_be_bytes())
    }

    /// The number, if the id was made of one.
    pub fn as_snowflake(&self) -> Option<u64> {
        let bits = u128::from_be_bytes(*self.as_bytes());
        let number = ((bits >> 80) << 16 | ((bits >> 64) & 0xfff) << 4 | (bits >> MARK_BITS) & 0xf) as u64;
        (*self == Self::from_snowflake(number)).then_some(number)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::Arc;
    use std::sync::atomic::AtomicI64;

    use proptest::prelude::*;

    use super::*;

    /// A generator whose clock stands at a number of milliseconds after 2024.
    fn generator(node: u16) -> (Arc<AtomicI64>, Snowflake) {
        let clock = Arc::new(AtomicI64::new(1_000_000));
        let read = Arc::clone(&clock);
        let now = move || Timestamp::from_millis(FIRST_MS + read.load(Ordering::Relaxed));
        (clock, Snowflake::with_clock(node, now).unwrap())
    }

    fn next(ids: &Snowflake) -> u64 {
        ids.next().unwrap().as_snowflake().unwrap()
    }

    proptest! {
        #[test]
        fn a_number_is_read_back_and_sorts_as_before((one, other) in any::<(u64, u64)>()) {
            let (id, another) = (MessageId::from_snowflake(one), MessageId::from_snowflake(other));
            prop_assert_eq!(id.as_snowflake(), Some(one));
            prop_assert_eq!(id.cmp(&another), one.cmp(&other));
            prop_assert_eq!((id.as_uuid().get_version_num(), id.as_uuid().get_variant()), (8, uuid::Variant::RFC4122));
            prop_assert_eq!(id.to_string().parse::<MessageId>().unwrap(), id);
        }

        #[test]
        fn ids_grow_whatever_the_clock_does_and_stay_near_it(
            steps in proptest::collection::vec((-15_000..15_000_i64, 1..10_000_usize), 1..20),
        ) {
            let (clock, ids) = generator(5);
            let mut last = 0;
            for (step, count) in steps {
                let now = (clock.load(Ordering::Relaxed) + step) as u64;
                clock.store(now as i64, Ordering::Relaxed);
                for _ in 0..count {
                    match ids.next() {
                        Ok(id) => {
                            let number = id.as_snowflake().unwrap();
                            prop_assert!(number > last);
                            prop_assert!((now..=now + AHEAD_LIMIT_MS).contains(&(number >> 22)));
                            prop_assert_eq!((number >> 12) & 0x3ff, 5);
                            last = number;
                        }
                        Err(error) => {
                            prop_assert_eq!(error.kind(), ErrorKind::Unavailable);
                            prop_assert!(last >> 22 >= now + AHEAD_LIMIT_MS);
                            break;
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn a_clock_that_steps_back_too_far_is_reported_until_it_has_caught_up() {
        let (clock, ids) = generator(0);
        let first = next(&ids);
        clock.fetch_sub(10_000, Ordering::Relaxed);
        assert_eq!(next(&ids), first + 1);
        clock.fetch_sub(1, Ordering::Relaxed);
        let error = ids.next().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.to_string().contains("10001 ms behind"), "{error}");
        clock.fetch_add(1, Ordering::Relaxed);
        assert_eq!(next(&ids), first + 2);
        clock.fetch_add(20_000, Ordering::Relaxed);
        assert_eq!(next(&ids) >> 22, 1_010_000);
    }

    #[test]
    fn more_ids_than_fit_into_a_millisecond_come_from_the_next() {
        let (_, ids) = generator(1023);
        let numbers: Vec<_> = (0..4098).map(|_| next(&ids)).collect();
        assert_eq!((numbers[4095] >> 22, numbers[4095] & 0xfff), (1_000_000, 4095));
        assert_eq!((numbers[4096] >> 22, numbers[4096] & 0xfff), (1_000_001, 0));
        assert_eq!((numbers[4097] >> 22, numbers[4097] & 0xfff), (1_000_001, 1));
    }

    #[test]
    fn threads_and_nodes_never_make_the_same_id() {
        let nodes: [Snowflake; 2] = [Snowflake::new(0).unwrap(), Snowflake::new(1).unwrap()];
        let make = |ids: &Snowflake| (0..5000).map(|_| ids.next().unwrap()).collect::<Vec<_>>();
        let made: Vec<Vec<MessageId>> = std::thread::scope(|scope| {
            let threads: Vec<_> = nodes.iter().chain(&nodes).map(|ids| scope.spawn(|| make(ids))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(made.iter().all(|ids| ids.is_sorted()));
        assert_eq!(made.iter().flatten().collect::<HashSet<_>>().len(), 20_000);
    }

    #[test]
    fn a_generator_can_begin_behind_the_last_id_of_another() {
        let (_, before) = generator(9);
        (0..10_000).for_each(|_| drop(before.next()));
        let last = before.next().unwrap();
        let (_, ids) = generator(3);
        let ids = ids.after(last).unwrap();
        assert!(ids.next().unwrap() > last);
        assert_eq!(generator(3).1.after(MessageId::new()).unwrap_err().kind(), ErrorKind::Invalid);
        let far = generator(3).1.after(MessageId::from_snowflake(u64::MAX)).unwrap();
        assert_eq!(far.next().unwrap_err().kind(), ErrorKind::Unavailable);
    }

    #[test]
    fn what_cannot_be_a_number_is_refused() {
        assert_eq!(Snowflake::new(1024).unwrap_err().kind(), ErrorKind::Invalid);
        assert!(MessageId::new().as_snowflake().is_none());
        let (clock, ids) = generator(0);
        for outside in [-1, 1 << 41, i64::MIN / 2] {
            clock.store(outside, Ordering::Relaxed);
            assert_eq!(ids.next().unwrap_err().kind(), ErrorKind::Unavailable);
        }
    }
}
