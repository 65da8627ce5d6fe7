//! Looks at every byte of a log and says what is wrong, where, and which messages that concerns.
//!
//! Opening a log reads only the last segment of each partition, and a reader stops at the first damage that it meets.
//! This goes on behind it, so that the whole extent of the damage is known before anybody decides what to do. It
//! changes nothing and works beside the process that has the log open.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use landfall_core::{ErrorKind, GroupName, Result, TopicName};
use serde::Serialize;

use crate::damage::inspect::{Findings, Place, inspect};
use crate::disk::{Access, Disk};
use crate::durable;
use crate::durable::failed;
use crate::group::file::GroupFile;
use crate::read::reader::no_such_topic;
use crate::storage::segment;
use crate::storage::start;
use crate::topic::file::TopicFile;
use crate::topic::open as topic;

/// What stands in a topic, and what is wrong with it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Report {
    pub topic: TopicName,
    pub segments: u64,
    pub batches: u64,
    /// Messages that can be read.
    pub messages: u64,
    /// Messages that compaction took away.
    pub removed: u64,
    /// Offsets that an earlier repair gave up.
    pub lost: u64,
    /// The size of everything that was read.
    pub bytes: u64,
    /// Written at the end of a partition and not finished: by a crash, and opening the log will cut it off; or by
    /// the process that is just writing it. Nobody was told that it is there.
    pub unfinished_bytes: u64,
    pub problems: Vec<Problem>,
}

/// Something that is not as it was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Problem {
    /// `None` where it concerns the whole topic.
    pub partition: Option<u32>,
    pub file: PathBuf,
    /// Where in the file.
    pub position: u64,
    /// The first offset that cannot be read; `None` if no message is concerned.
    pub first_offset: Option<u64>,
    /// The last one; `None` if nobody can tell.
    pub last_offset: Option<u64>,
    pub what: String,
    /// Whether a repair would do anything about it.
    pub is_repairable: bool,
}

impl Problem {
    pub(crate) fn new(partition: Option<u32>, file: PathBuf, position: u64, what: impl Into<String>) -> Self {
        let (first_offset, last_offset) = (None, None);
        Self { partition, file, position, first_offset, last_offset, what: what.into(), is_repairable: true }
    }

    /// It concerns the offsets from `first` up to, and without, `next`. There may be none.
    pub(crate) fn with_offsets(mut self, first: u64, next: Option<u64>) -> Self {
        if next != Some(first) {
            (self.first_offset, self.last_offset) = (Some(first), next.map(|next| next - 1));
        }
        self
    }

    pub(crate) fn beyond_repair(mut self) -> Self {
        self.is_repairable = false;
        self
    }
}

/// One line: `FILE, byte N: what is wrong (offsets M to N)`.
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, byte {}: {}", self.file.display(), self.position, self.what)?;
        match (self.first_offset, self.last_offset) {
            (None, _) => Ok(()),
            (Some(first), Some(last)) if first == last => write!(f, " (offset {first})"),
            (Some(first), Some(last)) => write!(f, " (offsets {first} to {last})"),
            (Some(first), None) => write!(f, " (offset {first} and what may have followed)"),
        }
    }
}

/// The folder of a log.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Folder<'a> {
    pub(crate) disk: &'a dyn Disk,
    pub(crate) root: &'a Path,
}

/// What is known about one topic after every byte of it was read.
#[derive(Debug)]
pub(crate) struct Verified<'a> {
    /// Without the problems.
    pub(crate) report: Report,
    pub(crate) partitions: Vec<(Place<'a>, Findings)>,
    /// Files of groups that cannot be read.
    pub(crate) groups: Vec<(GroupName, Problem)>,
    /// What is wrong beside all that.
    pub(crate) problems: Vec<Problem>,
}

/// Verifies one topic, or all of them. `progress` is told how many more bytes were read.
pub(crate) fn verify(
    folder: Folder<'_>,
    one: Option<&TopicName>,
    progress: &mut dyn FnMut(u64),
) -> Result<Vec<Report>> {
    let verify = |name: &TopicName| Ok(verify_topic(folder, name, progress)?.into_report());
    topics(folder, one)?.iter().map(verify).collect()
}

/// The topic that was asked for, or all; also one of which nothing but the progress of a group is left.
pub(crate) fn topics(folder: Folder<'_>, one: Option<&TopicName>) -> Result<Vec<TopicName>> {
    let Folder { disk, root } = folder;
    let mut names = BTreeMap::new();
    for name in durable::list(disk, &root.join("topics"))? {
        let folder = root.join("topics").join(&name);
        if let Ok(topic) = TopicName::new(name) {
            let is_there = durable::read(disk, &folder.join("topic.json"))?.is_some() || has_segments(disk, &folder)?;
            names.insert(topic, is_there);
        }
    }
    for group in durable::list(disk, &root.join("groups"))? {
        for file in durable::list(disk, &root.join("groups").join(group))? {
            if let Some(Ok(topic)) = file.strip_suffix(".json").map(TopicName::new) {
                names.insert(topic, true);
            }
        }
    }
    names.retain(|name, is_there| *is_there && one.is_none_or(|one| one == name));
    match one {
        Some(one) if names.is_empty() => Err(no_such_topic(one)),
        _ => Ok(names.into_keys().collect()),
    }
}

