//! Topics are created, grown, configured and deleted by people and by programs that do not remember whether they did
//! so before. Each call can be repeated, also after a crash in the middle of it, and ends in the same state.
//!
//! The free functions are the steps on disk. Only the writer's thread runs them, between two groups of messages, so
//! that nobody writes to a topic that is being changed. A step is durable before the next one begins.

use std::fmt;
use std::sync::Arc;

use landfall_core::{Error, ErrorKind, Result, TopicName};
use serde::Serialize;

use crate::durable::{create_directory, empty, remove_tree};
use crate::group::all::Groups;
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
    /// Creates `topic`, durably, with that many partitions, or as many as [`crate::Options::partitions`] says. Answers
    /// whether it did: `false` if there was one with the same partitions (any, if `None`) and the same settings.
    ///
    /// `Conflict` if there is one with others; the sentence says what differs.
    pub async fn create_topic(
        &self,
        topic: &TopicName,
        partitions: Option<u32>,
        settings: TopicSettings,
    ) -> Result<bool> {
        partitions.map_or(Ok(()), check_partitions)?;
        settings.check()?;
        let (topics, name, otherwise) = (Arc::clone(self.topics()), topic.clone(), self.options().partitions);
        self.writer()
            .change(move |_| match topics.get(&name) {
                Some(topic) => compare(&topic.file(), partitions, &settings).map(|()| false),
                None => create(&topics, &name, partitions.unwrap_or(otherwise), settings).map(|_| true),
            })
            .await
    }

    /// Gives `topic` as many partitions as `partitions` says, durably. Nothing happens if it has as many; fewer are
    /// refused as `Invalid`, because the messages of a partition cannot go anywhere else.
    ///
    /// [`Growth`] says what this does to the order of messages: read it before.
    pub async fn grow_topic(&self, topic: &TopicName, partitions: u32) -> Result<Growth> {
        check_partitions(partitions)?;
        let (topics, name) = (Arc::clone(self.topics()), topic.clone());
        self.writer().change(move |_| grow(&topics, &name, partitions)).await
    }

    /// Replaces the settings of `topic`, durably. Answers whether they were others before.
    pub async fn configure_topic(&self, topic: &TopicName, settings: TopicSettings) -> Result<bool> {
        settings.check()?;
        let (topics, name) = (Arc::clone(self.topics()), topic.clone());
        self.writer().change(move |store| configure(store, &topics, &name, settings)).await
    }

    /// Deletes `topic` with all its messages and with how far every group has come in it. Answers whether there was
    /// one.
    ///
    /// Its subscribers and readers get an error that says so. A topic that is created under the same name later, also
    /// by the next message that is published to it, begins at offset 0.
    pub async fn delete_topic(&self, topic: &TopicName) -> Result<bool> {
        let (topics, groups, name) = (Arc::clone(self.topics()), Arc::clone(self.every_group()), topic.clone());
        self.writer().change(move |store| delete(store, &topics, &groups, &name)).await
    }
}

/// What became of a topic that was to have more partitions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Growth {
    pub topic: TopicName,
    /// How many partitions it had.
    pub before: u32,
    /// How many it has now.
    pub after: u32,
}

impl Growth {
    /// Whether keys go to other partitions than before.
    pub fn moves_keys(&self) -> bool {
        self.before != self.after
    }
}

impl fmt::Display for Growth {
    /// What it means for the order of messages, for whoever decides about it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { topic, before, after } = self;
        if !self.moves_keys() {
            return write!(f, "topic {topic} has {after} partitions, as before; every key stays where it is");
        }
        write!(
            f,
            "with {after} partitions in place of {before}, many keys of topic {topic} go to another partition from now \
             on: messages that are published after the change may be consumed before older ones of the same key are \
             finished; where that matters, stop publishing, let every group finish, grow, and go on"
        )
    }
}

/// The topic `name`, created durably if it is not there.
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
    // What an earlier try left behind, of which nobody knows how much there is.
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
            "topic {name} has {} partitions and cannot have fewer: the messages of a partition stay in it",
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
    // Before its files are gone, so that whoever misses one knows why.
    topic.set_deleted(true);
    let left = deletion::begin(disk, topics.folder(), name).inspect_err(|_| topic.set_deleted(false))?;
    topics.remove(name);
    store.forget(&topic);
    groups.forget(name).and_then(|()| remove_tree(disk, &left)).map_err(|error| {
        // In its own sentence, so that a full disk is not taken for one: what is left must be removed before the name
        // is used again, and opening the log does that.
        let sentence = format!("topic {name} is deleted, but not all that belongs to it could be removed");
        Error::new(ErrorKind::Unavailable, sentence).with_source(error)
    })?;
    Ok(true)
}

/// An error that says in what the topic which is there differs from the one that is wanted.
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
    let sentence = format!("there is a topic {} already, and {}", found.topic, differences.join(", "));
    Err(Error::new(ErrorKind::Conflict, sentence))
}
