//! Creates, grows, configures and deletes topics. Every call is idempotent: it can be repeated, even after a crash in
//! the middle, and ends in the same state.
//!
//! The free functions are the steps on disk. Only the writer thread runs them, between two groups of messages, so that
//! a topic is never written while it changes. Each step is durable before the next one begins.

use std::fmt;
use std::sync::Arc;

use landfall_core::{Error, ErrorKind, Result, TopicName};
use serde::Serialize;

use crate::durable::{create_directory, empty, remove_tree};
use crate::group::groups::Groups;
use crate::log::Log;
use crate::options::check_partitions;
use crate::read::reader::no_such_topic;
use crate::storage::partition::Recovered;
use crate::topic::deletion;
use crate::topic::file::TopicFile;
use crate::topic::open::{Topic, Topics, partition_folder};
use crate::topic::settings::TopicSettings;
use crate::write::store::Store;

impl Log {
    /// Creates `topic` durably, with that many partitions or [`crate::Options::partitions`]. Returns `false` if it
    /// exists with the same partitions (any number, if `None`) and the same settings.
    ///
    /// `Conflict` if it exists with others; the message names the differences.
    pub async fn create_topic(
        &self,
        topic: &TopicName,
        partitions: Option<u32>,
        settings: TopicSettings,
    ) -> Result<bool> {
        partitions.map_or(Ok(()), check_partitions)?;
        settings.check()?;
        let (topics, name, default_partitions) = (Arc::clone(self.topics()), topic.clone(), self.options().partitions);
        self.writer()
            .change(move |_| match topics.get(&name) {
                Some(topic) => compare(&topic.file(), partitions, &settings).map(|()| false),
                None => create(&topics, &name, partitions.unwrap_or(default_partitions), settings).map(|_| true),
            })
            .await
    }

    /// Grows `topic` to `partitions` durably. Does nothing if it has as many. Fewer are refused as `Invalid`, because
    /// the messages of a partition cannot move.
    ///
    /// Changes the order of messages; see [`Growth`] first.
    pub async fn grow_topic(&self, topic: &TopicName, partitions: u32) -> Result<Growth> {
        check_partitions(partitions)?;
        let (topics, name) = (Arc::clone(self.topics()), topic.clone());
        self.writer().change(move |_| grow(&topics, &name, partitions)).await
    }

    /// Replaces the settings of `topic` durably. Returns whether they changed.
    pub async fn configure_topic(&self, topic: &TopicName, settings: TopicSettings) -> Result<bool> {
        settings.check()?;
        let (topics, name) = (Arc::clone(self.topics()), topic.clone());
        self.writer().change(move |store| configure(store, &topics, &name, settings)).await
    }

    /// Deletes `topic` with all its messages and the progress of every group in it. Returns whether it existed.
    ///
    /// Its subscribers and readers get an error that says so. A topic created later under the same name, also by its
    /// first published message, starts at offset 0.
    pub async fn delete_topic(&self, topic: &TopicName) -> Result<bool> {
        let (topics, groups, name) = (Arc::clone(self.topics()), Arc::clone(self.all_groups()), topic.clone());
        self.writer().change(move |store| delete(store, &topics, &groups, &name)).await
    }
}

/// The result of growing a topic.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Growth {
    pub topic: TopicName,
    /// The number of partitions before.
    pub before: u32,
    /// The number of partitions now.
    pub after: u32,
}

impl Growth {
    /// Whether keys map to other partitions than before.
    pub fn moves_keys(&self) -> bool {
        self.before != self.after
    }
}

impl fmt::Display for Growth {
    /// The effect on the order of messages, for the operator.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { topic, before, after } = self;
        if !self.moves_keys() {
            return write!(f, "topic {topic} has {after} partitions, as before; no key moves");
        }
        write!(
            f,
            "topic {topic} grows from {before} to {after} partitions, and many of its keys move to another partition: \
             messages published from now on may be consumed before older ones of the same key are finished; where that \
             matters, stop publishing, let every group finish, grow the topic, and resume"
        )
    }
}