/// Whether there is anything in the partitions below `folder`. A creation that never finished leaves none.
fn has_segments(disk: &dyn Disk, folder: &Path) -> Result<bool> {
    for name in durable::list(disk, folder)? {
        if durable::list(disk, &folder.join(name))?.iter().any(|file| file.ends_with(".segment")) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The bytes of all segments of one topic, or of all of them: what there is to read.
pub(crate) fn bytes_to_read(folder: Folder<'_>, one: Option<&TopicName>) -> Result<u64> {
    let Folder { disk, root } = folder;
    let mut bytes = 0;
    for topic in topics(folder, one)? {
        let topic_folder = root.join("topics").join(topic.as_str());
        for partition in durable::list(disk, &topic_folder)? {
            for file in durable::list(disk, &topic_folder.join(&partition))? {
                let path = topic_folder.join(&partition).join(&file);
                if file.ends_with(".segment")
                    && let Ok(file) = disk.open(&path, Access::Read)
                {
                    bytes += file.length().map_err(failed("look at", &path))?;
                }
            }
        }
    }
    Ok(bytes)
}

/// Reads every byte of `topic`.
pub(crate) fn verify_topic<'a>(
    folder: Folder<'_>,
    topic: &'a TopicName,
    progress: &mut dyn FnMut(u64),
) -> Result<Verified<'a>> {
    let topic_folder = folder.root.join("topics").join(topic.as_str());
    let mut verified = Verified { report: Report::new(topic), partitions: vec![], groups: vec![], problems: vec![] };
    // The groups before the partitions: what they have finished must be there, also while more is being written.
    let finished = verified.read_groups(folder, topic)?;
    let count = verified.count_partitions(folder.disk, &topic_folder)?;
    for (partition, furthest) in finished.iter().enumerate().skip(count as usize) {
        let Some((offset, file)) = furthest else { continue };
        let what = format!("everything before offset {offset} was finished, but the topic has no such partition");
        verified.problems.push(Problem::new(Some(partition as u32), file.clone(), 0, what).beyond_repair());
    }
    for partition in 0..count {
        let directory = topic::partition_folder(&topic_folder, partition);
        let start = match start::read(folder.disk, &directory) {
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                let what = "it does not say any more where the partition begins";
                let problem = Problem::new(Some(partition), directory.join(start::NAME), 0, what);
                verified.problems.push(problem.beyond_repair());
                // What is before the first segment was removed, for all that anybody can tell, and must not be called lost.
                segment::list(folder.disk, &directory)?.first().copied().unwrap_or_default()
            }
            start => start?.offset,
        };
        let place =
            Place { topic, partition, directory, start, furthest: finished.get(partition as usize).cloned().flatten() };
        let findings = inspect(folder.disk, &place, &mut verified.report, progress)?;
        verified.partitions.push((place, findings));
    }
    Ok(verified)
}

/// For each partition how far the group has come that has come furthest, if any, and its file.
type Furthest = Vec<Option<(u64, PathBuf)>>;

impl Verified<'_> {
    fn read_groups(&mut self, Folder { disk, root }: Folder<'_>, topic: &TopicName) -> Result<Furthest> {
        let (groups, mut furthest) = (root.join("groups"), Furthest::new());
        for name in durable::list(disk, &groups)? {
            let path = groups.join(&name).join(format!("{topic}.json"));
            let Ok(group) = GroupName::new(name) else { continue };
            let finished = match GroupFile::read(disk, &path) {
                Ok(file) => file.map(|file| file.finished).unwrap_or_default(),
                Err(error) if error.kind() == ErrorKind::Corrupt => {
                    let what = format!("how far group {group} has come cannot be read");
                    self.groups.push((group, Problem::new(None, path, 0, what)));
                    continue;
                }
                Err(error) => return Err(error),
            };
            furthest.resize(furthest.len().max(finished.len()), None);
            for (furthest, offset) in furthest.iter_mut().zip(finished) {
                let known = furthest.as_ref().map_or(0, |(offset, _)| *offset);
                if offset > known {
                    *furthest = Some((offset, path.clone()));
                }
            }
        }
        Ok(furthest)
    }

    /// What `topic.json` says; where it says nothing, as many as there are folders.
    fn count_partitions(&mut self, disk: &dyn Disk, folder: &Path) -> Result<u32> {
        let what = match TopicFile::read(disk, folder) {
            Ok(Some(file)) => return Ok(file.partitions),
            Ok(None) => "the file is missing, without which there is no topic".to_owned(),
            Err(error) if error.kind() == ErrorKind::Corrupt => "it does not say any more what the topic is".to_owned(),
            Err(error) => return Err(error),
        };
        self.problems.push(Problem::new(None, folder.join("topic.json"), 0, what).beyond_repair());
        let numbers = durable::list(disk, folder)?.into_iter().filter_map(|name| name.parse::<u32>().ok());
        Ok(numbers.max().map_or(0, |last| last + 1))
    }

    fn into_report(self) -> Report {
        let Self { mut report, partitions, groups, problems } = self;
        report.problems = problems;
        report.problems.extend(groups.into_iter().map(|(_, problem)| problem));
        for (_, findings) in partitions {
            report.problems.extend(findings.segments.into_iter().flat_map(|segment| segment.problems));
            report.problems.extend(findings.problems);
        }
        report
    }
}

impl Report {
    pub(crate) fn new(topic: &TopicName) -> Self {
        Self {
            topic: topic.clone(),
            segments: 0,
            batches: 0,
            messages: 0,
            removed: 0,
            lost: 0,
            bytes: 0,
            unfinished_bytes: 0,
            problems: Vec::new(),
        }
    }
}
