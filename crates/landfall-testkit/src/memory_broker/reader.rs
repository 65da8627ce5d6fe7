//! A reader of a topic outside of any group.

use std::sync::Arc;

use async_trait::async_trait;
use landfall_core::{Position, Result, StartAt, StoredMessage, TopicName, TopicReader};

use super::Inner;

#[derive(Debug)]
pub(super) struct MemoryReader {
    inner: Arc<Inner>,
    topic: TopicName,
    next: usize,
}

impl MemoryReader {
    pub(super) fn new(inner: Arc<Inner>, topic: &TopicName, from: StartAt) -> Self {
        let next = match from {
            StartAt::Beginning => 0,
            StartAt::End => inner.state().messages(topic).len(),
            StartAt::Offset(offset) => offset as usize,
            StartAt::Time(time) => inner.state().offset_at(topic, time),
        };
        Self { inner, topic: topic.clone(), next }
    }
}

#[async_trait]
impl TopicReader for MemoryReader {
    async fn read(&mut self, limit: usize) -> Result<Vec<StoredMessage>> {
        let state = self.inner.state();
        let messages = state.messages(&self.topic).iter().enumerate().skip(self.next).take(limit);
        let stored: Vec<_> = messages
            .map(|(offset, message)| StoredMessage {
                position: Position { partition: 0, offset: offset as u64 },
                message: Ok(message.clone()),
            })
            .collect();
        self.next += stored.len();
        Ok(stored)
    }
}
