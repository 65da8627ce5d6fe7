//! Group commit: calls that arrive while others run share one statement, and so one round trip and one commit.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::pin::pin;
use std::slice;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use landfall_core::{Error, ErrorKind, MessageId, Result};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::yield_now;
use tokio::time::timeout;

/// The largest group. One statement of more calls is hardly cheaper per call.
const MAX_CALLS: usize = 64;

/// The largest payloads of one statement together, except for a single call.
const MAX_BYTES: usize = 4 << 20;

/// How long later calls wait for a running group. It may wait for a lock, or on a silent connection.
const SLOW: Duration = Duration::from_millis(100);

/// Runs a group of calls. Each call concerns one message id, and a group contains each id once, in ascending order.
pub trait Group: Clone + Send + Sync + 'static {
    type Call: Send + Sync + 'static;
    type Outcome: Send + 'static;

    fn id(call: &Self::Call) -> MessageId;

    /// The size of the call's payload.
    fn bytes(call: &Self::Call) -> usize;

    /// Runs all of them or none, and returns their outcomes in the same order.
    fn run(&self, calls: &[Self::Call]) -> impl Future<Output = Result<Vec<Self::Outcome>>> + Send;
}

/// Runs one group at a time. Calls that arrive meanwhile form the next one, so groups grow with the load.
pub struct GroupedCalls<G: Group>(Arc<Mutex<Waiting<G>>>);

struct Waiting<G: Group> {
    calls: VecDeque<WaitingCall<G>>,
    is_running: bool,
}

struct WaitingCall<G: Group> {
    call: G::Call,
    reply: oneshot::Sender<Result<G::Outcome>>,
}

impl<G: Group> GroupedCalls<G> {
    /// Runs `call`, alone or in a group. If dropped, it may or may not have happened, as with a single statement.
    ///
    /// A temporary error is that of the whole group. After any other error of a group, its calls run one by one, so
    /// that a call that the server refuses fails alone.
    pub async fn call(&self, group: &G, call: G::Call) -> Result<G::Outcome> {
        let (reply, outcome) = oneshot::channel();
        if let Some(running) = self.queue(group, WaitingCall { call, reply }) {
            // Callers that were answered together are about to call again. They join this group.
            yield_now().await;
            let mut calls = self.waiting().take_group();
            if calls.len() == 1
                && let Some(own) = calls.pop()
            {
                // Here instead of in a task: switching threads takes as long as a statement.
                return running.finish(alone(group, &own.call)).await;
            }
            tokio::spawn(run(running, calls));
        }
        let lost = |_| Error::new(ErrorKind::Unknown, "the task of a group of calls ended before they did");
        outcome.await.unwrap_or_else(|closed| Err(lost(closed)))
    }

    /// Queues a call. If no group runs, its caller gets the right to start one.
    fn queue(&self, group: &G, call: WaitingCall<G>) -> Option<Running<G>> {
        let mut waiting = self.waiting();
        waiting.calls.push_back(call);
        let starts = !std::mem::replace(&mut waiting.is_running, true);
        starts.then(|| Running { grouped: Self(self.0.clone()), group: group.clone() })
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting<G>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<G: Group> Default for GroupedCalls<G> {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Waiting { calls: VecDeque::new(), is_running: false })))
    }
}

impl<G: Group> fmt::Debug for GroupedCalls<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Waiting { calls, is_running } = &*self.waiting();
        f.debug_struct("GroupedCalls").field("waiting", &calls.len()).field("is_running", is_running).finish()
    }
}

impl<G: Group> Waiting<G> {
    /// Takes the first calls, up to one whose id is already among them.
    fn take_group(&mut self) -> Vec<WaitingCall<G>> {
        let (mut group, mut bytes) = (BTreeMap::new(), 0);
        while let Some(next) = self.calls.pop_front_if(|next| {
            bytes += G::bytes(&next.call);
            let has_room = group.len() < MAX_CALLS && bytes <= MAX_BYTES && !group.contains_key(&G::id(&next.call));
            group.is_empty() || has_room
        }) {
            // Its caller may have left.
            if !next.reply.is_closed() {
                group.insert(G::id(&next.call), next);
            }
        }
        group.into_values().collect()
    }
}

/// The right to run a group. When dropped, it passes to the calls that wait.
struct Running<G: Group> {
    grouped: GroupedCalls<G>,
    group: G,
}

