//! What the doctor sees in a log: settings of topics, groups that are late, damage, and the disk that it is on.
//!
//! It reads what a log's description reads, the last segment of each partition, and works beside the process that has the
//! log open. Every byte is read by [`ReadOnlyLog::verify`], which is asked for by itself.

mod place;
mod topic;

use std::sync::Arc;

use async_trait::async_trait;
use landfall_core::{Demands, Diagnose, ErrorKind, Finding, Rank, Result, Timestamp, TopicName};

use crate::damage::verify::{self, Folder};
use crate::disk::SystemDisk;
use crate::log::Log;
use crate::options::{Acknowledge, Options};
use crate::read::read_only::{self, ReadOnlyLog, blocking};
use crate::storage::cursor::Extents;

const ACKNOWLEDGE: (&str, Rank) = ("log.acknowledge", Rank::Loss);
const DAMAGE: (&str, Rank) = ("log.damage", Rank::Loss);

#[async_trait]
impl Diagnose for ReadOnlyLog {
    async fn diagnose(&self, demands: &Demands) -> Result<Vec<Finding>> {
        let root = self.root();
        let names = {
            let root = root.clone();
            blocking(move || verify::topics(Folder { disk: &SystemDisk, root: &root }, None)).await?
        };
        let mut findings = Vec::new();
        for name in names {
            match examine_topic(self, &name, demands).await {
                Ok(found) => findings.extend(found),
                Err(error) if error.kind() == ErrorKind::Corrupt => findings.push(damage(&name, &error)),
                // Deleted meanwhile, or only the progress of a group is left of it.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        findings.extend(blocking(move || place::disk(&root)).await?);
        Ok(findings)
    }
}

async fn examine_topic(log: &ReadOnlyLog, name: &TopicName, demands: &Demands) -> Result<Vec<Finding>> {
    let description = log.describe(name).await?;
    let (folder, demands) = (log.root().join("topics").join(name.as_str()), *demands);
    blocking(move || {
        let partitions = read_only::partitions(&folder)?.unwrap_or_default();
        topic::diagnose(&description, &partitions, &demands, Timestamp::now())
    })
    .await
}

#[async_trait]
impl Diagnose for Log {
    async fn diagnose(&self, demands: &Demands) -> Result<Vec<Finding>> {
        let mut findings: Vec<Finding> = acknowledge(self.options()).into_iter().collect();
        let (log, demands) = (self.clone(), *demands);
        let of_topics = blocking(move || {
            let mut findings = Vec::new();
            for description in log.describe_all()? {
                let found = log.topics().get(&description.topic);
                let partitions = found.iter().flat_map(|topic| topic.partitions().to_vec());
                let partitions: Vec<Arc<dyn Extents>> = partitions.map(|partition| partition as _).collect();
                findings.extend(topic::diagnose(&description, &partitions, &demands, Timestamp::now())?);
            }
            findings.extend(place::disk(log.topics().folder())?);
            Ok(findings)
        });
        findings.extend(of_topics.await?);
        Ok(findings)
    }
}

impl Options {
    /// What a log that is opened with these breaks: how it answers its publishers, and the settings of topics that come
    /// into being with their first message. For whoever knows the options and must not open the log.
    pub fn diagnose(&self, demands: &Demands) -> Vec<Finding> {
        let of_topics = topic::settings(topic::Of::TopicsToCome, &self.topic, demands);
        acknowledge(self).into_iter().chain(of_topics).collect()
    }
}

fn acknowledge(options: &Options) -> Option<Finding> {
    let lost_with = match options.acknowledge {
        Acknowledge::Synced => return None,
        Acknowledge::Written => "a power cut",
        Acknowledge::None => "the process",
    };
    let what =
        format!("publishers are told that a message is accepted before it is synced: with {lost_with} it is lost");
    Some(Finding::new(ACKNOWLEDGE, "acknowledge", what, "acknowledge = \"synced\" under [broker]"))
}

fn damage(topic: &TopicName, error: &landfall_core::Error) -> Finding {
    let what = format!("topic {topic} is damaged: {error}; readers stop there");
    Finding::new(
        DAMAGE,
        format!("topic {topic}"),
        what,
        format!("landfall topic verify {topic}, and then as docs/operate/damage.md says"),
    )
}
