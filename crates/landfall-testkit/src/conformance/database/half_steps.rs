//! Steps that the cases of half messages share.

use std::time::Duration;

use landfall_core::{
    CheckBack, Decided, Fingerprint, HalfMessage, HalfMessageFilter, HalfMessageRow, HalfMessages, HalfVerdict,
    Message, Prepared,
};

use super::harness::LONG;
use super::{DatabaseFixture, Harness};

pub(super) const COMMIT: HalfVerdict = HalfVerdict::Committed;
pub(super) const ROLLBACK: HalfVerdict = HalfVerdict::RolledBack;
pub(super) const FIRST: Fingerprint = [1; 32];
/// Differs in its last byte only.
pub(super) const SECOND: Fingerprint = {
    let mut print = FIRST;
    print[31] = 2;
    print
};

/// A half message whose first check-back is not due while a case runs.
pub(super) fn half(message: Message) -> HalfMessage {
    HalfMessage {
        message,
        business_type: "订单 'order'".into(),
        business_id: "42/\"eu\" %_".into(),
        check_back: CheckBack {
            database: Some("shop".into()),
            http: Some("https://shop.example/check?a=1&b='2'".into()),
            grpc: None,
        },
        check_after: LONG,
    }
}

/// A half message whose first check-back is due at once.
pub(super) fn due(message: Message) -> HalfMessage {
    HalfMessage { check_after: Duration::ZERO, ..half(message) }
}

impl<F: DatabaseFixture> Harness<F> {
    pub(super) async fn prepare(&self, half: &HalfMessage) -> Prepared {
        self.database.prepare(half, &FIRST).await.unwrap()
    }

    /// Decides on behalf of the sender.
    pub(super) async fn decide(&self, half: &HalfMessage, verdict: HalfVerdict) -> Decided {
        self.database.decide(half.message.id, verdict, "sender").await.unwrap()
    }

    pub(super) async fn half_row(&self, half: &HalfMessage) -> HalfMessageRow {
        let filter = HalfMessageFilter { id: Some(half.message.id), ..Default::default() };
        let mut found = self.database.find_half_messages(&filter, 10).await.unwrap();
        assert_eq!(found.len(), 1, "the half message is not stored exactly once: {found:?}");
        found.remove(0)
    }

    /// Returns actor and action of every audit row.
    pub(super) async fn audited(&self) -> Vec<(String, String)> {
        self.audit().await.into_iter().map(|row| (row.actor, row.action)).collect()
    }
}
