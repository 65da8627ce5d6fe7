//! Repairs a damaged log on request.
//!
//! Everything that can be read keeps its content and its offset. Unreadable offsets are given up: a *lost* batch
//! replaces them, so that all other offsets stay and readers know about the loss. A damaged file is copied before it
//! is replaced.
//!
//! Segments are replaced one at a time, each atomically. An interrupted repair leaves a log with less damage than
//! before, and the next repair continues from there.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use landfall_core::{Error, ErrorKind, Result, Timestamp, TopicName};
use serde::Serialize;
use tracing::warn;

use crate::damage::chain::State;
use crate::damage::inspect::{Findings, InspectedSegment, PartitionContext};
use crate::damage::quarantine;
use crate::damage::scan::{Piece, SegmentScan};
use crate::damage::verify::{Folder, Problem, topics, verify_topic};
use crate::disk::{Disk, SystemDisk};
use crate::durable;
use crate::format;
use crate::lock::FolderLock;
use crate::log::Log;
use crate::storage::batch::Batch;
use crate::storage::rewrite::Rewriter;
use crate::storage::segment::{self, Extent, SegmentHeader};
use crate::storage::tail;

/// A repaired file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Repaired {
    pub topic: TopicName,
    /// `None` for the file of a group, which restarts from the beginning.
    pub partition: Option<u32>,
    pub file: PathBuf,
    /// Its damage.
    pub problems: Vec<Problem>,
    /// The copy of the damaged file; `None` if the file was missing.
    pub kept: Option<PathBuf>,
    /// The offsets that were given up.
    pub lost: Vec<Lost>,
}

/// A range of lost offsets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Lost {
    pub first_offset: u64,
    pub last_offset: u64,
}

impl Lost {
    /// The number of lost offsets.
    pub fn count(&self) -> u64 {
        self.last_offset - self.first_offset + 1
    }
}

impl Log {
    /// Repairs one topic, or all of them, of the log in the folder `dir`. Returns what was done; empty if nothing is
    /// damaged. `InUse` while the log is open. Blocks while it reads everything.
    ///
    /// Damaged files are copied below `damaged` in the same folder, and stay there until an operator removes them.
    pub fn repair(dir: impl AsRef<Path>, topic: Option<&TopicName>) -> Result<Vec<Repaired>> {
        let root = dir.as_ref();
        check_format(&SystemDisk, root)?;
        let _lock = FolderLock::acquire(root)?;
        repair(Folder { disk: &SystemDisk, root }, topic)
    }

    /// The same on another disk, without a lock; the caller guarantees exclusive access. For fault-injection tests.
    pub fn repair_on(disk: Arc<dyn Disk>, dir: impl AsRef<Path>, topic: Option<&TopicName>) -> Result<Vec<Repaired>> {
        check_format(&*disk, dir.as_ref())?;
        repair(Folder { disk: &*disk, root: dir.as_ref() }, topic)
    }
}

fn check_format(disk: &dyn Disk, root: &Path) -> Result<()> {
    match format::check(disk, root)? {
        true => Ok(()),
        false => Err(Error::new(ErrorKind::NotFound, format!("there is no log in the folder {}", root.display()))),
    }
}

fn repair(folder: Folder<'_>, one: Option<&TopicName>) -> Result<Vec<Repaired>> {
    let mut repaired = Vec::new();
    for topic in &topics(folder, one)? {
        restore_tails(folder, topic, &mut repaired)?;
        let verified = verify_topic(folder, topic, &mut |_| {})?;
        for (context, findings) in verified.partitions.into_iter().filter(|(_, findings)| !findings.needs_operator) {
            Partition { folder, context }.repair(findings, &mut repaired)?;
        }
        for (group, problem) in verified.groups {
            let file = problem.file.clone();
            let names = [topic.as_str(), "groups", &format!("{group}.json")];
            let kept = Some(quarantine::copy(folder.disk, folder.root, names, &file)?);
            durable::remove(folder.disk, &file)?;
            let (topic, problems, lost) = (topic.clone(), vec![problem], Vec::new());
            repaired.push(Repaired { topic, partition: None, file, problems, kept, lost });
        }
    }
    for Repaired { file, kept, lost, .. } in &repaired {
        let lost: u64 = lost.iter().map(Lost::count).sum();
        warn!(file = %file.display(), kept = ?kept, lost, "repaired a damaged file");
    }
    Ok(repaired)
}

/// Restores the backup of each partition's last batches where a recovery was interrupted. Quarantines an unusable
/// backup.
fn restore_tails(folder: Folder<'_>, topic: &TopicName, repaired: &mut Vec<Repaired>) -> Result<()> {
    let Folder { disk, root } = folder;
    let topic_folder = root.join("topics").join(topic.as_str());
    for name in durable::list(disk, &topic_folder)? {
        let Ok(partition) = name.parse::<u32>() else { continue };
        let directory = topic_folder.join(&name);
        match tail::restore(disk, &directory) {
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                let file = tail::path(&directory);
                let kept = Some(quarantine::copy(disk, root, [topic.as_str(), &name, "tail"], &file)?);
                durable::remove(disk, &file)?;
                let problems = vec![Problem::new(Some(partition), file.clone(), 0, error.to_string())];
                let (topic, partition, lost) = (topic.clone(), Some(partition), Vec::new());
                repaired.push(Repaired { topic, partition, file, problems, kept, lost });
            }
            finished => finished?,
        }
    }
    Ok(())
}

