//! Records in the transaction of their work: one commit, and a crash leaves nothing.

use landfall_core::idempotency::{
    Claim, Fingerprint, FingerprintBuilder, IdempotencyRecords, Identity, OnUnknown, OneTimeTokens, Opened, Outcome,
    RecordFilter, RecordState, RecordWriter, Resolution, Scope, Settled, Snapshot, Terms, Token,
};
use landfall_core::{Database, ErrorKind, MessageId, OutboxWriter};

use super::harness::{LONG, TIMEOUT};
use super::{DatabaseFixture, Effect, Harness};
use crate::conformance::record_rollback::assert_rollback_leaves_no_record;
use crate::conformance::sample::keyless;
use crate::eventually;

fn order(key: &str) -> Identity {
    Identity::new(Scope::principal("shop").unwrap(), "order", key).unwrap()
}

fn request(text: &str) -> Fingerprint {
    FingerprintBuilder::new("suite").part(text).finish()
}

fn answer() -> Snapshot {
    Snapshot::new(201, vec![("location".into(), "/orders/1".into())], "placed")
}

/// Runs work as a service does: record, effect, message, answer, commit. Returns why not if it is a repeat.
async fn place<F: DatabaseFixture>(fixture: &F, database: &F::Database, identity: &Identity) -> Option<Claim> {
    let mut transaction = database.begin().await.unwrap();
    match database.open_record(&mut transaction, identity, &request("first")).await.unwrap() {
        Opened::Refused(claim) => {
            database.flush(transaction).await.unwrap();
            return Some(claim);
        }
        Opened::Fresh => {}
    }
    let effect = Effect { message_id: MessageId::new(), key: None, sequence: None };
    fixture.insert_effect(&mut transaction, &effect).await;
    database.enqueue(&mut transaction, &[keyless()]).await.unwrap();
    database.store_answer(&mut transaction, identity, &answer()).await.unwrap();
    database.commit(transaction).await.unwrap();
    None
}

pub async fn record_and_work_commit_together<F: DatabaseFixture>(harness: Harness<F>) {
    assert_eq!(place(&*harness.fixture, &harness.database, &order("1")).await, None);
    let second = harness.second().await;
    for database in [&harness.database, &second] {
        let repeat = place(&*harness.fixture, database, &order("1")).await;
        assert_eq!(repeat, Some(Claim::Completed(answer())));
    }
    let leases = harness.lease_all("relay").await;
    assert_eq!((harness.effects().await.len(), harness.due(&leases).await.len()), (1, 1));
}

pub async fn rolled_back_work_leaves_no_record<F: DatabaseFixture>(harness: Harness<F>) {
    assert_rollback_leaves_no_record(&harness.database).await;
    assert_eq!(place(&*harness.fixture, &harness.database, &order("1")).await, None);
}

pub async fn repeat_in_a_transaction_is_refused_with_the_answer<F: DatabaseFixture>(harness: Harness<F>) {
    assert_eq!(place(&*harness.fixture, &harness.database, &order("1")).await, None);
    for (fingerprint, expected) in [("first", Claim::Completed(answer())), ("second", Claim::Mismatch)] {
        let mut transaction = harness.database.begin().await.unwrap();
        let opened = harness.database.open_record(&mut transaction, &order("1"), &request(fingerprint)).await.unwrap();
        assert_eq!(opened, Opened::Refused(expected));
        harness.database.flush(transaction).await.unwrap();
    }
}

pub async fn concurrent_transactions_have_one_effect<F: DatabaseFixture>(harness: Harness<F>) {
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let (fixture, database) = (harness.fixture.clone(), harness.second().await);
        tasks.spawn(async move { place(&*fixture, &database, &order("1")).await });
    }
    let answers = tasks.join_all().await;
    assert_eq!(answers.iter().filter(|answer| answer.is_none()).count(), 1, "{answers:?}");
    let replayed = answers.iter().flatten().filter(|claim| **claim == Claim::Completed(answer())).count();
    assert_eq!((replayed, harness.effects().await.len()), (7, 1), "{answers:?}");
}

