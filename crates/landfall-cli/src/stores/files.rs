//! The files of a broker that stores its own, verified and repaired without opening it.

use std::path::PathBuf;

use async_trait::async_trait;
use landfall::log::{Log, Repaired, Report};
use landfall::{Result, TopicName};

/// `None` as the topic means all topics.
#[async_trait]
pub(crate) trait Files: Send + Sync {
    /// Returns the number of bytes that a verification reads.
    async fn bytes(&self, topic: Option<&TopicName>) -> Result<u64>;

    /// Reads everything, beside other processes; `progress` receives the number of bytes read since its last call.
    async fn verify(&self, topic: Option<&TopicName>, progress: Box<dyn FnMut(u64) + Send>) -> Result<Vec<Report>>;

    /// Repairs damaged files; refused while a process has them open.
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
