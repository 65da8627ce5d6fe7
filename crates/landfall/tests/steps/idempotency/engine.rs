//! The plain call: one effect and one answer, whatever callers, processes and stores do.

use std::sync::Arc;
use std::time::Duration;

use landfall::idempotency::{
    Answer, Error, Idempotency, IdempotencyRecords, Identity, MemoryRecords, OnUnknown, OneTimeTokens, Policy,
    RecordFilter, RecordState, Scope, Snapshot, Token, Work,
};
use landfall_testkit::eventually;
use metrics_exporter_prometheus::PrometheusBuilder;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::faults::Faulty;
use super::{Effects, SHORT, impatient, order, request, rerun};
use crate::fixture::{Fixture, TIMEOUT};

type Outcome = Result<Answer<u32>, Error<&'static str>>;

/// Runs work that counts, after it got a permit of `gate`.
async fn count(engine: &Idempotency, policy: &Policy, effects: &Effects, gate: &Arc<Semaphore>) -> Outcome {
    let (effects, gate) = (effects.clone(), gate.clone());
    let work = async move |_| {
        gate.acquire().await.unwrap().forget();
        Work::Done(effects.add())
    };
    engine.run(&order("1"), &request("first"), policy, work).await
}

fn open() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(1000))
}

fn closed() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(0))
}

fn in_memory() -> (MemoryRecords, Idempotency) {
    let records = MemoryRecords::default();
    (records.clone(), Idempotency::new(Arc::new(records)))
}

#[tokio::test(flavor = "multi_thread")]
async fn hundred_concurrent_calls_run_once() {
    let ((_, engine), effects) = (in_memory(), Effects::default());
    let mut calls = JoinSet::new();
    for _ in 0..100 {
        let (engine, effects) = (engine.clone(), effects.clone());
        calls.spawn(async move { count(&engine, &rerun(), &effects, &open()).await.unwrap() });
    }
    let answers = calls.join_all().await;
    assert!(answers.iter().all(|answer| answer.value == 1), "{answers:?}");
    assert_eq!((answers.iter().filter(|answer| !answer.is_replayed).count(), effects.count()), (1, 1));
}

