//! The barrier: a local transaction and a check-back agree on one verdict.

use std::time::Duration;

use landfall_core::{
    BarrierWriter, Barriers, Database, Error, ErrorKind, Expiring, HalfVerdict, Housekeeping, MessageId, Timestamp,
};

use super::half_steps::{COMMIT, ROLLBACK};
use super::harness::{LONG, TIMEOUT};
use super::{DatabaseFixture, Harness};
use crate::eventually;

async fn ask<D: Barriers>(database: &D, id: MessageId) -> Option<HalfVerdict> {
    database.ask_barrier(id, Timestamp::now()).await.unwrap()
}

/// Runs a local transaction that does nothing but enter the barrier.
async fn enter_and_commit<D: BarrierWriter>(database: &D, id: MessageId) -> Result<(), Error> {
    let mut transaction = database.begin().await?;
    database.enter_barrier(&mut transaction, id).await?;
    database.commit(transaction).await
}

/// Rolls a transaction back, and returns when its locks are gone.
async fn roll_back<D: Database>(database: &D, transaction: D::Transaction) {
    database.flush(transaction).await.unwrap();
}

pub async fn committed_local_transaction_is_committed<F: DatabaseFixture>(harness: Harness<F>) {
    let id = MessageId::new();
    enter_and_commit(&harness.database, id).await.unwrap();
    for _ in 0..2 {
        assert_eq!(ask(&harness.second().await, id).await, Some(COMMIT));
    }
    let error = enter_and_commit(&harness.database, id).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    assert_eq!(ask(&harness.database, id).await, Some(COMMIT));
}

pub async fn missing_row_is_rolled_back_and_a_late_transaction_fails<F: DatabaseFixture>(harness: Harness<F>) {
    let id = MessageId::new();
    for _ in 0..2 {
        assert_eq!(ask(&harness.second().await, id).await, Some(ROLLBACK));
    }
    let error = enter_and_commit(&harness.database, id).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    assert!(error.to_string().contains("roll back"), "{error}");
    assert_eq!(ask(&harness.database, id).await, Some(ROLLBACK));
}

pub async fn rolled_back_local_transaction_is_rolled_back<F: DatabaseFixture>(harness: Harness<F>) {
    let id = MessageId::new();
    let mut transaction = harness.database.begin().await.unwrap();
    harness.database.enter_barrier(&mut transaction, id).await.unwrap();
    roll_back(&harness.database, transaction).await;
    let asker = harness.second().await;
    eventually(TIMEOUT, "the verdict is known", async || ask(&asker, id).await == Some(ROLLBACK)).await;
    assert_eq!(enter_and_commit(&harness.database, id).await.unwrap_err().kind(), ErrorKind::Conflict);
}

pub async fn open_local_transaction_is_unknown_until_it_commits<F: DatabaseFixture>(harness: Harness<F>) {
    let (id, asker) = (MessageId::new(), harness.second().await);
    let mut transaction = harness.database.begin().await.unwrap();
    harness.database.enter_barrier(&mut transaction, id).await.unwrap();
    for _ in 0..2 {
        assert_eq!(ask(&asker, id).await, None);
    }
    harness.database.commit(transaction).await.unwrap();
    assert_eq!(ask(&asker, id).await, Some(COMMIT));
}

pub async fn open_local_transaction_is_unknown_until_it_rolls_back<F: DatabaseFixture>(harness: Harness<F>) {
    let (id, asker) = (MessageId::new(), harness.second().await);
    let mut transaction = harness.database.begin().await.unwrap();
    harness.database.enter_barrier(&mut transaction, id).await.unwrap();
    assert_eq!(ask(&asker, id).await, None);
    roll_back(&harness.database, transaction).await;
    eventually(TIMEOUT, "the verdict is known", async || ask(&asker, id).await == Some(ROLLBACK)).await;
}