impl<G: Group> Running<G> {
    /// Runs `calls` to their end. The next group starts then, or after [`SLOW`].
    async fn finish<T>(self, calls: impl Future<Output = T>) -> T {
        let mut calls = pin!(calls);
        let in_time = timeout(SLOW, &mut calls).await;
        drop(self);
        match in_time {
            Ok(outcome) => outcome,
            Err(_) => calls.await,
        }
    }
}

impl<G: Group> Drop for Running<G> {
    fn drop(&mut self) {
        let calls = {
            let mut waiting = self.grouped.waiting();
            let calls = waiting.take_group();
            waiting.is_running = !calls.is_empty();
            calls
        };
        if calls.is_empty() {
            return;
        }
        let running = Self { grouped: GroupedCalls(self.grouped.0.clone()), group: self.group.clone() };
        let group = run(running, calls);
        match Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn(group)),
            // The callers have gone with their runtime.
            Err(_) => drop(group),
        }
    }
}

async fn run<G: Group>(running: Running<G>, waiting: Vec<WaitingCall<G>>) {
    let group = running.group.clone();
    let (calls, replies): (Vec<_>, Vec<_>) =
        waiting.into_iter().map(|WaitingCall { call, reply }| (call, reply)).unzip();
    let outcomes = running.finish(outcomes(&group, &calls)).await;
    for (reply, outcome) in replies.into_iter().zip(outcomes) {
        // The caller may have left.
        drop(reply.send(outcome));
    }
}

async fn outcomes<G: Group>(group: &G, calls: &[G::Call]) -> Vec<Result<G::Outcome>> {
    match group.run(calls).await {
        Ok(outcomes) => outcomes.into_iter().map(Ok).collect(),
        Err(error) if calls.len() == 1 => vec![Err(error)],
        Err(error) if error.is_temporary() => {
            let shared = |_| Err(Error::new(error.kind(), error.to_string()));
            calls.iter().map(shared).collect()
        }
        Err(_) => {
            let mut outcomes = Vec::new();
            for call in calls {
                outcomes.push(alone(group, call).await);
            }
            outcomes
        }
    }
}

