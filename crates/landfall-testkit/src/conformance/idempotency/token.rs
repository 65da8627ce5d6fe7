//! One-time tokens: consumed once, bound to their business, and given back by work that failed.

use std::time::Duration;

use landfall_core::Timestamp;
use landfall_core::idempotency::{
    Claim, IdempotencyRecords, Identity, OneTimeTokens, Outcome, RecordFilter, Settled, Snapshot, Token,
};

use super::fixture::{SHORT, done, epoch, request, rerun, tenant};
use super::{RecordsFixture, Steps};

const LONG: Duration = Duration::from_secs(300);

fn identity(token: &Token, business_type: &str, business_id: &str) -> Identity {
    token.identity(tenant("shop"), business_type, business_id).unwrap()
}

/// Issues a token for order 1.
async fn issue<F: RecordsFixture>(steps: &Steps<F>, ttl: Duration) -> (Token, Identity) {
    let token = Token::generate().unwrap();
    let identity = identity(&token, "order", "1");
    let expires_at = steps.store.issue_token(&identity, ttl).await.unwrap().as_millis();
    let expected = Timestamp::now().as_millis() + i64::try_from(ttl.as_millis()).unwrap();
    assert!((expires_at - expected).abs() < 60_000, "{expires_at} is not about {expected}");
    (token, identity)
}

pub async fn token_is_consumed_once_and_replays<F: RecordsFixture>(steps: Steps<F>) {
    let (token, identity) = issue(&steps, LONG).await;
    let first = steps.claimed(&identity, &rerun()).await;
    assert!(matches!(steps.claim(&identity, &rerun()).await, Claim::InFlight { .. }));
    assert_eq!(steps.settle(&identity, first, done("paid")).await, Settled::Recorded);
    for _ in 0..2 {
        assert_eq!(steps.claim(&identity, &rerun()).await, Claim::Completed(Snapshot::from_bytes("paid")));
    }
    let other = steps.store.claim_record(&identity, &request("second"), &rerun()).await.unwrap();
    assert_eq!(other, Claim::Mismatch);
    let stored = format!("{:?}", steps.store.find_records(&RecordFilter::default(), 10).await.unwrap());
    assert!(!stored.contains(&token.to_string()), "the token is stored in clear text: {stored}");
}

pub async fn token_of_another_business_is_unknown<F: RecordsFixture>(steps: Steps<F>) {
    let (token, _) = issue(&steps, LONG).await;
    let others = [
        identity(&token, "order", "2"),
        identity(&token, "refund", "1"),
        token.identity(tenant("other"), "order", "1").unwrap(),
        identity(&Token::generate().unwrap(), "order", "1"),
    ];
    for other in others {
        assert_eq!(steps.claim(&other, &rerun()).await, Claim::NotIssued);
    }
    epoch(steps.claim(&identity(&token, "order", "1"), &rerun()).await);
}

pub async fn expired_token_is_refused<F: RecordsFixture>(steps: Steps<F>) {
    let (_, unused) = issue(&steps, Duration::ZERO).await;
    let (_, used) = issue(&steps, SHORT).await;
    let claim = steps.claim(&used, &rerun()).await;
    assert_eq!(steps.claim(&unused, &rerun()).await, Claim::NotIssued);
    // Claimed in time, unless the machine stood still: its answer is replayed after the token has expired.
    let Claim::Claimed { epoch } = claim else { return };
    tokio::time::sleep(2 * SHORT).await;
    assert_eq!(steps.settle(&used, epoch, done("paid")).await, Settled::Recorded);
    assert_eq!(steps.claim(&used, &rerun()).await, Claim::Completed(Snapshot::from_bytes("paid")));
}

pub async fn failed_work_gives_the_token_back<F: RecordsFixture>(steps: Steps<F>) {
    let (_, identity) = issue(&steps, LONG).await;
    let mut last = 0;
    for _ in 0..3 {
        let attempt = steps.claimed(&identity, &rerun()).await;
        assert!(attempt > last);
        assert_eq!(steps.settle(&identity, attempt, Outcome::NothingDone).await, Settled::Recorded);
        last = attempt;
    }
    let attempt = steps.claimed(&identity, &rerun()).await;
    assert_eq!(steps.settle(&identity, attempt, done("paid")).await, Settled::Recorded);
    assert_eq!(steps.claim(&identity, &rerun()).await, Claim::Completed(Snapshot::from_bytes("paid")));
}

pub async fn concurrent_consumers_of_a_token_have_one_winner<F: RecordsFixture>(steps: Steps<F>) {
    let (_, identity) = issue(&steps, LONG).await;
    let stores = [steps.store.clone(), steps.fixture.open().await];
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..20 {
        let (store, identity) = (stores[number % stores.len()].clone(), identity.clone());
        tasks.spawn(async move { store.claim_record(&identity, &request("first"), &rerun()).await.unwrap() });
    }
    let claims = tasks.join_all().await;
    let winners = claims.iter().filter(|claim| matches!(claim, Claim::Claimed { .. })).count();
    assert_eq!(winners, 1, "{claims:?}");
}