/// Returns the topic `name`, created durably if it does not exist.
pub(crate) fn create(
    topics: &Topics,
    name: &TopicName,
    partitions: u32,
    settings: TopicSettings,
) -> Result<Arc<Topic>> {
    if let Some(topic) = topics.get(name) {
        return Ok(topic);
    }
    let (disk, folder) = (topics.disk(), topics.folder().join(name.as_str()));
    // An interrupted creation may have left files.
    empty(&**disk, &folder)?;
    create_directory(&**disk, &folder)?;
    for number in 0..partitions {
        create_directory(&**disk, &partition_folder(&folder, number))?;
    }
    let file = TopicFile::new(name.clone(), partitions, settings);
    file.write(&**disk, &folder)?;
    let topic = Arc::new(Topic::open(disk, folder, file, |_, _| Ok(Recovered::empty()))?);
    topics.insert(name.clone(), Arc::clone(&topic));
    Ok(topic)
}

fn grow(topics: &Topics, name: &TopicName, partitions: u32) -> Result<Growth> {
    let topic = topics.get(name).ok_or_else(|| no_such_topic(name))?;
    let mut file = topic.file();
    let growth = Growth { topic: name.clone(), before: file.partitions, after: partitions };
    if partitions < file.partitions {
        return Err(Error::invalid(format!(
            "topic {name} has {} partitions and cannot have fewer: the messages of a partition cannot move",
            file.partitions
        )));
    }
    if growth.moves_keys() {
        for number in file.partitions..partitions {
            let folder = partition_folder(topic.folder(), number);
            empty(&**topics.disk(), &folder)?;
            create_directory(&**topics.disk(), &folder)?;
        }
        file.partitions = partitions;
        write(topics, &topic, file)?;
    }
    Ok(growth)
}

fn configure(store: &mut Store, topics: &Topics, name: &TopicName, settings: TopicSettings) -> Result<bool> {
    let topic = topics.get(name).ok_or_else(|| no_such_topic(name))?;
    let mut file = topic.file();
    if file.settings == settings {
        return Ok(false);
    }
    let changes_ids = file.settings.deduplicate != settings.deduplicate;
    file.settings = settings;
    write(topics, &topic, file)?;
    if changes_ids {
        store.forget_ids(name);
    }
    Ok(true)
}

fn write(topics: &Topics, topic: &Topic, file: TopicFile) -> Result<()> {
    file.write(&**topics.disk(), topic.folder())?;
    topic.change(file);
    Ok(())
}

fn delete(store: &mut Store, topics: &Topics, groups: &Groups, name: &TopicName) -> Result<bool> {
    let Some(topic) = topics.get(name) else { return Ok(false) };
    let disk = &**topics.disk();
    // Before its files are gone, so that a reader that misses one knows why.
    topic.set_deleted(true);
    let left = deletion::begin(disk, topics.folder(), name).inspect_err(|_| topic.set_deleted(false))?;
    topics.remove(name);
    store.forget(&topic);
    groups.forget(name).and_then(|()| remove_tree(disk, &left)).map_err(|error| {
        // A new error, so that a full disk is not reported as such: the rest must be removed before the name is
        // reused, and reopening the log does that.
        let sentence = format!("topic {name} is deleted, but some of its files remain; reopening the log removes them");
        Error::new(ErrorKind::Unavailable, sentence).with_source(error)
    })?;
    Ok(true)
}

/// Fails with the differences between the existing topic and the requested one.
fn compare(found: &TopicFile, partitions: Option<u32>, settings: &TopicSettings) -> Result<()> {
    let wanted = partitions.unwrap_or(found.partitions);
    let mut differences = Vec::new();
    if found.partitions != wanted {
        differences.push(format!("it has {} partitions and not {wanted}", found.partitions));
    }
    differences.extend(found.settings.differences(settings));
    if differences.is_empty() {
        return Ok(());
    }
    let sentence = format!("topic {} already exists, but {}", found.topic, differences.join(", "));
    Err(Error::new(ErrorKind::Conflict, sentence))
}