/// A partition that is being repaired.
struct Partition<'a> {
    folder: Folder<'a>,
    context: PartitionContext<'a>,
}

impl Partition<'_> {
    fn repair(&self, findings: Findings, repaired: &mut Vec<Repaired>) -> Result<()> {
        let PartitionContext { directory, start, furthest, .. } = &self.context;
        let created: Vec<_> =
            findings.segments.iter().map(|segment| segment.link.header().map(|h| h.created)).collect();
        let mut previous = None;
        for (index, segment) in findings.segments.iter().enumerate() {
            if !segment.problems.is_empty() {
                // The replacement of a missing segment gets the creation time of the next known one.
                let created = created[index..].iter().flatten().next().copied().unwrap_or_else(Timestamp::now);
                repaired.push(self.replace(segment, previous, created)?);
            }
            previous = Some(segment.link.extent());
        }
        let problems: Vec<_> = findings.problems.into_iter().filter(|problem| problem.is_repairable).collect();
        if problems.is_empty() {
            return Ok(());
        }
        // There is no segment at all. Only a group's progress can show that there were messages.
        durable::create_directory(self.folder.disk, directory)?;
        let mut lost = Vec::new();
        if let Some((finished, _)) = furthest.as_ref().filter(|(finished, _)| finished > start) {
            let header = SegmentHeader::new(self.context.partition, *start, None);
            let mut rewriter = Rewriter::create(self.folder.disk, directory, header)?;
            mark_lost(&mut rewriter, *finished, header.created.as_millis(), &mut lost)?;
            rewriter.finish()?;
        }
        let (topic, partition, file) = (self.context.topic.clone(), Some(self.context.partition), directory.clone());
        repaired.push(Repaired { topic, partition, file, problems, kept: None, lost });
        Ok(())
    }

    /// Replaces a segment by its readable content.
    fn replace(&self, segment: &InspectedSegment, previous: Option<Extent>, created: Timestamp) -> Result<Repaired> {
        let PartitionContext { topic, partition, directory, .. } = &self.context;
        let Folder { disk, root } = self.folder;
        let (link, path) = (&segment.link, segment::path(directory, segment.link.base_offset));
        let kept = match &link.state {
            State::Missing => None,
            State::Whole(_) | State::Headless { .. } => {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                Some(quarantine::copy(disk, root, [topic.as_str(), &partition.to_string(), &name], &path)?)
            }
        };
        let header = SegmentHeader {
            created: link.header().map_or(created, |header| header.created),
            ..SegmentHeader::new(*partition, link.base_offset, link.header().map_or(previous, |header| header.previous))
        };
        let mut rewriter = match link.limit {
            Some(_) => Rewriter::begin(disk, directory, &header, link.recorded_bytes)?,
            // The last segment grows again; its successor will record its final size.
            None => Rewriter::create(disk, directory, header)?,
        };
        let mut lost = Vec::new();
        let mut appended_at = header.created.as_millis();
        if let Some(reader) = link.reader(disk, directory)? {
            let mut scan = SegmentScan::new(reader, link.limit)?;
            loop {
                match scan.next()? {
                    Piece::Batch(batch) => {
                        mark_lost(&mut rewriter, batch.header.base_offset, appended_at, &mut lost)?;
                        rewriter.batch(&batch.header, &encoded_records(&batch))?;
                        appended_at = batch.header.appended_at;
                    }
                    // Its offsets are given up before the next batch, or at the end.
                    Piece::Hole(_) | Piece::Unfinished { .. } => {}
                    Piece::Overlap(hole) => return Err(durable::damaged(&path, hole.position, hole.what)),
                    Piece::End => break,
                }
            }
        }
        mark_lost(&mut rewriter, segment.next_offset, appended_at, &mut lost)?;
        rewriter.finish()?;
        let (topic, partition) = (TopicName::clone(topic), Some(*partition));
        let problems = segment.problems.clone();
        Ok(Repaired { topic, partition, file: path, problems, kept, lost })
    }
}

/// Marks the missing offsets before `next_offset` as lost.
fn mark_lost(rewriter: &mut Rewriter<'_>, next_offset: u64, appended_at: i64, lost: &mut Vec<Lost>) -> Result<()> {
    let first_offset = rewriter.next_offset();
    if first_offset < next_offset {
        lost.push(Lost { first_offset, last_offset: next_offset - 1 });
        rewriter.mark_lost_up_to(next_offset, appended_at)?;
    }
    Ok(())
}

/// Returns the records as they were stored in the batch.
fn encoded_records(batch: &Batch) -> Vec<u8> {
    let mut records = Vec::with_capacity(batch.header.length as usize);
    for body in batch.records.iter().filter(|_| !batch.header.is_lost()).map(|record| record.body()) {
        records.extend_from_slice(&(body.len() as u32).to_le_bytes());
        records.extend_from_slice(body);
    }
    records
}
