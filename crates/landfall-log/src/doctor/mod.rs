//! The doctor's checks of a log: topic settings, lagging groups, damage, and the disk.
//!
//! It reads the last segment of each partition and works while another process has the log open.
//! [`ReadOnlyLog::verify`] reads every byte and is run separately.

mod disk;
mod topic;

use std::sync::Arc;

use async_trait::async_trait;
use landfall_core::adapter::Demands;
use landfall_core::{Diagnose, ErrorKind, Finding, Rank, Result, Timestamp, TopicName};

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
            match diagnose_topic(self, &name, demands).await {
                Ok(found) => findings.extend(found),
                Err(error) if error.kind() == ErrorKind::Corrupt => findings.push(damage(&name, &error)),
                // The topic was deleted meanwhile, or only the progress of a group is left.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        findings.extend(blocking(move || disk::diagnose(&root)).await?);
        Ok(findings)
    }
}

async fn diagnose_topic(log: &ReadOnlyLog, name: &TopicName, demands: &Demands) -> Result<Vec<Finding>> {
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
        let topic_findings = blocking(move || {
            let mut findings = Vec::new();
            for description in log.describe_all()? {
                let found = log.topics().get(&description.topic);
                let partitions = found.iter().flat_map(|topic| topic.partitions().to_vec());
                let partitions: Vec<Arc<dyn Extents>> = partitions.map(|partition| partition as _).collect();
                findings.extend(topic::diagnose(&description, &partitions, &demands, Timestamp::now())?);
            }
            findings.extend(disk::diagnose(log.topics().folder())?);
            Ok(findings)
        });
        findings.extend(topic_findings.await?);
        Ok(findings)
    }
}

impl Options {
    /// Diagnoses a log that is opened with these options: its acknowledgements, and the settings of topics that their
    /// first message creates. For callers that must not open the log.
    pub fn diagnose(&self, demands: &Demands) -> Vec<Finding> {
        let topic_findings = topic::settings(topic::SettingsScope::NewTopics, &self.topic, demands);
        acknowledge(self).into_iter().chain(topic_findings).collect()
    }
}

fn acknowledge(options: &Options) -> Option<Finding> {
    let lost_with = match options.acknowledge {
        Acknowledge::Synced => return None,
        Acknowledge::Written => "a power cut",
        Acknowledge::None => "the process",
    };
    let what = format!("publishers get an acknowledgement before the message is synced: {lost_with} loses it");
    Some(Finding::new(ACKNOWLEDGE, "acknowledge", what, "acknowledge = \"synced\" under [broker]"))
}

fn damage(topic: &TopicName, error: &landfall_core::Error) -> Finding {
    let what = format!("topic {topic} is damaged: {error}; readers stop there");
    Finding::new(
        DAMAGE,
        format!("topic {topic}"),
        what,
        format!("run landfall topic verify {topic}, then follow docs/operate/damage.md"),
    )
}
