//! A fast memory in front of the inbox (C5): most copies are turned away without a transaction.
//!
//! It may say "probably seen", and only the database may say "done": what it remembers is looked up in the inbox, with
//! one read, before it is acknowledged. What it forgot, or cannot say, goes the usual way. So it can be flushed, evicted
//! or gone, and all it costs is time.

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use landfall_core::{GroupName, InboxView, MessageId, Result};

/// Remembers ids for a while.
#[async_trait]
pub trait Front: Send + Sync + 'static {
    /// Those of `ids` that were probably handled by `group`. An error is as good as none.
    async fn probably_seen(&self, group: &GroupName, ids: &[MessageId]) -> Result<Vec<MessageId>>;

    /// These were handled by `group`, and that is committed.
    async fn remember(&self, group: &GroupName, ids: &[MessageId]) -> Result<()>;
}

/// A [`Front`] together with the database behind it, as an object: only who asks for it needs a database that can.
pub(super) trait FrontDoor<D>: Send + Sync {
    /// Those of `ids` that `group` has handled for certain. Not all of them: the rest is for the inbox.
    fn handled<'a>(
        &'a self,
        database: &'a D,
        group: &'a GroupName,
        ids: &'a [MessageId],
    ) -> BoxFuture<'a, Vec<MessageId>>;

    fn remember<'a>(&'a self, group: &'a GroupName, ids: &'a [MessageId]) -> BoxFuture<'a, ()>;
}

impl<D: InboxView, F: Front> FrontDoor<D> for F {
    fn handled<'a>(
        &'a self,
        database: &'a D,
        group: &'a GroupName,
        ids: &'a [MessageId],
    ) -> BoxFuture<'a, Vec<MessageId>> {
        Box::pin(async move {
            let seen = match self.probably_seen(group, ids).await {
                Ok(seen) if seen.is_empty() => return seen,
                Ok(seen) => seen,
                Err(error) => {
                    metrics::counter!("landfall_front_total", "result" => "unavailable").increment(1);
                    tracing::debug!(%error, "nothing is remembered in front of the inbox");
                    return Vec::new();
                }
            };
            match database.handled(group, &seen).await {
                Ok(handled) => {
                    metrics::counter!("landfall_front_total", "result" => "hit").increment(handled.len() as u64);
                    handled
                }
                // The transaction that follows will say what is wrong.
                Err(_) => Vec::new(),
            }
        })
    }

    fn remember<'a>(&'a self, group: &'a GroupName, ids: &'a [MessageId]) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            if let Err(error) = Front::remember(self, group, ids).await {
                tracing::debug!(%error, "not remembered in front of the inbox");
            }
        })
    }
}