async fn alone<G: Group>(group: &G, call: &G::Call) -> Result<G::Outcome> {
    let outcome = group.run(slice::from_ref(call)).await?.pop();
    outcome.ok_or_else(|| Error::new(ErrorKind::Internal, "a call has no outcome; this is a bug"))
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;
    use tokio::task::JoinHandle;

    use super::*;

    /// Calls from this number on are so large that two of them exceed a group.
    const LARGE: u128 = 1_000_000;

    type Ids = Vec<u128>;
    type Answer = oneshot::Sender<Result<Vec<u128>>>;

    /// Reports each group to the test, which answers it.
    #[derive(Clone)]
    struct Reported(mpsc::UnboundedSender<(Ids, Answer)>);

    impl Group for Reported {
        type Call = u128;
        type Outcome = u128;

        fn id(call: &u128) -> MessageId {
            format!("{call:032x}").parse().unwrap()
        }

        fn bytes(call: &u128) -> usize {
            if *call >= LARGE { MAX_BYTES / 2 + 1 } else { 100 }
        }

        async fn run(&self, calls: &[u128]) -> Result<Vec<u128>> {
            let (answer, answered) = oneshot::channel();
            self.0.send((calls.to_vec(), answer)).unwrap();
            answered.await.expect("the test answers")
        }
    }

    struct Calls {
        grouped: Arc<GroupedCalls<Reported>>,
        group: Reported,
        groups: mpsc::UnboundedReceiver<(Ids, Answer)>,
    }

    impl Calls {
        fn new() -> Self {
            let (report, groups) = mpsc::unbounded_channel();
            Self { grouped: Arc::default(), group: Reported(report), groups }
        }

        /// Returns once the call waits or runs.
        async fn call(&self, id: u128) -> JoinHandle<Result<u128>> {
            let (grouped, group) = (self.grouped.clone(), self.group.clone());
            let called = tokio::spawn(async move { grouped.call(&group, id).await });
            tokio::task::yield_now().await;
            called
        }

        /// Starts a group, so that later calls wait until it is answered.
        async fn start(&mut self) -> Answer {
            // Its outcome is of no interest.
            drop(self.call(1000).await);
            self.next(&[1000]).await
        }

        async fn next(&mut self, expected: &[u128]) -> Answer {
            let (ids, answer) = self.groups.recv().await.unwrap();
            assert_eq!(ids, expected);
            answer
        }
    }

    #[tokio::test]
    async fn waiting_calls_share_the_next_group() {
        let mut calls = Calls::new();
        let running = calls.start().await;
        let waiting = [calls.call(2).await, calls.call(1).await, calls.call(2).await];
        running.send(Ok(vec![0])).unwrap();
        // Sorted, and each id once.
        calls.next(&[1, 2]).await.send(Ok(vec![10, 20])).unwrap();
        calls.next(&[2]).await.send(Ok(vec![21])).unwrap();
        let mut outcomes = Vec::new();
        for call in waiting {
            outcomes.push(call.await.unwrap().unwrap());
        }
        assert_eq!(outcomes, [20, 10, 21]);
    }

    #[tokio::test]
    async fn group_is_bounded_in_calls_and_bytes() {
        let mut calls = Calls::new();
        let running = calls.start().await;
        let many: Vec<u128> = (0..MAX_CALLS as u128 + 1).collect();
        let mut waiting = Vec::new();
        for id in many.iter().copied().chain([LARGE, LARGE + 1]) {
            waiting.push(calls.call(id).await);
        }
        running.send(Ok(vec![0])).unwrap();
        for group in [&many[..MAX_CALLS], &[MAX_CALLS as u128, LARGE], &[LARGE + 1]] {
            calls.next(group).await.send(Ok(group.to_vec())).unwrap();
        }
        for call in waiting {
            call.await.unwrap().unwrap();
        }
    }

    #[tokio::test]
    async fn refused_call_fails_alone() {
        let mut calls = Calls::new();
        let running = calls.start().await;
        let (one, two) = (calls.call(1).await, calls.call(2).await);
        running.send(Ok(vec![0])).unwrap();
        calls.next(&[1, 2]).await.send(Err(Error::invalid("no"))).unwrap();
        calls.next(&[1]).await.send(Err(Error::invalid("no"))).unwrap();
        calls.next(&[2]).await.send(Ok(vec![20])).unwrap();
        assert_eq!(one.await.unwrap().unwrap_err().kind(), ErrorKind::Invalid);
        assert_eq!(two.await.unwrap().unwrap(), 20);
    }

    #[tokio::test]
    async fn temporary_error_fails_the_whole_group() {
        let mut calls = Calls::new();
        let running = calls.start().await;
        let both = [calls.call(1).await, calls.call(2).await];
        running.send(Ok(vec![0])).unwrap();
        calls.next(&[1, 2]).await.send(Err(Error::new(ErrorKind::Unavailable, "gone"))).unwrap();
        for call in both {
            assert_eq!(call.await.unwrap().unwrap_err().kind(), ErrorKind::Unavailable);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn silent_group_does_not_delay_later_calls() {
        let mut calls = Calls::new();
        let silent = calls.start().await;
        let later = calls.call(1).await;
        calls.next(&[1]).await.send(Ok(vec![10])).unwrap();
        assert_eq!(later.await.unwrap().unwrap(), 10);
        drop(silent);
    }

    #[tokio::test]
    async fn abandoned_call_never_starts() {
        let mut calls = Calls::new();
        let running = calls.start().await;
        let (abandoned, kept) = (calls.call(1).await, calls.call(2).await);
        abandoned.abort();
        assert!(abandoned.await.unwrap_err().is_cancelled());
        running.send(Ok(vec![0])).unwrap();
        calls.next(&[2]).await.send(Ok(vec![20])).unwrap();
        assert_eq!(kept.await.unwrap().unwrap(), 20);
    }

    #[tokio::test]
    async fn panic_fails_its_group_only() {
        let mut calls = Calls::new();
        let running = calls.start().await;
        let lost = calls.call(1).await;
        running.send(Ok(vec![0])).unwrap();
        // The group panics without an answer.
        drop(calls.next(&[1]).await);
        assert_eq!(lost.await.unwrap().unwrap_err().kind(), ErrorKind::Unknown);
        let later = calls.call(2).await;
        calls.next(&[2]).await.send(Ok(vec![20])).unwrap();
        assert_eq!(later.await.unwrap().unwrap(), 20);
    }
}
