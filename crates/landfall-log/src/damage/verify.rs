//! Reads every byte of a log and reports all damage: where it is, and which messages it affects.
//!
//! Opening a log reads only the last segment of each partition, and a reader stops at the first damage. This continues
//! past damage, so that its full extent is known before an operator decides. It changes nothing and works while
//! another process has the log open.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use landfall_core::{ErrorKind, GroupName, Result, TopicName};
use serde::Serialize;

use crate::damage::inspect::{Findings, PartitionContext, inspect};
use crate::disk::{Access, Disk};
use crate::durable;
use crate::durable::failed;
use crate::group::file::GroupFile;
use crate::read::reader::no_such_topic;
use crate::storage::segment;
use crate::storage::start;
use crate::topic::file::TopicFile;
use crate::topic::open as topic;

/// The content of a topic, and its damage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Report {
    pub topic: TopicName,
    pub segments: u64,
    pub batches: u64,
    /// Messages that can be read.
    pub messages: u64,
    /// Messages that compaction removed.
    pub removed: u64,
    /// Offsets that an earlier repair gave up.
    pub lost: u64,
    /// The number of bytes read.
    pub bytes: u64,
    /// Size of the unfinished tails: left by a crash, and truncated by the next open, or being written right now. They
    /// were never acknowledged as synced.
    pub unfinished_bytes: u64,
    pub problems: Vec<Problem>,
}

/// Bytes that differ from what was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Problem {
    /// `None` if it affects the whole topic.
    pub partition: Option<u32>,
    pub file: PathBuf,
    /// Position in the file.
    pub position: u64,
    /// The first unreadable offset; `None` if no message is affected.
    pub first_offset: Option<u64>,
    /// The last unreadable offset; `None` if unknown.
    pub last_offset: Option<u64>,
    pub what: String,
    /// Whether a repair can fix it.
    pub is_repairable: bool,
}

impl Problem {
    pub(crate) fn new(partition: Option<u32>, file: PathBuf, position: u64, what: impl Into<String>) -> Self {
        let (first_offset, last_offset) = (None, None);
        Self { partition, file, position, first_offset, last_offset, what: what.into(), is_repairable: true }
    }

    /// Sets the affected offsets: from `first` up to, and excluding, `next`. There may be none.
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

/// One line: `FILE, byte N: the damage (offsets M to N)`.
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

/// The result of reading every byte of one topic.
#[derive(Debug)]
pub(crate) struct Verified<'a> {
    /// Without the problems.
    pub(crate) report: Report,
    pub(crate) partitions: Vec<(PartitionContext<'a>, Findings)>,
    /// Damaged files of groups.
    pub(crate) groups: Vec<(GroupName, Problem)>,
    /// All other damage.
    pub(crate) problems: Vec<Problem>,
}

/// Verifies one topic, or all of them. Calls `progress` with the number of bytes read since the last call.
pub(crate) fn verify(
    folder: Folder<'_>,
    one: Option<&TopicName>,
    progress: &mut dyn FnMut(u64),
) -> Result<Vec<Report>> {
    let verify = |name: &TopicName| Ok(verify_topic(folder, name, progress)?.into_report());
    topics(folder, one)?.iter().map(verify).collect()
}

/// Returns the requested topic, or all, including topics of which only the progress of a group is left.
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

/// Whether a partition below `folder` has segments. An interrupted creation leaves none.
fn has_segments(disk: &dyn Disk, folder: &Path) -> Result<bool> {
    for name in durable::list(disk, folder)? {
        if durable::list(disk, &folder.join(name))?.iter().any(|file| file.ends_with(".segment")) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The size of all segments of one topic, or of all of them.
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
                    bytes += file.length().map_err(failed("read the size of", &path))?;
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
    // Read the groups before the partitions: their finished messages must be stored, even while more are written.
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
                let what = "the file no longer says where the partition starts";
                let problem = Problem::new(Some(partition), directory.join(start::NAME), 0, what);
                verified.problems.push(problem.beyond_repair());
                // Assume that retention removed what precedes the first segment, so that it is not reported as lost.
                segment::list(folder.disk, &directory)?.first().copied().unwrap_or_default()
            }
            start => start?.offset,
        };
        let context = PartitionContext {
            topic,
            partition,
            directory,
            start,
            furthest: finished.get(partition as usize).cloned().flatten(),
        };
        let findings = inspect(folder.disk, &context, &mut verified.report, progress)?;
        verified.partitions.push((context, findings));
    }
    Ok(verified)
}

/// By partition: the highest offset that a group has finished, if any, and its file.
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
                    let what = format!("the progress of group {group} cannot be read");
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

    /// Returns the count in `topic.json`, or the number of partition folders if it is unreadable.
    fn count_partitions(&mut self, disk: &dyn Disk, folder: &Path) -> Result<u32> {
        let what = match TopicFile::read(disk, folder) {
            Ok(Some(file)) => return Ok(file.partitions),
            Ok(None) => "the file is missing, so the folder is not a topic".to_owned(),
            Err(error) if error.kind() == ErrorKind::Corrupt => "the file no longer describes the topic".to_owned(),
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