pub async fn concurrent_questions_have_the_same_answer<F: DatabaseFixture>(harness: Harness<F>) {
    for _ in 0..4 {
        let id = MessageId::new();
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..4 {
            let database = harness.second().await;
            tasks.spawn(async move { database.ask_barrier(id, Timestamp::now()).await.unwrap() });
        }
        let answers = tasks.join_all().await;
        assert!(answers.contains(&Some(ROLLBACK)), "{answers:?}");
        assert!(!answers.contains(&Some(COMMIT)), "{answers:?}");
        assert_eq!(ask(&harness.database, id).await, Some(ROLLBACK));
    }
}

pub async fn question_and_local_transaction_agree<F: DatabaseFixture>(harness: Harness<F>) {
    let (service, asker) = (harness.second().await, harness.second().await);
    for _ in 0..20 {
        let id = MessageId::new();
        let local = tokio::spawn({
            let service = service.clone();
            async move { enter_and_commit(&service, id).await }
        });
        let asked = asker.ask_barrier(id, Timestamp::now()).await.unwrap_or_default();
        let expected = match local.await.unwrap() {
            Ok(()) => COMMIT,
            Err(error) if error.kind() == ErrorKind::Conflict => ROLLBACK,
            Err(error) => panic!("{error}"),
        };
        assert!(asked.is_none_or(|verdict| verdict == expected), "asked {asked:?}, and it is {expected:?}");
        assert_eq!(ask(&asker, id).await, Some(expected));
    }
}

pub async fn barrier_row_can_be_written_with_plain_sql<F: DatabaseFixture>(harness: Harness<F>) {
    let (lower, upper) = (MessageId::new(), MessageId::new());
    for text in [lower.to_string(), upper.to_string().to_uppercase()] {
        let mut transaction = harness.database.begin().await.unwrap();
        let insert = format!("INSERT INTO landfall_barrier (id) VALUES ('{text}')");
        harness.fixture.execute_text(&mut transaction, &insert).await.unwrap();
        harness.database.commit(transaction).await.unwrap();
    }
    for id in [lower, upper] {
        assert_eq!(ask(&harness.database, id).await, Some(COMMIT));
    }
    let late = MessageId::new();
    assert_eq!(ask(&harness.database, late).await, Some(ROLLBACK));
    for invalid in [late.to_string().to_uppercase(), "42".into()] {
        let mut transaction = harness.database.begin().await.unwrap();
        let insert = format!("INSERT INTO landfall_barrier (id) VALUES ('{invalid}')");
        harness.fixture.execute_text(&mut transaction, &insert).await.expect_err("the insert succeeded");
        roll_back(&harness.database, transaction).await;
    }
}

pub async fn removed_barrier_rows_make_older_messages_unknown<F: DatabaseFixture>(harness: Harness<F>) {
    let ids: Vec<_> = (0..3).map(|_| MessageId::new()).collect();
    for id in &ids {
        enter_and_commit(&harness.database, *id).await.unwrap();
    }
    let remove = async |age, at_most| harness.database.remove_expired(Expiring::Barriers, age, at_most).await.unwrap();
    assert_eq!(remove(LONG, 100).await, 0, "rows were removed before their retention ended");
    let unknown = MessageId::new();
    assert_eq!(ask(&harness.database, unknown).await, Some(ROLLBACK), "nothing was removed yet");
    let mut removed = 0;
    eventually(TIMEOUT, "all barrier rows are removed", async || {
        let step = remove(Duration::ZERO, 2).await;
        assert!(step <= 2, "a step removed too many rows: {step}");
        removed += step;
        removed == 4
    })
    .await;
    for id in &ids {
        assert_eq!(ask(&harness.database, *id).await, None, "a committed transaction counts as rolled back");
        // The question left nothing behind.
        enter_and_commit(&harness.database, *id).await.unwrap();
        assert_eq!(ask(&harness.database, *id).await, Some(COMMIT));
    }
    let in_two_days = Timestamp::from_millis(Timestamp::now().as_millis() + 2 * 24 * 3600 * 1000);
    let asked = harness.database.ask_barrier(MessageId::new(), in_two_days).await.unwrap();
    assert_eq!(asked, Some(ROLLBACK), "a message that was prepared later is unknown");
}
