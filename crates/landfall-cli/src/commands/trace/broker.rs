//! The search for messages in the broker.

use std::collections::BTreeSet;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use landfall::{Key, Message, MessageId, Position, StartAt, Timestamp, TopicName};

use crate::config::Config;
use crate::error::Result;
use crate::stores::broker::{self, TopicSource};

/// Messages read at a time.
const BATCH: usize = 1000;
/// The tolerated difference between the sender's clock and the broker's.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(600);

pub(super) struct Search<'a> {
    pub(super) id: Option<MessageId>,
    pub(super) key: Option<&'a Key>,
    /// The topics to read; empty for all.
    pub(super) topics: BTreeSet<TopicName>,
    /// How far back to read, if the id does not tell.
    pub(super) since: Duration,
    /// The number of messages to read of each topic.
    pub(super) at_most: u64,
}

#[derive(Default)]
pub(super) struct Found {
    pub(super) messages: Vec<(Message, Position)>,
    /// The topics of which a part was not read.
    pub(super) cut_short: Vec<TopicName>,
}

impl Search<'_> {
    pub(super) async fn run(&self, config: &Config) -> Result<Found> {
        let source = broker::open_to_read(config).await?;
        let mut found = Found::default();
        // Draws nothing if stderr is not a terminal.
        let bar = ProgressBar::no_length();
        if let Ok(style) = ProgressStyle::with_template("  {spinner} {human_pos} messages read  {elapsed}  {per_sec}") {
            bar.set_style(style);
        }
        let topics = source.topics().await?.into_iter().map(|summary| summary.topic);
        for topic in topics.filter(|topic| self.topics.is_empty() || self.topics.contains(topic)) {
            if !self.read_topic(&*source, &topic, &mut found.messages, &bar).await? {
                found.cut_short.push(topic);
            }
        }
        bar.finish_and_clear();
        Ok(found)
    }

    /// Returns whether it read to the end of the topic.
    async fn read_topic(
        &self,
        source: &dyn TopicSource,
        topic: &TopicName,
        found: &mut Vec<(Message, Position)>,
        bar: &ProgressBar,
    ) -> Result<bool> {
        let mut reader = source.read(topic, StartAt::Time(self.start())).await?;
        let mut read = 0;
        while read < self.at_most {
            let batch = reader.read(BATCH).await?;
            if batch.is_empty() {
                return Ok(true);
            }
            read += batch.len() as u64;
            bar.inc(batch.len() as u64);
            let readable = batch.into_iter().filter_map(|stored| Some((stored.message.ok()?, stored.position)));
            found.extend(readable.filter(|(message, _)| self.matches(message)));
        }
        Ok(reader.read(1).await?.is_empty())
    }

    /// Returns the time from which to read: that of a UUIDv7, which has the time of its message.
    fn start(&self) -> Timestamp {
        let sent = self.id.and_then(|id| id.as_uuid().get_timestamp()).map(|time| {
            let (seconds, nanoseconds) = time.to_unix();
            i64::try_from(seconds).unwrap_or_default() * 1000 + i64::from(nanoseconds / 1_000_000)
        });
        let back = |from: i64, time: Duration| from - i64::try_from(time.as_millis()).unwrap_or(from);
        Timestamp::from_millis(match sent {
            Some(sent) => back(sent, CLOCK_TOLERANCE).max(0),
            None => back(Timestamp::now().as_millis(), self.since).max(0),
        })
    }

    fn matches(&self, message: &Message) -> bool {
        self.id.is_none_or(|id| message.id == id) && self.key.is_none_or(|key| message.key.as_ref() == Some(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn search_starts_before_the_message_was_sent() {
        let search = |id| Search { id, key: None, topics: BTreeSet::new(), since: Duration::from_secs(60), at_most: 1 };
        let (id, now) = (MessageId::new(), Timestamp::now().as_millis());
        let start = search(Some(id)).start().as_millis();
        assert!((now - 700_000..=now - 590_000).contains(&start), "{start} is not ten minutes before {now}");
        let unknown = search(Some(MessageId::from_business("order", "7"))).start().as_millis();
        assert!((now - 61_000..=now - 50_000).contains(&unknown), "{unknown} is not a minute before {now}");
    }
}
