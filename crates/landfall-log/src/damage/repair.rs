//! Makes a damaged log usable again, on request.
//!
//! Everything that can still be read stays what and where it was. The offsets of what cannot be read are given up: a
//! *lost* batch takes their place, so that all others keep theirs and readers know that something was there. A damaged
//! file is kept aside as a whole before another takes its place.
//!
//! One segment after the other is replaced, each in one step. A repair that is interrupted leaves a log that is less
//! damaged than before, and the next one goes on from there.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use landfall_core::{Error, ErrorKind, Result, Timestamp, TopicName};
use serde::Serialize;
use tracing::warn;

use crate::damage::aside;
use crate::damage::inspect::{Examined, Findings, Place};
use crate::damage::links::State;
use crate::damage::verify::{Folder, Problem, topics, verify_topic};
use crate::damage::walk::{Piece, Walk};
use crate::disk::{Disk, SystemDisk};
use crate::durable;
use crate::format;
use crate::lock::FolderLock;
use crate::log::Log;
use crate::storage::batch::Batch;
use crate::storage::rewrite::Rewriter;
use crate::storage::segment::{self, Extent, SegmentHeader};
use crate::storage::tail;

/// A file that was repaired.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Repaired {
    pub topic: TopicName,
    /// `None` for the file of a group, which begins anew.
    pub partition: Option<u32>,
    pub file: PathBuf,
    /// What was wrong with it.
    pub problems: Vec<Problem>,
    /// Where the file is kept as it was found; `None` if there was none.
    pub kept: Option<PathBuf>,
    /// The offsets that were given up.
    pub lost: Vec<Lost>,
}

/// Offsets that hold nothing any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Lost {
    pub first_offset: u64,
    pub last_offset: u64,
}

impl Lost {
    /// How many offsets that are.
    pub fn count(&self) -> u64 {
        self.last_offset - self.first_offset + 1
    }
}

impl Log {
    /// Repairs one topic, or all of them, of the log in the folder `dir`; answers with what was done, which is nothing
    /// where nothing is wrong. Refused as `InUse` while the log is open. Blocks while it reads everything.
    ///
    /// What is damaged is kept below `damaged` in the same folder, and stays there until somebody removes it.
    pub fn repair(dir: impl AsRef<Path>, topic: Option<&TopicName>) -> Result<Vec<Repaired>> {
        let root = dir.as_ref();
        check_format(&SystemDisk, root)?;
        let _held = FolderLock::acquire(root)?;
        repair(Folder { disk: &SystemDisk, root }, topic)
    }

