//! Half messages in several databases, chosen by topic (K3).
//!
//! ```text
//!   prepare ─▶ shard of the topic ─▶ is there an early verdict in the first database? apply it
//!   decide  ─▶ which shard has the message? ─▶ decide there, after an early verdict of the first database
//!                └ none: remember the verdict in the first database ─▶ has a shard the message by now? decide there
//! ```
//!
//! A decision names an id and no topic, so an early one goes to the first database. A prepare writes into its shard
//! and then looks for an early verdict; a decision writes the early verdict and then looks into the shards. One of
//! them sees the other. A crash between the two steps leaves a prepared row, and every later decision about it looks
//! for the early verdict first.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::try_join_all;
use landfall_core::{
    AfterCheck, Decided, DueCheck, Error, Fingerprint, HalfMessage, HalfMessageFilter, HalfMessageRow,
    HalfMessageStats, HalfMessages, HalfVerdict, Housekeeping, MessageId, Prepared, Result, TopicName,
};

/// The topics of one shard: names, or prefixes that end in `*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topics(Vec<String>);

impl Topics {
    /// Fails with kind `Invalid` if a pattern is empty, or contains `*` before its end.
    pub fn new(patterns: impl IntoIterator<Item = impl Into<String>>) -> Result<Self> {
        let patterns: Vec<String> = patterns.into_iter().map(Into::into).collect();
        let wrong = patterns.iter().find(|pattern| {
            let name = pattern.strip_suffix('*').unwrap_or(pattern);
            name.contains('*') || (!name.is_empty() && TopicName::new(name).is_err()) || pattern.is_empty()
        });
        match wrong {
            Some(pattern) => Err(Error::invalid(format!("{pattern:?} is neither a topic nor a prefix such as pay.*"))),
            None if patterns.is_empty() => Err(Error::invalid("a shard needs at least one topic, such as pay.*")),
            None => Ok(Self(patterns)),
        }
    }

    fn contain(&self, topic: &TopicName) -> bool {
        self.0.iter().any(|pattern| match pattern.strip_suffix('*') {
            Some(prefix) => topic.as_str().starts_with(prefix),
            None => topic.as_str() == pattern,
        })
    }
}

/// [`HalfMessages`] over several databases. Each has its own outbox, so each needs a relay.
///
/// The same id is prepared for one topic only: two concurrent prepares for topics of different shards are not noticed.
/// A decision needs every database to be available, since only they know which one has the id.
pub struct Shards {
    home: Arc<dyn HalfMessages>,
    upkeep: Arc<dyn Housekeeping>,
    shards: Vec<(Topics, Arc<dyn HalfMessages>)>,
    next: AtomicUsize,
}

