//! The files of a broker that keeps its own: what can be verified and repaired without opening it.

use std::path::PathBuf;

use async_trait::async_trait;
use landfall::log::{Log, Repaired, Report};
use landfall::{Result, TopicName};

/// `None` for the topic means all of them.
#[async_trait]
pub(crate) trait Files: Send + Sync {
    /// How much there is to read.
    async fn bytes(&self, topic: Option<&TopicName>) -> Result<u64>;

    /// Reads everything, beside whoever works with it; `progress` is told how many more bytes were read.
    async fn verify(&self, topic: Option<&TopicName>, progress: Box<dyn FnMut(u64) + Send>) -> Result<Vec<Report>>;

    /// Makes what is damaged usable again; refused while anybody has it open.
    async fn repair(&self, topic: Option<&TopicName>) -> Result<Vec<Repaired>>;
}

/// The folder of an embedded log.
pub(super) struct LogFolder(pub(super) PathBuf);

#[async_trait]
impl Files for LogFolder {
    async fn bytes(&self, topic: Option<&TopicName>) -> Result<u64> {
        Log::open_read_only(&self.0)?.bytes_to_verify(topic).await
    }

    async fn verify(&self, topic: Option<&TopicName>, progress: Box<dyn FnMut(u64) + Send>) -> Result<Vec<Report>> {
        Log::open_read_only(&self.0)?.verify(topic, progress).await
    }

    async fn repair(&self, topic: Option<&TopicName>) -> Result<Vec<Repaired>> {
        let (folder, topic) = (self.0.clone(), topic.cloned());
        super::log::blocking(move || Log::repair(folder, topic.as_ref())).await
    }
}