    /// The same on another disk, which is the caller's alone. For tests of what a disk may do.
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
        finish_tails(folder, topic, &mut repaired)?;
        let verified = verify_topic(folder, topic, &mut |_| {})?;
        for (place, findings) in verified.partitions.into_iter().filter(|(_, findings)| !findings.needs_a_person) {
            Partition { folder, place }.repair(findings, &mut repaired)?;
        }
        for (group, problem) in verified.groups {
            let file = problem.file.clone();
            let names = [topic.as_str(), "groups", &format!("{group}.json")];
            let kept = Some(aside::keep(folder.disk, folder.root, names, &file)?);
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

/// Puts the last batches of each partition in their place where a recovery was interrupted in it. What is kept of them
/// and cannot be used is put aside.
fn finish_tails(folder: Folder<'_>, topic: &TopicName, repaired: &mut Vec<Repaired>) -> Result<()> {
    let Folder { disk, root } = folder;
    let topic_folder = root.join("topics").join(topic.as_str());
    for name in durable::list(disk, &topic_folder)? {
        let Ok(partition) = name.parse::<u32>() else { continue };
        let directory = topic_folder.join(&name);
        match tail::finish(disk, &directory) {
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                let file = tail::path(&directory);
                let kept = Some(aside::keep(disk, root, [topic.as_str(), &name, "tail"], &file)?);
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
    place: Place<'a>,
}

impl Partition<'_> {
    fn repair(&self, findings: Findings, repaired: &mut Vec<Repaired>) -> Result<()> {
        let Place { directory, start, furthest, .. } = &self.place;
        let created: Vec<_> =
            findings.segments.iter().map(|segment| segment.link.header().map(|h| h.created)).collect();
        let mut previous = None;
        for (index, segment) in findings.segments.iter().enumerate() {
            if !segment.problems.is_empty() {
                // What takes the place of a missing one is as old as what comes after it, for want of anything better.
                let created = created[index..].iter().flatten().next().copied().unwrap_or_else(Timestamp::now);
                repaired.push(self.replace(segment, previous, created)?);
            }
            previous = Some(segment.link.extent());
        }
        let problems: Vec<_> = findings.problems.into_iter().filter(|problem| problem.is_repairable).collect();
        if problems.is_empty() {
            return Ok(());
        }
        // There is no segment at all. Without a group that has come further nobody knows of anything that was there.
        durable::create_directory(self.folder.disk, directory)?;
        let mut lost = Vec::new();
        if let Some((finished, _)) = furthest.as_ref().filter(|(finished, _)| finished > start) {
            let header = SegmentHeader::new(self.place.partition, *start, None);
            let mut rewriter = Rewriter::create(self.folder.disk, directory, header)?;
            give_up(&mut rewriter, *finished, header.created.as_millis(), &mut lost)?;
            rewriter.finish()?;
        }
        let (topic, partition, file) = (self.place.topic.clone(), Some(self.place.partition), directory.clone());
        repaired.push(Repaired { topic, partition, file, problems, kept: None, lost });
        Ok(())
    }

    /// Puts what can be read of a segment in its place.
    fn replace(&self, segment: &Examined, previous: Option<Extent>, created: Timestamp) -> Result<Repaired> {
        let Place { topic, partition, directory, .. } = &self.place;
        let Folder { disk, root } = self.folder;
        let (link, path) = (&segment.link, segment::path(directory, segment.link.base_offset));
        let kept = match &link.state {
            State::Missing => None,
            State::Whole(_) | State::Headless { .. } => {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                Some(aside::keep(disk, root, [topic.as_str(), &partition.to_string(), &name], &path)?)
            }
        };
        let header = SegmentHeader {
            created: link.header().map_or(created, |header| header.created),
            ..SegmentHeader::new(*partition, link.base_offset, link.header().map_or(previous, |header| header.previous))
        };
        let mut rewriter = match link.limit {
            Some(_) => Rewriter::begin(disk, directory, &header, link.claimed_bytes)?,
            // The last one goes on growing; the next one will name the size that it then has.
            None => Rewriter::create(disk, directory, header)?,
        };
        let mut lost = Vec::new();
        let mut taken = header.created.as_millis();
        if let Some(reader) = link.reader(disk, directory)? {
            let mut walk = Walk::new(reader, link.limit)?;
            loop {
                match walk.next()? {
                    Piece::Batch(batch) => {
                        give_up(&mut rewriter, batch.header.base_offset, taken, &mut lost)?;
                        rewriter.batch(&batch.header, &records_of(&batch))?;
                        taken = batch.header.taken;
                    }
                    // Its offsets are given up before the next batch, or at the end.
                    Piece::Hole(_) | Piece::Unfinished { .. } => {}
                    Piece::Overlap(hole) => return Err(durable::damaged(&path, hole.position, hole.what)),
                    Piece::End => break,
                }
            }
        }
        give_up(&mut rewriter, segment.next_offset, taken, &mut lost)?;
        rewriter.finish()?;
        let (topic, partition) = (TopicName::clone(topic), Some(*partition));
        let problems = segment.problems.clone();
        Ok(Repaired { topic, partition, file: path, problems, kept, lost })
    }
}

/// Gives up the offsets before `next_offset` that nothing was written for.
fn give_up(rewriter: &mut Rewriter<'_>, next_offset: u64, taken: i64, lost: &mut Vec<Lost>) -> Result<()> {
    let first_offset = rewriter.next_offset();
    if first_offset < next_offset {
        lost.push(Lost { first_offset, last_offset: next_offset - 1 });
        rewriter.lost_up_to(next_offset, taken)?;
    }
    Ok(())
}

/// The records as they stood in the batch.
fn records_of(batch: &Batch) -> Vec<u8> {
    let mut records = Vec::with_capacity(batch.header.length as usize);
    for body in batch.records.iter().filter(|_| !batch.header.is_lost()).map(|record| record.body()) {
        records.extend_from_slice(&(body.len() as u32).to_le_bytes());
        records.extend_from_slice(body);
    }
    records
}