pub async fn separate_claim_and_transaction_exclude_each_other<F: DatabaseFixture>(harness: Harness<F>) {
    let (fixture, database) = (&*harness.fixture, &harness.database);
    let terms = Terms::new(OnUnknown::Rerun);
    let claim = database.claim_record(&order("1"), &request("first"), &terms).await.unwrap();
    let Claim::Claimed { epoch } = claim else { panic!("{claim:?}") };
    let refused = place(fixture, database, &order("1")).await;
    assert!(matches!(refused, Some(Claim::InFlight { .. })), "{refused:?}");
    let settled = database.settle_record(&order("1"), epoch, &Outcome::NothingDone).await.unwrap();
    assert_eq!(settled, Settled::Recorded);
    // Takes the released record over, in the transaction of the work.
    assert_eq!(place(fixture, database, &order("1")).await, None);
    let stale = database.settle_record(&order("1"), epoch, &Outcome::NothingDone).await.unwrap();
    assert_eq!(stale, Settled::Lost(Some(answer())));
    let repeat = database.claim_record(&order("1"), &request("first"), &terms).await.unwrap();
    assert_eq!(repeat, Claim::Completed(answer()));
}

pub async fn record_committed_without_an_answer_is_uncertain<F: DatabaseFixture>(harness: Harness<F>) {
    let mut transaction = harness.database.begin().await.unwrap();
    harness.database.open_record(&mut transaction, &order("1"), &request("first")).await.unwrap();
    harness.database.commit(transaction).await.unwrap();
    eventually(TIMEOUT, "the record is uncertain", async || {
        let found = harness.database.find_records(&RecordFilter::default(), 10).await.unwrap();
        found[0].state == RecordState::Uncertain
    })
    .await;
    let refused = place(&*harness.fixture, &harness.database, &order("1")).await;
    assert_eq!(refused, Some(Claim::Uncertain));
}

pub async fn answer_without_an_open_record_is_refused<F: DatabaseFixture>(harness: Harness<F>) {
    place(&*harness.fixture, &harness.database, &order("1")).await;
    for key in ["1", "2"] {
        let mut transaction = harness.database.begin().await.unwrap();
        let stored = harness.database.store_answer(&mut transaction, &order(key), &answer()).await;
        assert_eq!(stored.unwrap_err().kind(), ErrorKind::Conflict);
        harness.database.flush(transaction).await.unwrap();
    }
}

pub async fn token_is_consumed_in_the_transaction_of_its_work<F: DatabaseFixture>(harness: Harness<F>) {
    let token = Token::generate().unwrap();
    let identity = token.identity(Scope::Global, "order", "1").unwrap();
    let unknown = place(&*harness.fixture, &harness.database, &identity).await;
    assert_eq!(unknown, Some(Claim::NotIssued));
    harness.database.issue_token(&identity, LONG).await.unwrap();
    // Work that fails gives the token back.
    let mut transaction = harness.database.begin().await.unwrap();
    let opened = harness.database.open_record(&mut transaction, &identity, &request("first")).await.unwrap();
    assert_eq!(opened, Opened::Fresh);
    harness.database.flush(transaction).await.unwrap();
    assert_eq!(place(&*harness.fixture, &harness.database, &identity).await, None);
    let repeat = place(&*harness.fixture, &harness.database, &identity).await;
    assert_eq!(repeat, Some(Claim::Completed(answer())));
    assert_eq!(harness.effects().await.len(), 1);
}

pub async fn resolution_is_audited<F: DatabaseFixture>(harness: Harness<F>) {
    for (key, resolution) in [("1", Resolution::Rerun), ("2", Resolution::Done(answer()))] {
        let terms = Terms::new(OnUnknown::Uncertain);
        let claim = harness.database.claim_record(&order(key), &request("first"), &terms).await.unwrap();
        let Claim::Claimed { epoch } = claim else { panic!("{claim:?}") };
        let unknown = Outcome::Unknown("lost".into());
        harness.database.settle_record(&order(key), epoch, &unknown).await.unwrap();
        for is_first in [true, false] {
            let resolved = harness.database.resolve_record(order(key).id(), &resolution, "ann").await.unwrap();
            assert_eq!(resolved, is_first);
        }
    }
    let audited: Vec<(String, String)> = harness.audit().await.into_iter().map(|row| (row.actor, row.action)).collect();
    let expected = ["idempotency-release", "idempotency-complete"].map(|action| ("ann".to_owned(), action.to_owned()));
    assert_eq!(audited, expected);
}