impl Shards {
    /// Keeps messages of all other topics, and verdicts that arrive before their message, in `home`.
    pub fn new<D: HalfMessages + Housekeeping + 'static>(home: Arc<D>) -> Self {
        Self::from_parts(home.clone(), home)
    }

    /// Like [`new`](Self::new), with the two ports of one database.
    pub fn from_parts(home: Arc<dyn HalfMessages>, upkeep: Arc<dyn Housekeeping>) -> Self {
        Self { home, upkeep, shards: Vec::new(), next: AtomicUsize::new(0) }
    }

    /// Adds a database for these topics. The first shard that has a topic is its shard, so the order must not change
    /// while half messages are undecided.
    #[must_use]
    pub fn with(mut self, topics: Topics, database: Arc<dyn HalfMessages>) -> Self {
        self.shards.push((topics, database));
        self
    }

    /// Returns the shard of a topic; `None` for the first database.
    fn shard_of(&self, topic: &TopicName) -> Option<usize> {
        self.shards.iter().position(|(topics, _)| topics.contain(topic))
    }

    fn all(&self) -> impl Iterator<Item = &Arc<dyn HalfMessages>> {
        std::iter::once(&self.home).chain(self.shards.iter().map(|(_, shard)| shard))
    }

    /// Returns the shard that has the message, and its row. Early verdicts are not in shards.
    async fn find_in_shards(&self, id: MessageId) -> Result<Option<(usize, HalfMessageRow)>> {
        let found = try_join_all(self.shards.iter().map(|(_, shard)| row(&**shard, id))).await?;
        Ok(found.into_iter().enumerate().find_map(|(index, row)| Some((index, row?))))
    }

    /// Applies an early verdict to the message in `shard`, unless that is decided. Returns the final verdict, if there
    /// is one.
    async fn apply_early(&self, shard: &dyn HalfMessages, row_there: &HalfMessageRow) -> Result<Option<HalfVerdict>> {
        if let Some(verdict) = row_there.state.verdict() {
            return Ok(Some(verdict));
        }
        let id = row_there.id;
        // Read after the row of the shard, as the order of writes requires.
        let Some(early) = row(&*self.home, id).await?.filter(|early| early.topic.is_none()) else { return Ok(None) };
        let Some(verdict) = early.state.verdict() else { return Ok(None) };
        let by = early.decided_by.unwrap_or_default();
        let is_first = !matches!(shard.decide(id, verdict, &by).await?, Decided::Contradiction(_));
        self.upkeep.remove_these_half_messages(&[id]).await?;
        Ok(Some(if is_first { verdict } else { opposite(verdict) }))
    }

    async fn decide_in(
        &self,
        index: usize,
        row: &HalfMessageRow,
        verdict: HalfVerdict,
        actor: &str,
    ) -> Result<Decided> {
        let shard = &*self.shards[index].1;
        self.apply_early(shard, row).await?;
        shard.decide(row.id, verdict, actor).await
    }
}

async fn row(database: &dyn HalfMessages, id: MessageId) -> Result<Option<HalfMessageRow>> {
    let filter = HalfMessageFilter { id: Some(id), ..HalfMessageFilter::default() };
    Ok(database.find_half_messages(&filter, 1).await?.pop())
}

fn opposite(verdict: HalfVerdict) -> HalfVerdict {
    match verdict {
        HalfVerdict::Committed => HalfVerdict::RolledBack,
        HalfVerdict::RolledBack => HalfVerdict::Committed,
    }
}

#[async_trait]
impl HalfMessages for Shards {
    async fn prepare(&self, half: &HalfMessage, fingerprint: &Fingerprint) -> Result<Prepared> {
        let id = half.message.id;
        let Some(index) = self.shard_of(&half.message.topic) else {
            return match self.find_in_shards(id).await? {
                Some(_) => Ok(Prepared::Conflict),
                None => self.home.prepare(half, fingerprint).await,
            };
        };
        let shard = &*self.shards[index].1;
        let elsewhere = row(&*self.home, id).await?.is_some_and(|row| row.topic.is_some());
        if elsewhere || self.find_in_shards(id).await?.is_some_and(|(found, _)| found != index) {
            return Ok(Prepared::Conflict);
        }
        let prepared = shard.prepare(half, fingerprint).await?;
        if matches!(prepared, Prepared::Conflict) {
            return Ok(prepared);
        }
        let Some(stored) = row(shard, id).await? else { return Ok(prepared) };
        let state = match self.apply_early(shard, &stored).await? {
            Some(verdict) => verdict.state(),
            None => stored.state,
        };
        Ok(match prepared {
            Prepared::Fresh(_) => Prepared::Fresh(state),
            _ => Prepared::Repeated(state),
        })
    }

    async fn decide(&self, id: MessageId, verdict: HalfVerdict, actor: &str) -> Result<Decided> {
        if let Some((index, row)) = self.find_in_shards(id).await? {
            return self.decide_in(index, &row, verdict, actor).await;
        }
        let decided = self.home.decide(id, verdict, actor).await?;
        match decided {
            // It was prepared there, for a topic without a shard.
            Decided::Now => Ok(Decided::Now),
            _ => match self.find_in_shards(id).await? {
                Some((index, row)) => {
                    let answered = self.decide_in(index, &row, verdict, actor).await?;
                    // The message has the early verdict of this call, from its prepare or from this call.
                    let is_own = decided == Decided::Early && answered == Decided::Before;
                    Ok(if is_own { Decided::Now } else { answered })
                }
                None => Ok(decided),
            },
        }
    }

