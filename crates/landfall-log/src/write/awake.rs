//! Waiting awake, for a moment, on either side of the way to the writer's thread.
//!
//! To wake a thread that sleeps takes a part of the time that a sync takes, above all where its core sleeps as well. A
//! publisher that sends one message after the other would pay for it twice with each: when the writer's thread is
//! woken, and when it is. So whoever waits looks again and again instead, but only
//!
//! * while traffic is hot: if what was waited for last had come within [`MOMENT`], or [`PATIENCE`] for a publisher, and
//!   never for longer than that,
//! * if there is another core to do the work meanwhile,
//! * and, of publishers, if it is the only one that waits (with several of them one wake-up is shared by many), and if
//!   that has been quicker than to sleep.
//!
//! Others may always have the core in between: threads beside the writer's, other tasks beside the publisher's.

use std::cmp::Ordering::{Equal, Greater, Less};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::oneshot::error::TryRecvError;
use tokio::sync::{mpsc, oneshot};

/// More than a publisher takes that comes back at once.
const MOMENT: Duration = Duration::from_micros(200);
/// More than a sync of a large batch takes on a good disk.
const PATIENCE: Duration = Duration::from_millis(1);
/// How often the way to wait is tried that was worse.
const TRIED_EVERY: usize = 64;

/// Whether somebody else can work while a thread waits awake.
fn has_another_core() -> bool {
    static CORES: OnceLock<usize> = OnceLock::new();
    *CORES.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from)) > 1
}

/// How the writer's thread waits for something to do.
#[derive(Debug, Default)]
pub(crate) struct Idle {
    is_hot: bool,
}

impl Idle {
    /// The next of `commands`; `None` once nobody is left to send any.
    pub(crate) fn wait<T>(&mut self, commands: &mut mpsc::Receiver<T>) -> Option<T> {
        let began = Instant::now();
        while self.is_hot && began.elapsed() < MOMENT {
            match commands.try_recv() {
                Ok(command) => return Some(command),
                Err(mpsc::error::TryRecvError::Empty) => std::thread::yield_now(),
                Err(mpsc::error::TryRecvError::Disconnected) => return None,
            }
        }
        let received = commands.blocking_recv();
        self.is_hot = began.elapsed() < MOMENT && has_another_core();
        received
    }
}

/// How publishers wait for their answers.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    count: AtomicUsize,
    /// How long it took those that waited asleep, and those that waited awake.
    asleep: Typical,
    awake: Typical,
    turn: AtomicUsize,
}

impl Waiting {
    /// The answer; `None` if there will be none.
    pub(crate) async fn wait<T>(&self, mut answer: oneshot::Receiver<T>) -> Option<T> {
        let (began, counted) = (Instant::now(), Counted::new(&self.count));
        let is_awake = counted.is_alone() && self.is_awake_better();
        while is_awake && counted.is_alone() && began.elapsed() < PATIENCE {
            match answer.try_recv() {
                Ok(answer) => {
                    self.awake.learn(began.elapsed());
                    return Some(answer);
                }
                Err(TryRecvError::Empty) => tokio::task::yield_now().await,
                Err(TryRecvError::Closed) => return None,
            }
        }
        let answer = answer.await.ok();
        let typical = if is_awake { &self.awake } else { &self.asleep };
        typical.learn(began.elapsed());
        answer
    }

    /// What is quicker depends on what else the machine does: on a busy one, who sleeps is served before those who do
    /// not. So both are tried, the worse one rarely.
    fn is_awake_better(&self) -> bool {
        let asleep = self.asleep.nanos();
        if asleep == 0 || asleep >= PATIENCE.as_nanos() as usize || !has_another_core() {
            return false;
        }
        // Most of both is the sync, which never takes as long twice: what is nearly as quick counts as quicker.
        let is_better = self.awake.nanos() < asleep + asleep / 8;
        is_better != self.turn.fetch_add(1, Ordering::Relaxed).is_multiple_of(TRIED_EVERY)
    }
}

