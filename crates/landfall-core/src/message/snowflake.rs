//! Snowflake ids: 63-bit integers that grow with time.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::{Error, ErrorKind, MessageId, Result, Timestamp};

const TIME_BITS: u32 = 41;
const NODE_BITS: u32 = 10;
/// The part of the node that names the topic.
const TOPIC_BITS: u32 = 5;
const SEQUENCE_BITS: u32 = 12;

/// The epoch: 2024-01-01T00:00:00Z in milliseconds since 1970. Times fit until September 2093.
const FIRST_MS: i64 = 1_704_067_200_000;

/// How far ids may run ahead of the clock.
const AHEAD_LIMIT_MS: u64 = 10_000;

/// The last 58 bits of a message id made from a Snowflake, which identify it as one.
const MARK: u64 = 0x02d4_c3a5_96b7_8f1e;
const MARK_BITS: u32 = 58;

/// Generates strictly ascending 63-bit message ids.
///
/// ```text
///   41 bits                                  10 bits   12 bits
/// ┌────────────────────────────────────────┬─────────┬───────────┐
/// │ milliseconds since 2024                │ node    │ sequence  │
/// └────────────────────────────────────────┴─────────┴───────────┘
/// ```
///
/// Select them per topic with `landfall::produce::Outbox::with_snowflakes`. Prefer UUIDv7 ([`MessageId::new`]) where
/// 128 bits fit: it needs no node numbers.
///
/// # Node ids
///
/// Concurrent generators must have different nodes, or they generate the same ids. Give each process a unique number
/// from 0 to 1023: the ordinal of a stateful set, a leased row, a configuration value. A hash of the host name is not
/// enough: among 40 hosts a collision is more likely than not. All threads of a process share one generator.
///
/// [`Snowflake::for_topic`] divides the node into a cluster and a topic, so that each topic can have its own generator.
/// Processes that produce to one topic then need different clusters.
///
/// # Clocks that step back
///
/// The generator never follows its clock backwards: it continues from the last time it used. After 4096 ids in one
/// millisecond it continues with the next one. When it is more than ten seconds ahead of the clock, the clock cannot be
/// trusted. It then fails with [`ErrorKind::Unavailable`] until the clock has caught up.
///
/// A process does not know the last id of its predecessor. If the clock may step back during a restart, start after the
/// last stored id: [`Snowflake::after`].
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
    /// Time and sequence of the last id as one number, so that an overflowing sequence carries into the next
    /// millisecond.
    last: AtomicU64,
    clock: Box<dyn Fn() -> Timestamp + Send + Sync>,
}

impl Snowflake {
    /// Creates a generator for `node`, from 0 to 1023.
    pub fn new(node: u16) -> Result<Self> {
        Self::with_clock(node, Timestamp::now)
    }

    /// Creates a generator for a topic of a cluster, both numbers from 0 to 31: the node is `32 * cluster + topic`.
    pub fn for_topic(cluster: u16, topic: u16) -> Result<Self> {
        for (name, number) in [("cluster", cluster), ("topic", topic)] {
            if number >> TOPIC_BITS > 0 {
                return Err(Error::invalid(format!("{name} {number} of a Snowflake is not from 0 to 31")));
            }
        }
        Self::new(cluster << TOPIC_BITS | topic)
    }

    /// Creates a generator with its own clock.
    pub fn with_clock(node: u16, clock: impl Fn() -> Timestamp + Send + Sync + 'static) -> Result<Self> {
        if node >> NODE_BITS > 0 {
            return Err(Error::invalid(format!("node {node} is none of the nodes from 0 to 1023")));
        }
        Ok(Self { node, last: AtomicU64::new(0), clock: Box::new(clock) })
    }

