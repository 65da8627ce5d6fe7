//! A cache of handled ids in front of the inbox (C5): most duplicates are discarded without a transaction.
//!
//! The cache says "probably handled"; only the database says "handled". An id that the cache knows is looked up in the
//! inbox with one read before its delivery is acknowledged. Other ids take the usual path. A cache that is flushed,
//! evicted or unavailable therefore costs time and nothing else.

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use landfall_core::{GroupName, InboxView, MessageId, Result};

/// Remembers the ids of handled messages for a limited time.
///
/// ```
/// use std::collections::HashSet;
/// use std::sync::Mutex;
///
/// use landfall::consume::DedupCache;
/// use landfall::{GroupName, MessageId, Result};
///
/// /// Keeps the ids in memory.
/// #[derive(Default)]
/// struct Memory(Mutex<HashSet<(String, MessageId)>>);
///
/// #[async_trait::async_trait]
/// impl DedupCache for Memory {
///     async fn probably_seen(&self, group: &GroupName, ids: &[MessageId]) -> Result<Vec<MessageId>> {
///         let seen = self.0.lock().unwrap();
///         Ok(ids.iter().copied().filter(|id| seen.contains(&(group.to_string(), *id))).collect())
///     }
///
///     async fn remember(&self, group: &GroupName, ids: &[MessageId]) -> Result<()> {
///         self.0.lock().unwrap().extend(ids.iter().map(|id| (group.to_string(), *id)));
///         Ok(())
///     }
/// }
/// ```
#[async_trait]
pub trait DedupCache: Send + Sync + 'static {
    /// Returns those of `ids` that `group` has probably handled. On error the cache is bypassed.
    async fn probably_seen(&self, group: &GroupName, ids: &[MessageId]) -> Result<Vec<MessageId>>;

    /// Adds ids that `group` has handled in a committed transaction.
    async fn remember(&self, group: &GroupName, ids: &[MessageId]) -> Result<()>;
}

/// A [`DedupCache`] whose hits are verified by the inbox. An object, so that consumers without a cache do not need a
/// database with [`InboxView`].
pub(crate) trait VerifiedCache<D>: Send + Sync {
    /// Returns those of `ids` that `group` has certainly handled. The inbox decides about the others.
    fn handled<'a>(
        &'a self,
        database: &'a D,
        group: &'a GroupName,
        ids: &'a [MessageId],
    ) -> BoxFuture<'a, Vec<MessageId>>;

    fn remember<'a>(&'a self, group: &'a GroupName, ids: &'a [MessageId]) -> BoxFuture<'a, ()>;
}

impl<D: InboxView, C: DedupCache> VerifiedCache<D> for C {
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
                    tracing::debug!(%error, "dedup cache unavailable, bypassing it");
                    return Vec::new();
                }
            };
            match database.handled(group, &seen).await {
                Ok(handled) => {
                    metrics::counter!("landfall_front_total", "result" => "hit").increment(handled.len() as u64);
                    handled
                }
                // The transaction that follows reports the database error.
                Err(_) => Vec::new(),
            }
        })
    }

    fn remember<'a>(&'a self, group: &'a GroupName, ids: &'a [MessageId]) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            if let Err(error) = DedupCache::remember(self, group, ids).await {
                tracing::debug!(%error, "dedup cache unavailable, ids not remembered");
            }
        })
    }
}
