//! The store in memory runs the conformance suite.

use std::time::Duration;

use landfall::idempotency::MemoryRecords;
use landfall_testkit::conformance::idempotency::RecordsFixture;

struct InMemory(MemoryRecords);

impl RecordsFixture for InMemory {
    type Store = MemoryRecords;

    async fn create() -> Option<Self> {
        Some(Self(MemoryRecords::default()))
    }

    /// There is one process only.
    async fn open(&self) -> MemoryRecords {
        self.0.clone()
    }

    async fn expire_answers(&self, store: &MemoryRecords) -> Option<u64> {
        Some(store.remove_answers(Duration::ZERO))
    }

    async fn expire_records(&self, store: &MemoryRecords) -> Option<u64> {
        // The epoch of a removed and repeated key is the time in milliseconds.
        tokio::time::sleep(Duration::from_millis(2)).await;
        Some(store.remove_records(Duration::ZERO))
    }
}

landfall_testkit::idempotency_conformance!(InMemory);

mod retention {
    use landfall::idempotency::{
        Body, Claim, IdempotencyRecords, MemoryOptions, MemoryRecords, OnUnknown, Outcome, Snapshot, Terms,
    };

    use super::super::{order, request};
    use super::Duration;

    #[tokio::test(start_paused = true)]
    async fn memory_forgets_answers_and_then_keys() {
        let hour = Duration::from_secs(3600);
        let records = MemoryRecords::new(MemoryOptions { keep_answers: hour, keep_records: 2 * hour });
        let terms = Terms::new(OnUnknown::Rerun);
        let claim = async || records.claim_record(&order("1"), &request("1"), &terms).await.unwrap();
        let Claim::Claimed { epoch } = claim().await else { panic!() };
        let done = Outcome::Done(Snapshot::from_bytes("1"));
        records.settle_record(&order("1"), epoch, &done).await.unwrap();
        assert_eq!(claim().await, Claim::Completed(Snapshot::from_bytes("1")));
        tokio::time::advance(hour).await;
        let expired = Snapshot { status: 200, headers: Vec::new(), body: Body::Expired };
        assert_eq!(claim().await, Claim::Completed(expired));
        tokio::time::advance(hour).await;
        // The claim of another key sweeps it away.
        records.claim_record(&order("2"), &request("2"), &terms).await.unwrap();
        assert_eq!(records.find_records(&Default::default(), 10).await.unwrap().len(), 1);
        assert!(matches!(claim().await, Claim::Claimed { .. }));
    }
}
