//! The test kit for handlers accepts idempotent ones, and catches what usually goes wrong.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use landfall::OutboxView;
use landfall::idempotency::{
    Error, Idempotency, InTransaction, MemoryRecords, OnUnknown, OneTimeTokens, Policy, Scope, Token, Work,
};
use landfall::{OutboxWriter, Schema};
use landfall_sqlite::Sqlite;
use landfall_testkit::assert_idempotent;
use sqlx::SqliteConnection;

use super::{Effects, order, request, rerun};
use crate::fixture::message;

/// A handler with its record, its row and its message in one transaction.
struct Shop {
    orders: InTransaction<Sqlite>,
    database: Sqlite,
}

impl Shop {
    async fn new() -> Self {
        let database = Sqlite::open("sqlite::memory:", Default::default()).await.unwrap();
        database.migrate().await.unwrap();
        sqlx::query("CREATE TABLE placed (n INTEGER PRIMARY KEY)").execute(database.pool()).await.unwrap();
        Self { orders: InTransaction::new(database.clone()), database }
    }

    async fn place(&self) -> i64 {
        let work = async |connection: &mut SqliteConnection| {
            self.database.enqueue(connection, &[message("a", 1)]).await.unwrap();
            let done = sqlx::query("INSERT INTO placed DEFAULT VALUES").execute(connection).await?;
            Ok::<_, sqlx::Error>(done.last_insert_rowid())
        };
        self.orders.run(&order("1"), &request("first"), work).await.unwrap().value
    }

    async fn evidence(&self) -> (i64, u64) {
        let rows = sqlx::query_scalar("SELECT count(*) FROM placed").fetch_one(self.database.pool()).await.unwrap();
        (rows, self.database.stats().await.unwrap().pending)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn handler_with_its_record_in_the_transaction_is_idempotent() {
    assert_idempotent(Shop::new, Shop::place, Shop::evidence).await;
}

/// A handler that calls another system under a record with a lease.
#[derive(Clone)]
struct Bank {
    engine: Idempotency,
    paid: Effects,
}

impl Bank {
    async fn new() -> Self {
        Self { engine: Idempotency::new(Arc::new(MemoryRecords::default())), paid: Effects::default() }
    }

    async fn pay(&self) -> u32 {
        let paid = self.paid.clone();
        let work = async move |_| {
            tokio::task::yield_now().await;
            let number = paid.add();
            tokio::task::yield_now().await;
            Work::<_, ()>::Done(number)
        };
        self.engine.run(&order("1"), &request("first"), &rerun(), work).await.unwrap().value
    }

    async fn evidence(&self) -> u32 {
        self.paid.count()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn handler_under_a_lease_is_idempotent() {
    assert_idempotent(Bank::new, Bank::pay, Bank::evidence).await;
}

/// Handlers with one bug each.
#[derive(Default)]
struct Naive {
    paid: Effects,
    seen: Mutex<HashSet<&'static str>>,
}

impl Naive {
    async fn new() -> Self {
        Self::default()
    }

    async fn without_a_record(&self) -> u32 {
        self.paid.add();
        0
    }

    async fn check_then_act(&self) -> u32 {
        if !self.seen.lock().unwrap().contains("1") {
            tokio::task::yield_now().await;
            self.paid.add();
            self.seen.lock().unwrap().insert("1");
        }
        0
    }

    async fn mark_before_the_work(&self) -> u32 {
        if self.seen.lock().unwrap().insert("1") {
            tokio::task::yield_now().await;
            self.paid.add();
        }
        0
    }

    async fn another_answer(&self) -> bool {
        let is_first = self.seen.lock().unwrap().insert("1");
        if is_first {
            self.paid.add();
        }
        is_first
    }

    async fn evidence(&self) -> u32 {
        self.paid.count()
    }
}

macro_rules! caught {
    ($test:ident: $handler:ident, $text:literal) => {
        #[tokio::test]
        #[should_panic(expected = $text)]
        async fn $test() {
            assert_idempotent(Naive::new, Naive::$handler, Naive::evidence).await;
        }
    };
}

caught!(handler_without_a_record_is_caught: without_a_record, "a second call took effect again");
caught!(handler_that_checks_then_acts_is_caught: check_then_act, "concurrent calls took effect differently");
caught!(handler_that_marks_before_the_work_is_caught: mark_before_the_work, "cancelled at await 1, and repeated");
caught!(handler_with_another_answer_is_caught: another_answer, "the answer differs after a second call");

/// A token that is consumed in a step of its own, before the work, is lost with a client that disconnects.
struct Tokens {
    records: MemoryRecords,
    token: Token,
    paid: Effects,
}

impl Tokens {
    async fn new() -> Self {
        let (records, token) = (MemoryRecords::default(), Token::generate().unwrap());
        let identity = token.identity(Scope::Global, "order", "1").unwrap();
        records.issue_token(&identity, std::time::Duration::from_secs(300)).await.unwrap();
        Self { records, token, paid: Effects::default() }
    }

    async fn consume_then_pay(&self) {
        let identity = self.token.identity(Scope::Global, "order", "1").unwrap();
        let engine = Idempotency::new(Arc::new(self.records.clone()));
        let policy = Policy::new(OnUnknown::Rerun);
        let consumed: Result<_, Error<()>> =
            engine.run(&identity, &request("first"), &policy, async |_| Work::Done(())).await;
        if !consumed.unwrap().is_replayed {
            tokio::task::yield_now().await;
            self.paid.add();
        }
    }

    async fn evidence(&self) -> u32 {
        self.paid.count()
    }
}

#[tokio::test]
#[should_panic(expected = "and repeated, took effect differently")]
async fn token_consumed_before_its_work_is_caught() {
    assert_idempotent(Tokens::new, Tokens::consume_then_pay, Tokens::evidence).await;
}
