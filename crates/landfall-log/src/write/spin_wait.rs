//! Spin-waiting between publishers and the writer thread.
//!
//! Waking a sleeping thread costs a sizeable fraction of a sync, more so if its core sleeps too. A publisher that
//! sends one message at a time would pay twice per message: to wake the writer thread and to be woken. So both sides
//! poll instead, but only
//!
//! * under load: if the last wait was shorter than [`COMMAND_SPIN`], or [`REPLY_SPIN`] for a publisher, and never for
//!   longer than that,
//! * if another core can do the work meanwhile,
//! * and, for publishers, if no other publisher waits (several share one wake-up) and spinning has been faster than
//!   sleeping.
//!
//! Every iteration yields: the writer to other threads, the publisher to other tasks.

use std::cmp::Ordering::{Equal, Greater, Less};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::oneshot::error::TryRecvError;
use tokio::sync::{mpsc, oneshot};

/// Longer than a publisher needs to send its next message.
const COMMAND_SPIN: Duration = Duration::from_micros(200);
/// Longer than the sync of a large batch takes on a good disk.
const REPLY_SPIN: Duration = Duration::from_millis(1);
/// How often the slower way of waiting is measured again.
const PROBE_EVERY: usize = 64;

/// Whether another core can work while this thread spins.
fn has_another_core() -> bool {
    static CORES: OnceLock<usize> = OnceLock::new();
    *CORES.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from)) > 1
}

/// Waits for commands in the writer thread.
#[derive(Debug, Default)]
pub(crate) struct CommandWaiter {
    is_hot: bool,
}

impl CommandWaiter {
    /// Returns the next of `commands`; `None` once all senders are dropped.
    pub(crate) fn wait<T>(&mut self, commands: &mut mpsc::Receiver<T>) -> Option<T> {
        let began = Instant::now();
        while self.is_hot && began.elapsed() < COMMAND_SPIN {
            match commands.try_recv() {
                Ok(command) => return Some(command),
                Err(mpsc::error::TryRecvError::Empty) => std::thread::yield_now(),
                Err(mpsc::error::TryRecvError::Disconnected) => return None,
            }
        }
        let received = commands.blocking_recv();
        self.is_hot = began.elapsed() < COMMAND_SPIN && has_another_core();
        received
    }
}

/// Waits for replies in publishers.
#[derive(Debug, Default)]
pub(crate) struct ReplyWaiter {
    count: AtomicUsize,
    /// Typical wait of publishers that slept, and of those that spun.
    sleeping: TypicalDuration,
    spinning: TypicalDuration,
    calls: AtomicUsize,
}

impl ReplyWaiter {
    /// Returns the reply; `None` if its sender was dropped.
    pub(crate) async fn wait<T>(&self, mut answer: oneshot::Receiver<T>) -> Option<T> {
        let (began, guard) = (Instant::now(), WaiterGuard::new(&self.count));
        let spins = guard.is_alone() && self.should_spin();
        while spins && guard.is_alone() && began.elapsed() < REPLY_SPIN {
            match answer.try_recv() {
                Ok(answer) => {
                    self.spinning.record(began.elapsed());
                    return Some(answer);
                }
                Err(TryRecvError::Empty) => tokio::task::yield_now().await,
                Err(TryRecvError::Closed) => return None,
            }
        }
        let answer = answer.await.ok();
        let typical = if spins { &self.spinning } else { &self.sleeping };
        typical.record(began.elapsed());
        answer
    }

    /// The faster way depends on the load of the machine: on a busy one the scheduler favours threads that slept. So
    /// both are measured, the slower one rarely.
    fn should_spin(&self) -> bool {
        let sleeping = self.sleeping.nanos();
        if sleeping == 0 || sleeping >= REPLY_SPIN.as_nanos() as usize || !has_another_core() {
            return false;
        }
        // Most of either wait is the sync, whose duration varies, so nearly as fast counts as faster.
        let is_better = self.spinning.nanos() < sleeping + sleeping / 8;
        is_better != self.calls.fetch_add(1, Ordering::Relaxed).is_multiple_of(PROBE_EVERY)
    }
}

/// A moving estimate of the median duration, so that a single outlier has little weight. Recent values count most.
#[derive(Debug, Default)]
struct TypicalDuration(AtomicUsize);

impl TypicalDuration {
    /// 0 while nothing was recorded.
    fn nanos(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    fn record(&self, took: Duration) {
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

/// Counts one waiting publisher until dropped, including when its future is cancelled.
struct WaiterGuard<'a>(&'a AtomicUsize);

impl<'a> WaiterGuard<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }

    fn is_alone(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 1
    }
}

impl Drop for WaiterGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a waiter that would spin next.
    fn hot() -> ReplyWaiter {
        let waiter = ReplyWaiter::default();
        waiter.sleeping.record(REPLY_SPIN / 2);
        waiter.spinning.record(REPLY_SPIN / 4);
        waiter.calls.store(1, Ordering::Relaxed);
        assert_eq!(waiter.should_spin(), has_another_core());
        waiter
    }

    #[tokio::test]
    async fn reply_arrives_whether_the_publisher_spins_or_sleeps() {
        for waiter in [ReplyWaiter::default(), hot()] {
            for _ in 0..2 * PROBE_EVERY {
                let (reply, answer) = oneshot::channel();
                let (waited, ()) = tokio::join!(waiter.wait(answer), async { reply.send(7).unwrap() });
                assert_eq!(waited, Some(7));
                let (reply, answer) = oneshot::channel::<u8>();
                drop(reply);
                assert_eq!(waiter.wait(answer).await, None, "the sender was dropped");
            }
            assert_eq!(waiter.count.load(Ordering::Relaxed), 0);
        }
    }

    #[tokio::test]
    async fn cancelled_waiter_is_not_counted() {
        let waiter = hot();
        let (_reply, answer) = oneshot::channel::<u8>();
        assert!(tokio::time::timeout(2 * REPLY_SPIN, waiter.wait(answer)).await.is_err());
        assert_eq!(waiter.count.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn faster_wait_is_used_and_the_other_one_probed() {
        if !has_another_core() {
            return;
        }
        let waiter = ReplyWaiter::default();
        let spinning = |waiter: &ReplyWaiter| (0..PROBE_EVERY).filter(|_| waiter.should_spin()).count();
        assert_eq!(spinning(&waiter), 0, "nothing was measured yet");
        waiter.sleeping.record(REPLY_SPIN / 2);
        waiter.spinning.record(REPLY_SPIN / 4);
        assert_eq!(spinning(&waiter), PROBE_EVERY - 1);
        (0..50).for_each(|_| waiter.spinning.record(REPLY_SPIN * 6 / 10));
        assert_eq!(spinning(&waiter), 1);
        (0..50).for_each(|_| waiter.sleeping.record(REPLY_SPIN * 1000));
        assert_eq!(spinning(&waiter), 0, "a long wait is never spun");
        (0..50).for_each(|_| waiter.sleeping.record(REPLY_SPIN * 3 / 4));
        assert_eq!(spinning(&waiter), PROBE_EVERY - 1, "old measurements do not count");
    }

    #[test]
    fn writer_gets_every_command_and_sees_the_channel_close() {
        for is_hot in [false, true] {
            let mut waiter = CommandWaiter { is_hot };
            let (queue, mut commands) = mpsc::channel(4);
            queue.try_send(1).unwrap();
            queue.try_send(2).unwrap();
            drop(queue);
            assert_eq!([waiter.wait(&mut commands), waiter.wait(&mut commands)], [Some(1), Some(2)]);
            assert_eq!(waiter.wait(&mut commands), None);
        }
    }
}