    async fn claim_due(&self, limit: usize, lease: Duration) -> Result<Vec<DueCheck>> {
        let databases: Vec<_> = self.all().collect();
        // Another one is first each time, so that a full one does not starve the others.
        let first = self.next.fetch_add(1, Ordering::Relaxed) % databases.len();
        let (mut due, mut failed) = (Vec::new(), None);
        for database in databases[first..].iter().chain(&databases[..first]) {
            match database.claim_due(limit.saturating_sub(due.len()), lease).await {
                Ok(claimed) => due.extend(claimed),
                Err(error) => failed = Some(error),
            }
            if due.len() >= limit {
                break;
            }
        }
        // A database that is down delays its own check-backs only.
        match failed {
            Some(error) if due.is_empty() => Err(error),
            Some(error) => {
                tracing::warn!(%error, "half messages of one database unavailable");
                Ok(due)
            }
            None => Ok(due),
        }
    }

    async fn record_check(&self, id: MessageId, checks: u32, answer: &str, after: AfterCheck) -> Result<()> {
        // Ignored where there is no such row.
        try_join_all(self.all().map(|database| database.record_check(id, checks, answer, after))).await.map(drop)
    }

    async fn acknowledge_contradiction(&self, id: MessageId, actor: &str) -> Result<bool> {
        let found = try_join_all(self.all().map(|database| database.acknowledge_contradiction(id, actor))).await?;
        Ok(found.contains(&true))
    }

    async fn find_half_messages(&self, filter: &HalfMessageFilter, limit: usize) -> Result<Vec<HalfMessageRow>> {
        let found = try_join_all(self.all().map(|database| database.find_half_messages(filter, limit))).await?;
        let mut rows = found.concat();
        // The newest first; of an id that is in two places, the message before its early verdict.
        rows.sort_by_key(|row| (std::cmp::Reverse((row.prepared_at, row.id)), row.topic.is_none()));
        let mut seen = std::collections::HashSet::new();
        let messages: std::collections::HashSet<_> =
            rows.iter().filter(|row| row.topic.is_some()).map(|row| row.id).collect();
        rows.retain(|row| (row.topic.is_some() || !messages.contains(&row.id)) && seen.insert(row.id));
        rows.truncate(limit);
        Ok(rows)
    }

    async fn half_message_stats(&self) -> Result<HalfMessageStats> {
        let all = try_join_all(self.all().map(|database| database.half_message_stats())).await?;
        Ok(all.into_iter().fold(HalfMessageStats::default(), |sum, one| HalfMessageStats {
            prepared: sum.prepared + one.prepared,
            parked: sum.parked + one.parked,
            contradicted: sum.contradicted + one.contradicted,
            early_commits: sum.early_commits + one.early_commits,
            oldest_undecided_seconds: sum.oldest_undecided_seconds.max(one.oldest_undecided_seconds),
        }))
    }
}

impl std::fmt::Debug for Shards {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shards")
            .field("shards", &self.shards.iter().map(|(topics, _)| topics).collect::<Vec<_>>())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shard_has_names_and_prefixes() {
        let topics = Topics::new(["pay.*", "orders"]).unwrap();
        let has = |name: &str| topics.contain(&TopicName::new(name).unwrap());
        assert!(has("pay.card") && has("pay.") && has("orders"));
        assert!(!has("pay") && !has("orders.eu") && !has("order"));
        assert!(Topics::new(["*"]).unwrap().contain(&TopicName::new("x").unwrap()));
        for wrong in [&[][..], &[""], &["a*b"], &["a b*"], &["**"]] {
            assert!(Topics::new(wrong.iter().copied()).is_err(), "{wrong:?} was accepted");
        }
    }
}