/// How long something typically takes: about as often longer as shorter, so that a single one does not count that takes
/// very long. The newest count most.
#[derive(Debug, Default)]
struct Typical(AtomicUsize);

impl Typical {
    /// 0 as long as nobody knows.
    fn nanos(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    fn learn(&self, took: Duration) {
        let (took, before) = (took.as_nanos() as usize, self.nanos());
        let typical = match took.cmp(&before) {
            _ if before == 0 => took,
            Greater => before + before.div_ceil(32),
            Less => before - before / 32,
            Equal => before,
        };
        self.0.store(typical, Ordering::Relaxed);
    }
}

/// One of those who wait, until it is dropped: also if nobody waits for the answer any more.
struct Counted<'a>(&'a AtomicUsize);

impl<'a> Counted<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }

    fn is_alone(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 1
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One that would wait awake next.
    fn hot() -> Waiting {
        let waiting = Waiting::default();
        waiting.asleep.learn(PATIENCE / 2);
        waiting.awake.learn(PATIENCE / 4);
        waiting.turn.store(1, Ordering::Relaxed);
        assert_eq!(waiting.is_awake_better(), has_another_core());
        waiting
    }

    #[tokio::test]
    async fn an_answer_comes_through_whether_somebody_waits_awake_or_not() {
        for waiting in [Waiting::default(), hot()] {
            for _ in 0..2 * TRIED_EVERY {
                let (reply, answer) = oneshot::channel();
                let (waited, ()) = tokio::join!(waiting.wait(answer), async { reply.send(7).unwrap() });
                assert_eq!(waited, Some(7));
                let (reply, answer) = oneshot::channel::<u8>();
                drop(reply);
                assert_eq!(waiting.wait(answer).await, None, "nobody will answer");
            }
            assert_eq!(waiting.count.load(Ordering::Relaxed), 0);
        }
    }

    #[tokio::test]
    async fn whoever_gives_up_is_not_counted_for_ever() {
        let waiting = hot();
        let (_reply, answer) = oneshot::channel::<u8>();
        assert!(tokio::time::timeout(2 * PATIENCE, waiting.wait(answer)).await.is_err());
        assert_eq!(waiting.count.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn the_quicker_way_is_taken_and_the_other_one_tried_now_and_then() {
        if !has_another_core() {
            return;
        }
        let waiting = Waiting::default();
        let awake = |waiting: &Waiting| (0..TRIED_EVERY).filter(|_| waiting.is_awake_better()).count();
        assert_eq!(awake(&waiting), 0, "nobody knows whether it is worth it");
        waiting.asleep.learn(PATIENCE / 2);
        waiting.awake.learn(PATIENCE / 4);
        assert_eq!(awake(&waiting), TRIED_EVERY - 1);
        (0..50).for_each(|_| waiting.awake.learn(PATIENCE * 6 / 10));
        assert_eq!(awake(&waiting), 1);
        (0..50).for_each(|_| waiting.asleep.learn(PATIENCE * 1000));
        assert_eq!(awake(&waiting), 0, "nobody waits awake for what takes long");
        (0..50).for_each(|_| waiting.asleep.learn(PATIENCE * 3 / 4));
        assert_eq!(awake(&waiting), TRIED_EVERY - 1, "what was long ago does not count");
    }

    #[test]
    fn the_writer_gets_every_command_and_learns_that_nobody_is_left() {
        for is_hot in [false, true] {
            let mut idle = Idle { is_hot };
            let (queue, mut commands) = mpsc::channel(4);
            queue.try_send(1).unwrap();
            queue.try_send(2).unwrap();
            drop(queue);
            assert_eq!([idle.wait(&mut commands), idle.wait(&mut commands)], [Some(1), Some(2)]);
            assert_eq!(idle.wait(&mut commands), None);
        }
    }
}