/// Two processes on one database: the second one polls until the first has the answer.
#[tokio::test(flavor = "multi_thread")]
async fn calls_of_two_processes_run_once() {
    let (fixture, effects) = (Fixture::new().await, Effects::default());
    let engines = [fixture.database.clone(), fixture.database.clone()].map(|store| Idempotency::new(Arc::new(store)));
    let gate = closed();
    let mut calls = JoinSet::new();
    for number in 0..20 {
        let (engine, effects, gate) = (engines[number % 2].clone(), effects.clone(), gate.clone());
        calls.spawn(async move { count(&engine, &rerun(), &effects, &gate).await.unwrap() });
    }
    eventually(TIMEOUT, "an attempt", async || fixture.database.record_stats().await.unwrap().in_flight == 1).await;
    gate.add_permits(20);
    let answers = calls.join_all().await;
    assert!(answers.iter().all(|answer| answer.value == 1), "{answers:?}");
    assert_eq!(effects.count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn call_that_waited_long_enough_is_told_to_retry() {
    let ((records, first), effects, gate) = (in_memory(), Effects::default(), closed());
    let other = Idempotency::new(Arc::new(records.clone()));
    let running = tokio::spawn({
        let (first, effects, gate) = (first.clone(), effects.clone(), gate.clone());
        async move { count(&first, &rerun(), &effects, &gate).await }
    });
    eventually(TIMEOUT, "the attempt", async || records.record_stats().await.unwrap().in_flight == 1).await;
    for engine in [&first, &other] {
        let refused = count(engine, &impatient(), &effects, &gate).await;
        let Err(Error::InFlight { retry_after }) = refused else { panic!("{refused:?}") };
        assert!((1..=30).contains(&retry_after.as_secs()), "{retry_after:?}");
        // Refused at once, without waiting for the attempt.
        let mismatch: Outcome = engine.run(&order("1"), &request("second"), &rerun(), async |_| Work::Done(9)).await;
        assert!(matches!(mismatch, Err(Error::Mismatch)), "{mismatch:?}");
    }
    gate.add_permits(1);
    assert_eq!(running.await.unwrap().unwrap().value, 1);
    assert!(count(&other, &rerun(), &effects, &gate).await.unwrap().is_replayed);
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_that_wait_are_limited() {
    let ((records, engine), effects, gate) = (in_memory(), Effects::default(), closed());
    let engine = engine.with_max_waiters(2);
    let mut calls = JoinSet::new();
    for _ in 0..10 {
        let (engine, effects, gate) = (engine.clone(), effects.clone(), gate.clone());
        calls.spawn(async move { count(&engine, &rerun(), &effects, &gate).await });
    }
    eventually(TIMEOUT, "the attempt", async || records.record_stats().await.unwrap().in_flight == 1).await;
    for _ in 0..7 {
        let refused = calls.join_next().await.unwrap().unwrap();
        assert!(matches!(refused, Err(Error::InFlight { .. })), "{refused:?}");
    }
    gate.add_permits(1);
    assert!(calls.join_all().await.into_iter().all(|answer| answer.unwrap().value == 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn dropped_caller_does_not_stop_the_work() {
    let ((records, engine), effects, gate) = (in_memory(), Effects::default(), closed());
    let caller = tokio::spawn({
        let (engine, effects, gate) = (engine.clone(), effects.clone(), gate.clone());
        async move { count(&engine, &rerun(), &effects, &gate).await }
    });
    eventually(TIMEOUT, "the attempt", async || records.record_stats().await.unwrap().in_flight == 1).await;
    caller.abort();
    assert!(caller.await.unwrap_err().is_cancelled());
    gate.add_permits(1);
    engine.drain().await;
    assert_eq!(effects.count(), 1);
    let answer = count(&engine, &rerun(), &effects, &gate).await.unwrap();
    assert_eq!((answer.value, answer.is_replayed), (1, true));
}

#[tokio::test(flavor = "multi_thread")]
async fn work_that_did_nothing_frees_the_key_for_the_next_caller() {
    let ((_, engine), gate, effects) = (in_memory(), closed(), Effects::default());
    let mut calls = JoinSet::new();
    for _ in 0..3 {
        let (engine, gate, effects) = (engine.clone(), gate.clone(), effects.clone());
        calls.spawn(async move {
            let work = async move |_| {
                gate.acquire().await.unwrap().forget();
                // The third attempt succeeds.
                match effects.add() {
                    3 => Work::Done(3),
                    _ => Work::NothingDone("out of stock"),
                }
            };
            engine.run(&order("1"), &request("first"), &rerun(), work).await
        });
    }
    gate.add_permits(3);
    let answers: Vec<Outcome> = calls.join_all().await;
    assert_eq!(answers.iter().filter(|answer| matches!(answer, Err(Error::Work("out of stock")))).count(), 2);
    assert_eq!(answers.iter().flatten().count(), 1, "{answers:?}");
}

#[tokio::test]
async fn unknown_outcome_and_panic_follow_the_policy() {
    let ((records, engine), effects) = (in_memory(), Effects::default());
    for (on_unknown, key) in [(OnUnknown::Rerun, "rerun"), (OnUnknown::Uncertain, "uncertain")] {
        for panics in [false, true] {
            let (identity, policy) = (order(&format!("{key} {panics}")), Policy::new(on_unknown));
            let work = async move |_| {
                assert!(!panics, "as the test wants");
                Work::<u32, _>::Unknown("lost")
            };
            let failed: Outcome = engine.run(&identity, &request("first"), &policy, work).await;
            assert!(matches!(failed, Err(Error::Work("lost") | Error::Aborted)), "{failed:?}");
            let effects = effects.clone();
            let again: Outcome =
                engine.run(&identity, &request("first"), &policy, async move |_| Work::Done(effects.add())).await;
            match on_unknown {
                OnUnknown::Rerun => assert!(!again.unwrap().is_replayed),
                OnUnknown::Uncertain => assert!(matches!(again, Err(Error::Uncertain)), "{again:?}"),
            }
        }
    }
    let filter = RecordFilter { state: Some(RecordState::Uncertain), ..RecordFilter::default() };
    assert_eq!((records.find_records(&filter, 10).await.unwrap().len(), effects.count()), (2, 2));
}

/// Time is simulated: the work takes ten leases.
#[tokio::test(start_paused = true)]
async fn heartbeat_outlives_the_lease_until_the_ceiling() {
    let ((records, engine), effects) = (in_memory(), Effects::default());
    let other = Idempotency::new(Arc::new(records));
    let mut policy = rerun().with_lease(Duration::from_secs(3));
    let slow = |seconds: u64, policy: Policy| {
        let (engine, effects) = (engine.clone(), effects.clone());
        tokio::spawn(async move {
            let work = async move |attempt: landfall::idempotency::Attempt| {
                tokio::time::sleep(Duration::from_secs(seconds)).await;
                if attempt.is_lost() { Work::Unknown("lost") } else { Work::Done(effects.add()) }
            };
            engine.run(&order("1"), &request("first"), &policy, work).await
        })
    };
    let running = slow(30, policy.clone());
    tokio::time::sleep(Duration::from_secs(20)).await;
    let refused = count(&other, &impatient(), &effects, &open()).await;
    assert!(matches!(refused, Err(Error::InFlight { .. })), "{refused:?}");
    assert_eq!(running.await.unwrap().unwrap().value, 1);

    // Another key, with a ceiling: the attempt learns that it is lost, and another one runs.
    policy.terms.ceiling = Duration::from_secs(6);
    let work = async move |attempt: landfall::idempotency::Attempt| {
        attempt.lost().await;
        Work::<u32, _>::Unknown("stopped")
    };
    let stopped: Outcome = engine.run(&order("2"), &request("first"), &policy, work).await;
    assert!(matches!(stopped, Err(Error::Work("stopped"))), "{stopped:?}");
    let next: Outcome = other.run(&order("2"), &request("first"), &policy, async |_| Work::Done(2)).await;
    assert_eq!(next.unwrap().value, 2);
}

/// The first process is paused past its lease: it can neither renew nor settle, and answers with the winner's answer.
#[tokio::test(start_paused = true)]
async fn paused_attempt_is_fenced_and_answers_as_the_winner() {
    let (store, gate) = (Faulty::default(), closed());
    let (paused, winner) =
        (Idempotency::new(Arc::new(store.clone())), Idempotency::new(Arc::new(store.records.clone())));
    store.fail_renewals(u32::MAX);
    let policy = rerun().with_lease(SHORT);
    let late = tokio::spawn({
        let (paused, gate, policy) = (paused.clone(), gate.clone(), policy.clone());
        async move {
            let work = async move |_| {
                gate.acquire().await.unwrap().forget();
                Work::Done(111)
            };
            let answer: Outcome = paused.run(&order("1"), &request("first"), &policy, work).await;
            answer
        }
    });
    let won: Outcome = winner.run(&order("1"), &request("first"), &policy, async |_| Work::Done(222)).await;
    // The winner polled until the lease had expired.
    assert_eq!(won.unwrap().value, 222);
    gate.add_permits(1);
    let late = late.await.unwrap().unwrap();
    assert_eq!((late.value, late.is_replayed), (222, true));
}

#[tokio::test(start_paused = true)]
async fn unavailable_store_refuses_before_the_work() {
    let (store, effects) = (Faulty::default(), Effects::default());
    let engine = Idempotency::new(Arc::new(store.clone()));
    store.fail_claims(1);
    let refused = count(&engine, &rerun(), &effects, &open()).await;
    assert!(matches!(&refused, Err(Error::Store(error)) if error.is_temporary()), "{refused:?}");
    assert_eq!(effects.count(), 0, "the work ran without a record");
    assert!(!count(&engine, &rerun(), &effects, &open()).await.unwrap().is_replayed);
}

#[tokio::test(start_paused = true)]
async fn store_that_fails_after_the_work_is_settled_when_it_is_back() {
    let (store, effects) = (Faulty::default(), Effects::default());
    let engine = Idempotency::new(Arc::new(store.clone()));
    store.fail_settles(5);
    let answer = count(&engine, &rerun(), &effects, &open()).await.unwrap();
    assert_eq!((answer.value, answer.is_replayed), (1, false));
    assert!(count(&engine, &rerun(), &effects, &open()).await.unwrap().is_replayed);
    // It stays away for longer than the lease: the caller gets its answer, and a repeat follows the policy.
    store.fail_settles(u32::MAX);
    let policy = Policy::new(OnUnknown::Uncertain);
    let run = async || engine.run(&order("2"), &request("first"), &policy, async |_| Work::Done(7)).await;
    let answer: Outcome = run().await;
    assert_eq!(answer.unwrap().value, 7);
    store.fail_settles(0);
    tokio::time::sleep(Duration::from_secs(60)).await;
    let repeat: Outcome = run().await;
    assert!(matches!(repeat, Err(Error::Uncertain)), "{repeat:?}");
}

#[tokio::test]
async fn token_is_used_up_only_by_work_that_is_done() {
    let ((records, engine), token) = (in_memory(), Token::generate().unwrap());
    let identity = token.identity(Scope::Global, "order", "1").unwrap();
    let pay = async |work: Work<u32, &'static str>| {
        let answer: Outcome = engine.run(&identity, &request("first"), &rerun(), async move |_| work).await;
        answer
    };
    assert!(matches!(pay(Work::Done(1)).await, Err(Error::NotIssued)));
    records.issue_token(&identity, Duration::from_secs(300)).await.unwrap();
    assert!(matches!(pay(Work::NothingDone("declined")).await, Err(Error::Work("declined"))));
    assert!(!pay(Work::Done(2)).await.unwrap().is_replayed);
    let repeat = pay(Work::Done(3)).await.unwrap();
    assert_eq!((repeat.value, repeat.is_replayed), (2, true));
}

#[tokio::test]
async fn large_answer_is_not_kept_and_never_run_again() {
    let (_, engine) = in_memory();
    let body = vec![b'x'; Snapshot::MAX_BODY_BYTES + 1];
    let large = "x".repeat(body.len());
    let policy = rerun();
    let answer: Result<Answer<String>, Error<()>> = engine
        .run(&order("1"), &request("first"), &policy, {
            let large = large.clone();
            async move |_| Work::Done(large)
        })
        .await;
    assert_eq!(answer.unwrap().value, large, "the first caller gets all of it");
    let repeat: Result<Answer<String>, Error<()>> =
        engine.run(&order("1"), &request("first"), &policy, async |_| Work::Done("again".into())).await;
    assert!(matches!(repeat, Err(Error::NotKept { status: 200, is_expired: false })), "{repeat:?}");
}

#[test]
fn results_are_counted_by_business_type() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    metrics::with_local_recorder(&recorder, || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (_, engine) = in_memory();
            for fingerprint in ["first", "first", "second"] {
                let run: Outcome =
                    engine.run(&order("1"), &request(fingerprint), &rerun(), async |_| Work::Done(1)).await;
                drop(run);
            }
        });
    });
    let text = handle.render();
    for result in ["executed", "replayed", "mismatch"] {
        let line = format!("landfall_idempotency_total{{result=\"{result}\",business_type=\"order\"}} 1");
        assert!(text.contains(&line), "{line} is missing in\n{text}");
    }
}

/// A violation that is the first sample of its counter would have no increase in Prometheus.
#[test]
fn results_begin_at_zero_when_a_business_type_is_seen() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    let line = |result: &str, value: u32| {
        format!("landfall_idempotency_total{{result=\"{result}\",business_type=\"seen first\"}} {value}")
    };
    metrics::with_local_recorder(&recorder, || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (_, engine) = in_memory();
            let identity = Identity::new(Scope::Global, "seen first", "1").unwrap();
            let run: Outcome = engine
                .run(&identity, &request("first"), &rerun(), async move |_| {
                    let exported = handle.render();
                    for result in ["executed", "mismatch", "fenced", "uncertain", "store_error"] {
                        assert!(exported.contains(&line(result, 0)), "{result} is missing in\n{exported}");
                    }
                    Work::Done(1)
                })
                .await;
            run.unwrap();
        });
    });
}
