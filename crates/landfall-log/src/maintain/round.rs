//! One round of maintenance: retention, then compaction.

use std::sync::Arc;

use landfall_core::{Result, Timestamp};
use serde::Serialize;

use crate::log::Log;
use crate::maintain::compaction;
use crate::maintain::retention::Policy;
use crate::read::read_only::blocking;
use crate::storage::partition::Partition;
use crate::topic::open::Topic;
use crate::topic::settings::TopicSettings;

/// The result of one round of maintenance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[non_exhaustive]
pub struct Maintenance {
    /// Segments that retention removed.
    pub removed_segments: u64,
    /// Messages in these segments.
    pub removed_messages: u64,
    pub removed_bytes: u64,
    /// Segments that compaction rewrote.
    pub compacted_segments: u64,
    /// Messages that compaction removed.
    pub compacted_messages: u64,
    /// Ids known for deduplication, over all topics, and approximately how much memory they use.
    pub known_ids: u64,
    pub known_ids_bytes: u64,
}

impl Log {
    /// Applies retention, then compaction, according to the settings of each topic. An open log does this
    /// automatically every [`crate::Options::maintenance`]; rounds never overlap.
    ///
    /// Messages that a group has not finished are kept, unless the topic's settings say otherwise.
    pub async fn maintain(&self) -> Result<Maintenance> {
        let _one_at_a_time = self.maintenance_lock().lock().await;
        let mut done = Maintenance::default();
        for topic in self.topics().all() {
            let settings = topic.settings();
            for partition in topic.partitions().iter() {
                self.retain(&topic, partition, settings, &mut done).await?;
                if settings.compact {
                    self.compact(&topic, partition, &mut done).await?;
                }
            }
        }
        (done.known_ids, done.known_ids_bytes) = self.writer().change(|store| Ok(store.known_ids())).await?;
        Ok(done)
    }

    async fn retain(
        &self,
        topic: &Topic,
        partition: &Arc<Partition>,
        settings: TopicSettings,
        done: &mut Maintenance,
    ) -> Result<()> {
        if settings.retention_time.is_none() && settings.retention_bytes.is_none() {
            return Ok(());
        }
        let (partition, needed) = (Arc::clone(partition), self.needed(topic, partition));
        let policy = Policy { settings, now: Timestamp::now().as_millis(), needed };
        let removed = self.writer().change(move |store| match partition.is_deleted() {
            true => Ok(Default::default()),
            false => store.retain(&partition, &policy),
        });
        let removed = removed.await?;
        done.removed_segments += removed.segments;
        done.removed_messages += removed.messages;
        done.removed_bytes += removed.bytes;
        Ok(())
    }

    async fn compact(&self, topic: &Topic, partition: &Arc<Partition>, done: &mut Maintenance) -> Result<()> {
        let needed = self.needed(topic, partition);
        if !partition.has_more_to_compact(needed) {
            return Ok(());
        }
        // Read before marking: a segment that is finished meanwhile is left to the next round.
        let end = needed.min(partition.last_segment());
        let reader = Arc::clone(partition);
        for (segment, marks) in blocking(move || compaction::find_superseded(&reader, needed)).await? {
            let reader = Arc::clone(partition);
            let compacted = blocking(move || compaction::rewrite(&reader, segment, &marks)).await?;
            let (owner, messages) = (Arc::clone(partition), compacted.messages);
            if self.writer().change(move |store| store.replace(&owner, compacted)).await? {
                done.compacted_segments += 1;
                done.compacted_messages += messages;
            }
        }
        partition.set_compacted(end);
        Ok(())
    }

    /// The first offset that some group has not finished; the largest number if there is no group.
    fn needed(&self, topic: &Topic, partition: &Partition) -> u64 {
        fail::fail_point!("landfall-log::ignore-groups", |_| u64::MAX);
        let number = partition.number() as usize;
        let groups = self.all_groups().for_topic(&topic.name());
        let finished = groups.iter().map(|group| group.finished().get(number).copied().unwrap_or_default());
        finished.min().unwrap_or(u64::MAX)
    }
}
