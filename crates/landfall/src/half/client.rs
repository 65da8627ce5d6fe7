//! How a sender reaches the coordinator.

use std::sync::Arc;

use async_trait::async_trait;
use landfall_core::{Decided, HalfMessage, HalfMessages, HalfVerdict, MessageId, Prepared, Result};

use super::{SENDER, fingerprint};
use crate::call_deadline::CallDeadline;
use crate::check_back;

/// The coordinator, as senders call it. Every call is idempotent, so one with an unknown outcome may be repeated.
#[async_trait]
pub trait HalfCoordinator: Send + Sync {
    async fn prepare(&self, half: &HalfMessage) -> Result<Prepared>;

    async fn decide(&self, id: MessageId, verdict: HalfVerdict) -> Result<Decided>;
}

/// A coordinator whose database this process can reach.
#[derive(Clone)]
pub struct StoredCoordinator {
    store: Arc<dyn HalfMessages>,
    actor: String,
}

impl StoredCoordinator {
    pub fn new(store: Arc<dyn HalfMessages>) -> Self {
        Self { store, actor: SENDER.to_owned() }
    }

    /// Sets the name for the audit, for a decision of a person.
    #[must_use]
    pub fn with_actor(mut self, actor: impl Into<String>) -> Self {
        self.actor = actor.into();
        self
    }
}

#[async_trait]
impl HalfCoordinator for StoredCoordinator {
    async fn prepare(&self, half: &HalfMessage) -> Result<Prepared> {
        let prepared = CallDeadline::STATEMENT.run(self.store.prepare(half, &fingerprint(half))).await?;
        if matches!(prepared, Prepared::Fresh(_)) {
            metrics::counter!("landfall_half_prepared_total").increment(1);
        }
        Ok(prepared)
    }

    async fn decide(&self, id: MessageId, verdict: HalfVerdict) -> Result<Decided> {
        check_back::decide(&*self.store, id, verdict, &self.actor).await
    }
}

impl std::fmt::Debug for StoredCoordinator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoredCoordinator").field("actor", &self.actor).finish_non_exhaustive()
    }
}