    /// Generates only ids greater than `id`, an id of another generator, whatever the clock says.
    pub fn after(self, id: MessageId) -> Result<Self> {
        let Some(number) = id.as_snowflake() else {
            return Err(Error::invalid(format!("message id {id} is no snowflake")));
        };
        // The sequence is below the node bits, so only the next millisecond is certainly greater.
        let time = (number >> (NODE_BITS + SEQUENCE_BITS)).min((1 << TIME_BITS) - 1);
        self.last.fetch_max(((time + 1) << SEQUENCE_BITS) - 1, Ordering::Relaxed);
        Ok(self)
    }

    /// Generates an id greater than all earlier ones of this generator.
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
        // Ids may run ahead of the clock; these must fit too.
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
    /// Converts a Snowflake of any origin into a UUIDv8. Ids sort like their numbers.
    pub fn from_snowflake(number: u64) -> Self {
        // Version and variant are constants between the bits of the number, so the order is kept.
        let number = u128::from(number);
        let (first, middle, last) = (number >> 16, (number >> 4) & 0xfff, number & 0xf);
        let bits = (first << 80) | (8 << 76) | (middle << 64) | (0b10 << 62) | (last << MARK_BITS) | u128::from(MARK);
        Self::from_bytes(bits.to_be_bytes())
    }

    /// Returns the Snowflake, if the id was made from one.
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

    /// Creates a generator with a settable clock, in milliseconds after 2024.
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
        fn id_round_trips_and_sorts_like_its_number((one, other) in any::<(u64, u64)>()) {
            let (id, another) = (MessageId::from_snowflake(one), MessageId::from_snowflake(other));
            prop_assert_eq!(id.as_snowflake(), Some(one));
            prop_assert_eq!(id.cmp(&another), one.cmp(&other));
            prop_assert_eq!((id.as_uuid().get_version_num(), id.as_uuid().get_variant()), (8, uuid::Variant::RFC4122));
            prop_assert_eq!(id.to_string().parse::<MessageId>().unwrap(), id);
        }

        #[test]
        fn ids_ascend_and_stay_near_the_clock(
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
    fn clock_step_back_beyond_the_limit_is_an_error() {
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
    fn sequence_overflow_uses_the_next_millisecond() {
        let (_, ids) = generator(1023);
        let numbers: Vec<_> = (0..4098).map(|_| next(&ids)).collect();
        assert_eq!((numbers[4095] >> 22, numbers[4095] & 0xfff), (1_000_000, 4095));
        assert_eq!((numbers[4096] >> 22, numbers[4096] & 0xfff), (1_000_001, 0));
        assert_eq!((numbers[4097] >> 22, numbers[4097] & 0xfff), (1_000_001, 1));
    }

    #[test]
    fn threads_and_nodes_never_generate_the_same_id() {
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
    fn node_consists_of_cluster_and_topic() {
        for (cluster, topic) in [(0, 0), (0, 31), (31, 0), (5, 17), (31, 31)] {
            let number = next(&Snowflake::for_topic(cluster, topic).unwrap());
            assert_eq!(((number >> 17) & 0x1f, (number >> 12) & 0x1f), (u64::from(cluster), u64::from(topic)));
        }
    }

    #[test]
    fn generator_starts_after_a_given_id() {
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
    fn invalid_node_time_and_id_are_refused() {
        assert_eq!(Snowflake::new(1024).unwrap_err().kind(), ErrorKind::Invalid);
        for (cluster, topic, name) in [(32, 0, "cluster 32"), (0, 32, "topic 32"), (u16::MAX, 31, "cluster 65535")] {
            let error = Snowflake::for_topic(cluster, topic).unwrap_err();
            assert!(error.kind() == ErrorKind::Invalid && error.to_string().contains(name), "{error}");
        }
        assert!(MessageId::new().as_snowflake().is_none());
        let (clock, ids) = generator(0);
        for outside in [-1, 1 << 41, i64::MIN / 2] {
            clock.store(outside, Ordering::Relaxed);
            assert_eq!(ids.next().unwrap_err().kind(), ErrorKind::Unavailable);
        }
    }
}
