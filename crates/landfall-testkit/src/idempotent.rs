//! Checks that a request takes effect once, however it is repeated and interrupted. For users' own handlers too.

use std::fmt::Debug;
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use futures_util::future::join_all;

/// The most awaits at which a call is cancelled.
const MOST_AWAITS: usize = 300;
/// How many calls run at the same time.
const CONCURRENT: usize = 10;

/// Asserts that `call` is idempotent: called again, concurrently, and after it was cancelled at every await.
///
/// `setup` makes a new system under test. `call` sends the same request each time, retries until it is answered, and
/// returns the answer. `evidence` returns what the request has done: rows, messages, calls of other systems. It is the
/// same after one call and after many, and so is the answer.
///
/// A call that is cancelled stands for a client that disconnects. For a process that is killed see
/// [`assert_idempotent_when_killed`].
///
/// ```no_run
/// # struct Shop;
/// # impl Shop {
/// #     async fn new() -> Self { Shop }
/// #     async fn place(&self) -> u16 { 201 }
/// #     async fn orders(&self) -> u32 { 1 }
/// # }
/// # async fn example() {
/// landfall_testkit::assert_idempotent(Shop::new, Shop::place, Shop::orders).await;
/// # }
/// ```
///
/// # Panics
///
/// If an answer or the evidence differs. The message says after which repetition.
pub async fn assert_idempotent<S, A: PartialEq + Debug, E: PartialEq + Debug>(
    setup: impl AsyncFn() -> S,
    call: impl AsyncFn(&S) -> A,
    evidence: impl AsyncFn(&S) -> E,
) {
    let system = setup().await;
    let answer = call(&system).await;
    let once = evidence(&system).await;
    for repetition in ["a second call", "a third call"] {
        assert_eq!(call(&system).await, answer, "the answer differs after {repetition}");
        assert_eq!(evidence(&system).await, once, "{repetition} took effect again");
    }
    let system = setup().await;
    for concurrent in join_all((0..CONCURRENT).map(|_| call(&system))).await {
        assert_eq!(concurrent, answer, "the answer of a concurrent call differs");
    }
    assert_eq!(evidence(&system).await, once, "{CONCURRENT} concurrent calls took effect differently from one");
    for awaits in 1..=MOST_AWAITS {
        let system = setup().await;
        let was_cancelled = cancel_after(call(&system), awaits).await;
        assert_eq!(call(&system).await, answer, "the answer differs after a call that was cancelled at await {awaits}");
        let found = evidence(&system).await;
        assert_eq!(found, once, "a call that was cancelled at await {awaits}, and repeated, took effect differently");
        if !was_cancelled {
            return;
        }
    }
}

/// Asserts that `call` is idempotent although the process that works on it is killed at each of its failpoints.
///
/// `setup` makes new storage that outlives a process. `call` runs the request in a child process, which kills itself at
/// the failpoint if one is named, and returns the answer: `None` if the process died before it. A child arms the
/// failpoint with `fail::cfg_callback` and raises SIGKILL in it; [`Process`](crate::Process) runs it. `evidence`
/// returns what the request has done.
///
/// # Panics
///
/// If a process is not killed at its failpoint, or if a repeat gets no answer. Also if answer or evidence differ from
/// those of one call that was not killed. The message names the failpoint.
pub async fn assert_idempotent_when_killed<S, A: PartialEq + Debug, E: PartialEq + Debug>(
    failpoints: &[&str],
    setup: impl AsyncFn() -> S,
    call: impl AsyncFn(&S, Option<&str>) -> Option<A>,
    evidence: impl AsyncFn(&S) -> E,
) {
    let storage = setup().await;
    let Some(answer) = call(&storage, None).await else { panic!("a call that is not killed must be answered") };
    let once = evidence(&storage).await;
    for failpoint in failpoints {
        let storage = setup().await;
        let killed = call(&storage, Some(failpoint)).await;
        assert_eq!(killed, None, "the process was not killed at {failpoint}");
        for repetition in ["the first repeat", "the second repeat"] {
            let repeated = call(&storage, None).await;
            assert_eq!(repeated.as_ref(), Some(&answer), "{repetition} after a kill at {failpoint}");
            let found = evidence(&storage).await;
            assert_eq!(found, once, "{repetition} after a kill at {failpoint} took effect differently from one call");
        }
    }
}

/// Polls a call this many times and drops it. Returns whether it was still running.
async fn cancel_after<A>(call: impl Future<Output = A>, polls: usize) -> bool {
    let (mut call, mut polled) = (pin!(call), 0);
    poll_fn(|context| {
        if polled == polls {
            return Poll::Ready(true);
        }
        polled += 1;
        match call.as_mut().poll(context) {
            Poll::Ready(_) => Poll::Ready(false),
            Poll::Pending if polled == polls => Poll::Ready(true),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}
