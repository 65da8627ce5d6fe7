//! Records as operators see them.

use std::collections::HashSet;

use landfall_core::idempotency::{
    IdempotencyRecords, Identity, IdentityKind, OnUnknown, Outcome, RecordFilter, RecordRow, RecordState,
};

use super::fixture::{order, rerun, tenant, uncertain};
use super::{RecordsFixture, Steps};

async fn find<F: RecordsFixture>(steps: &Steps<F>, filter: RecordFilter) -> Vec<RecordRow> {
    steps.store.find_records(&filter, 100).await.unwrap()
}

pub async fn record_filters_return_matching_records<F: RecordsFixture>(steps: Steps<F>) {
    steps.complete(&order("1"), "four").await;
    steps.claimed(&order("2"), &rerun()).await;
    steps.claimed(&Identity::new(tenant("b"), "refund", "1").unwrap(), &uncertain()).await;
    steps.claimed(&Identity::window(tenant("b"), "sms", "1").unwrap(), &rerun()).await;
    let any = RecordFilter::default;
    let count = async |filter: RecordFilter| find(&steps, filter).await.len();
    assert_eq!(count(any()).await, 4);
    assert_eq!(count(RecordFilter { kind: Some(IdentityKind::Window), ..any() }).await, 1);
    assert_eq!(count(RecordFilter { state: Some(RecordState::InFlight), ..any() }).await, 3);
    assert_eq!(count(RecordFilter { scope: Some(tenant("shop")), ..any() }).await, 2);
    assert_eq!(count(RecordFilter { business_type: Some("order".into()), ..any() }).await, 2);
    assert_eq!(count(RecordFilter { key: Some("1".into()), ..any() }).await, 3);
    assert_eq!(count(RecordFilter { key: Some("9".into()), ..any() }).await, 0);
    let found = find(&steps, RecordFilter { id: Some(order("1").id()), ..any() }).await;
    let [row] = &found[..] else { panic!("{found:?}") };
    assert_eq!((row.business_type.as_str(), row.key.as_str(), row.scope.as_str()), ("order", "1", "shop"));
    assert_eq!((row.state, row.status, row.body_bytes), (RecordState::Completed, Some(200), Some(4)));
    assert_eq!((row.body.as_deref(), row.on_unknown, row.expires_at), (Some("kept"), OnUnknown::Rerun, None));
    assert!(row.updated_at >= row.claimed_at, "{row:?}");
    let state = Some(RecordState::Completed);
    assert_eq!(find(&steps, RecordFilter { state, ..any() }).await, found);
}

pub async fn record_pages_return_each_record_once<F: RecordsFixture>(steps: Steps<F>) {
    for number in 0..25 {
        steps.claimed(&order(&number.to_string()), &rerun()).await;
    }
    let (mut seen, mut before) = (HashSet::new(), None);
    loop {
        let filter = RecordFilter { before, ..RecordFilter::default() };
        let page = steps.store.find_records(&filter, 10).await.unwrap();
        let Some(last) = page.last() else { break };
        before = Some((last.claimed_at, last.id));
        assert!(page.is_sorted_by_key(|row| std::cmp::Reverse((row.claimed_at, row.id))), "not newest first");
        assert!(page.iter().all(|row| seen.insert(row.id)), "a record is on two pages");
    }
    assert_eq!(seen.len(), 25);
}

pub async fn uncertain_records_are_counted<F: RecordsFixture>(steps: Steps<F>) {
    assert_eq!(steps.store.record_stats().await.unwrap(), Default::default());
    steps.complete(&order("done"), "1").await;
    steps.abandon(&order("crashed"), OnUnknown::Uncertain).await;
    steps.claimed(&order("open"), &rerun()).await;
    steps.claimed(&Identity::window(tenant("shop"), "sms", "1").unwrap(), &rerun()).await;
    let unknown = steps.claimed(&order("unknown"), &uncertain()).await;
    steps.settle(&order("unknown"), unknown, Outcome::Unknown("lost".into())).await;
    let stats = steps.store.record_stats().await.unwrap();
    assert_eq!((stats.in_flight, stats.uncertain), (1, 2), "{stats:?}");
    assert!(stats.oldest_uncertain_seconds < 60, "{stats:?}");
}
