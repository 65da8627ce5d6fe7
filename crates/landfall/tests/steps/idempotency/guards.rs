//! State guard and time window.

use std::sync::Arc;
use std::time::Duration;

use landfall::idempotency::{Advanced, Error, MemoryRecords, Scope, StateGuard, Windowed, Windows};
use landfall_sqlite::Sqlite;
use sqlx::{AssertSqlSafe, SqliteConnection};
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinSet;

use super::Effects;
use crate::fixture::Fixture;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Pending,
    Processing,
    Paid,
    Failed,
    Cancelled,
}

impl State {
    const ALL: [Self; 5] = [Self::Pending, Self::Processing, Self::Paid, Self::Failed, Self::Cancelled];

    fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Processing => "processing",
            Self::Paid => "paid",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

fn pay() -> StateGuard<State> {
    StateGuard::new([State::Pending], State::Paid).via(State::Processing).falling_back_to(State::Pending)
}

async fn update(connection: &mut SqliteConnection, from: &[State], to: State) -> sqlx::Result<u64> {
    let sources = from.iter().map(|state| format!("'{}'", state.name())).collect::<Vec<_>>().join(", ");
    let statement = format!("UPDATE payment SET state = ?1 WHERE id = 1 AND state IN ({sources})");
    let done = sqlx::query(AssertSqlSafe(statement)).bind(to.name()).execute(connection).await?;
    Ok(done.rows_affected())
}

async fn read(connection: &mut SqliteConnection) -> sqlx::Result<Option<State>> {
    let state: Option<String> =
        sqlx::query_scalar("SELECT state FROM payment WHERE id = 1").fetch_optional(connection).await?;
    Ok(state.and_then(|state| State::ALL.into_iter().find(|known| known.name() == state)))
}

async fn advance(database: &Sqlite) -> Advanced<State> {
    let mut connection = database.pool().acquire().await.unwrap();
    pay().advance(&mut *connection, update, read).await.unwrap()
}

async fn payment(state: State) -> Fixture {
    let fixture = Fixture::new().await;
    let pool = fixture.database.pool();
    sqlx::query("CREATE TABLE payment (id INTEGER PRIMARY KEY, state TEXT)").execute(pool).await.unwrap();
    sqlx::query("INSERT INTO payment VALUES (1, ?1)").bind(state.name()).execute(pool).await.unwrap();
    fixture
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_callers_of_a_state_guard_have_one_winner() {
    let fixture = payment(State::Pending).await;
    let mut calls = JoinSet::new();
    for _ in 0..20 {
        let database = fixture.database.clone();
        calls.spawn(async move { advance(&database).await });
    }
    let answers = calls.join_all().await;
    assert_eq!(answers.iter().filter(|answer| **answer == Advanced::Now).count(), 1, "{answers:?}");
    assert_eq!(answers.iter().filter(|answer| **answer == Advanced::InProgress).count(), 19, "{answers:?}");
    let mut connection = fixture.database.pool().acquire().await.unwrap();
    assert!(pay().finish(&mut *connection, true, update).await.unwrap());
    assert!(!pay().finish(&mut *connection, true, update).await.unwrap(), "it was finished twice");
    drop(connection);
    assert_eq!(advance(&fixture.database).await, Advanced::Before);
}

#[tokio::test]
async fn state_guard_refuses_other_states_and_falls_back_where_declared() {
    let fixture = payment(State::Cancelled).await;
    assert_eq!(advance(&fixture.database).await, Advanced::Refused(State::Cancelled));
    let set = async |state: State| {
        sqlx::query("UPDATE payment SET state = ?1").bind(state.name()).execute(fixture.database.pool()).await.unwrap();
    };
    set(State::Pending).await;
    assert_eq!(advance(&fixture.database).await, Advanced::Now);
    let mut connection = fixture.database.pool().acquire().await.unwrap();
    assert!(pay().finish(&mut *connection, false, update).await.unwrap());
    assert_eq!(read(&mut connection).await.unwrap(), Some(State::Pending));
    let stays = StateGuard::new([State::Pending], State::Paid).via(State::Processing);
    assert!(!stays.finish(&mut *connection, false, update).await.unwrap(), "it fell back without permission");
    sqlx::query("DELETE FROM payment").execute(&mut *connection).await.unwrap();
    drop(connection);
    assert_eq!(advance(&fixture.database).await, Advanced::Missing);
}

/// A step that is declared from FAILED and CANCELLED enters again, once; a repeat is told the current state.
#[tokio::test(flavor = "multi_thread")]
async fn declared_failed_and_cancelled_states_are_entered_again_once() {
    let retry = || {
        StateGuard::new([State::Failed, State::Cancelled], State::Paid)
            .via(State::Processing)
            .falling_back_to(State::Failed)
    };
    for from in [State::Failed, State::Cancelled] {
        let fixture = payment(from).await;
        // The first payment does not declare it, so it is refused with the current state.
        assert_eq!(advance(&fixture.database).await, Advanced::Refused(from));
        let mut calls = JoinSet::new();
        for _ in 0..10 {
            let database = fixture.database.clone();
            calls.spawn(async move {
                let mut connection = database.pool().acquire().await.unwrap();
                retry().advance(&mut *connection, update, read).await.unwrap()
            });
        }
        let answers = calls.join_all().await;
        assert_eq!(answers.iter().filter(|answer| **answer == Advanced::Now).count(), 1, "{answers:?}");
        assert_eq!(answers.iter().filter(|answer| **answer == Advanced::InProgress).count(), 9, "{answers:?}");
        let mut connection = fixture.database.pool().acquire().await.unwrap();
        // It fails again, is tried again, and succeeds. Then it is a repeat for every caller.
        assert!(retry().finish(&mut *connection, false, update).await.unwrap());
        assert_eq!(read(&mut connection).await.unwrap(), Some(State::Failed));
        assert_eq!(retry().advance(&mut *connection, update, read).await.unwrap(), Advanced::Now);
        assert!(retry().finish(&mut *connection, true, update).await.unwrap());
        for _ in 0..2 {
            assert_eq!(retry().advance(&mut *connection, update, read).await.unwrap(), Advanced::Before);
        }
        assert!(!retry().finish(&mut *connection, false, update).await.unwrap(), "a late failure undid the payment");
        assert_eq!(read(&mut connection).await.unwrap(), Some(State::Paid));
    }
}

const MINUTE: Duration = Duration::from_secs(60);

async fn send(windows: &Windows, effects: &Effects, is_sent: bool) -> Result<Windowed<u32>, Error<&'static str>> {
    let effects = effects.clone();
    let work = async move || {
        let number = effects.add();
        if is_sent { Ok(number) } else { Err("no network") }
    };
    windows.run(Scope::Global, "sms", "+49", MINUTE, work).await
}

#[tokio::test(start_paused = true)]
async fn window_suppresses_repeats_and_failed_work_reopens_it() {
    let (windows, effects) = (Windows::new(Arc::new(MemoryRecords::default())), Effects::default());
    assert!(matches!(send(&windows, &effects, false).await, Err(Error::Work("no network"))));
    assert_eq!(send(&windows, &effects, true).await.unwrap(), Windowed::Ran(2));
    for _ in 0..2 {
        let suppressed = send(&windows, &effects, true).await.unwrap();
        assert!(matches!(suppressed, Windowed::Suppressed { remaining } if remaining <= MINUTE), "{suppressed:?}");
        tokio::time::advance(MINUTE / 3).await;
    }
    // The repeats have not extended it.
    tokio::time::advance(MINUTE / 3).await;
    assert_eq!(send(&windows, &effects, true).await.unwrap(), Windowed::Ran(3));
}

/// Otherwise the repeats of a client that disconnects would be suppressed by work that was never done.
#[tokio::test]
async fn dropped_caller_does_not_stop_the_work_of_a_window() {
    let (windows, effects) = (Windows::new(Arc::new(MemoryRecords::default())), Effects::default());
    let (claimed, gate) = (Arc::new(Notify::new()), Arc::new(Semaphore::new(0)));
    let caller = tokio::spawn({
        let (windows, effects, claimed, gate) = (windows.clone(), effects.clone(), claimed.clone(), gate.clone());
        async move {
            let work = async move || {
                claimed.notify_one();
                gate.acquire().await.unwrap().forget();
                Ok::<_, ()>(effects.add())
            };
            windows.run(Scope::Global, "sms", "+49", MINUTE, work).await
        }
    });
    claimed.notified().await;
    caller.abort();
    assert!(caller.await.unwrap_err().is_cancelled());
    gate.add_permits(1);
    windows.drain().await;
    let repeat = send(&windows, &effects, true).await.unwrap();
    assert!(matches!(repeat, Windowed::Suppressed { .. }), "{repeat:?}");
    assert_eq!(effects.count(), 1, "the window is closed, and nothing was done");
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_calls_of_a_window_run_once() {
    let (fixture, effects) = (Fixture::new().await, Effects::default());
    let windows = Windows::new(Arc::new(fixture.database.clone()));
    let mut calls = JoinSet::new();
    for _ in 0..20 {
        let (windows, effects) = (windows.clone(), effects.clone());
        calls.spawn(async move { send(&windows, &effects, true).await.unwrap() });
    }
    let answers = calls.join_all().await;
    assert_eq!(answers.iter().filter(|answer| matches!(answer, Windowed::Ran(_))).count(), 1, "{answers:?}");
    assert_eq!(effects.count(), 1);
}
