//! Reads every byte of one partition and reports all damage. Changes nothing.

use std::path::{Path, PathBuf};

use landfall_core::{ErrorKind, Result, TopicName};

use crate::damage::chain::{SegmentLink, State, read_chain};
use crate::damage::scan::{Hole, Piece, SegmentScan};
use crate::damage::verify::{Problem, Report};
use crate::disk::Disk;
use crate::durable;
use crate::storage::batch::Batch;
use crate::storage::segment::{self, Extent};
use crate::storage::tail::{self, TailBackup};

/// A partition, and the facts about it from other files.
#[derive(Debug)]
pub(crate) struct PartitionContext<'a> {
    pub(crate) topic: &'a TopicName,
    pub(crate) partition: u32,
    pub(crate) directory: PathBuf,
    /// Retention removed everything below.
    pub(crate) start: u64,
    /// The highest offset that a group has finished, and the file that says so.
    pub(crate) furthest: Option<(u64, PathBuf)>,
}

/// A segment that exists or should exist.
#[derive(Debug)]
pub(crate) struct InspectedSegment {
    pub(crate) link: SegmentLink,
    /// Its damage, which requires a rewrite.
    pub(crate) problems: Vec<Problem>,
    /// The offset after everything that it holds or is known to have held.
    pub(crate) next_offset: u64,
    /// The end of its last good batch.
    position: u64,
}

/// The result of inspecting a partition.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    pub(crate) segments: Vec<InspectedSegment>,
    /// Damage outside of the segments.
    pub(crate) problems: Vec<Problem>,
    /// A repair would have to choose between messages, so an operator must decide.
    pub(crate) needs_operator: bool,
}

/// Inspects the partition at `context`. Adds its content to `report`, but not its damage.
pub(crate) fn inspect(
    disk: &dyn Disk,
    context: &PartitionContext<'_>,
    report: &mut Report,
    progress: &mut dyn FnMut(u64),
) -> Result<Findings> {
    let mut findings = Findings::default();
    if !durable::is_directory(disk, &context.directory)? {
        let what = "the folder of the partition is missing";
        findings.problems.push(context.problem(context.directory.clone(), 0, what).with_offsets(context.start, None));
    } else {
        let tail = match TailBackup::load(disk, &context.directory) {
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                let problem = context.problem(tail::path(&context.directory), 0, error.to_string());
                findings.problems.push(problem);
                None
            }
            tail => tail?,
        };
        match read_chain(disk, &context.directory, context.partition, context.start, tail) {
            Ok(links) => context.inspect_chain(disk, links, &mut findings, report, progress)?,
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                let problem = context.problem(context.directory.clone(), 0, error.to_string());
                findings.problems.push(problem.beyond_repair());
                findings.needs_operator = true;
            }
            Err(error) => return Err(error),
        }
    }
    if !findings.needs_operator {
        context.compare_with_groups(&mut findings);
    }
    Ok(findings)
}

impl PartitionContext<'_> {
    pub(crate) fn problem(&self, file: PathBuf, position: u64, what: impl Into<String>) -> Problem {
        Problem::new(Some(self.partition), file, position, what)
    }

    fn inspect_chain(
        &self,
        disk: &dyn Disk,
        links: Vec<SegmentLink>,
        findings: &mut Findings,
        report: &mut Report,
        progress: &mut dyn FnMut(u64),
    ) -> Result<()> {
        let mut previous = None;
        for link in links {
            if let Some(problem) = self.chain_break(previous, &link) {
                findings.problems.push(problem.beyond_repair());
                findings.needs_operator = true;
            }
            previous = Some(link.extent());
            let inspected = self.inspect_segment(disk, link, findings, report, progress)?;
            findings.segments.push(inspected);
        }
        Ok(())
    }

    /// Detects what missing segments do not explain: files of different logs, or of different times, in one folder.
    fn chain_break(&self, previous: Option<Extent>, link: &SegmentLink) -> Option<Problem> {
        let named = link.header()?.previous.map(|previous| previous.base_offset);
        let found = previous.map(|previous| previous.base_offset);
        let is_first = previous.is_none() && self.start > 0;
        if named == found || is_first {
            return None;
        }
        let described =
            |offset: Option<u64>| offset.map_or("no segment".to_owned(), |offset| format!("the one from {offset}"));
        let what = format!("it continues {}, but its predecessor is {}", described(named), described(found));
        Some(self.problem(segment::path(&self.directory, link.base_offset), 0, what))
    }

    fn inspect_segment(
        &self,
        disk: &dyn Disk,
        link: SegmentLink,
        findings: &mut Findings,
        report: &mut Report,
        progress: &mut dyn FnMut(u64),
    ) -> Result<InspectedSegment> {
        let path = segment::path(&self.directory, link.base_offset);
        let mut problems = Vec::new();
        match &link.state {
            State::Whole(_) => {}
            State::Headless { known: Some(_), why } => {
                problems.push(self.problem(path.clone(), 0, format!("{why}; its batches can still be read")));
            }
            State::Headless { known: None, why } => {
                problems.push(self.problem(path.clone(), 0, why).with_offsets(link.base_offset, link.limit));
            }
            State::Missing => {
                let problem = self.problem(path.clone(), 0, "the segment is missing");
                problems.push(problem.with_offsets(link.base_offset, link.limit));
            }
        }
        let Some(reader) = link.reader(disk, &self.directory)? else {
            let next_offset = link.limit.unwrap_or(link.base_offset);
            return Ok(InspectedSegment { link, problems, next_offset, position: 0 });
        };
        let mut scan = SegmentScan::new(reader, link.limit)?;
        let (mut reported, mut position, mut next_offset) = (0, segment::HEADER_BYTES as u64, link.base_offset);
        report.segments += 1;
        loop {
            let piece = scan.next()?;
            let reached = scan.position();
            progress(reached - reported);
            reported = reached;
            match piece {
                Piece::Batch(batch) => {
                    (position, next_offset) = (reached, batch.header.next_offset());
                    self.count(&batch, &path, findings, report);
                }
                Piece::Hole(hole) => {
                    next_offset = hole.next_offset.unwrap_or(next_offset);
                    problems.push(self.hole_problem(&path, hole));
                }
                Piece::Overlap(hole) => {
                    findings.problems.push(self.hole_problem(&path, hole).beyond_repair());
                    findings.needs_operator = true;
                }
                Piece::Unfinished { bytes } => report.unfinished_bytes += bytes,
                Piece::End => break,
            }
        }
        report.bytes += reported;
        if problems.is_empty() {
            problems.extend(self.size_problem(&link, &path, position, next_offset));
        }
        Ok(InspectedSegment { link, problems, next_offset, position })
    }

    fn hole_problem(&self, path: &Path, hole: Hole) -> Problem {
        let Hole { position, first_offset, next_offset, what } = hole;
        self.problem(path.to_owned(), position, what).with_offsets(first_offset, next_offset)
    }

    fn count(&self, batch: &Batch, path: &Path, findings: &mut Findings, report: &mut Report) {
        report.batches += 1;
        if batch.header.is_lost() {
            report.lost += u64::from(batch.header.count);
            return;
        }
        for record in &batch.records {
            if record.is_removed() {
                report.removed += 1;
                continue;
            }
            match record.message(self.topic) {
                Ok(_) => report.messages += 1,
                // It was stored this way, so there is nothing to repair; readers get the same error.
                Err(error) => {
                    let what = format!("a stored record is not a message: {error}");
                    let problem = self.problem(path.to_owned(), batch.position, what).beyond_repair();
                    findings.problems.push(problem.with_offsets(record.offset, Some(record.offset + 1)));
                }
            }
        }
    }

    /// Checks the size of a segment whose batches are all right.
    fn size_problem(&self, link: &SegmentLink, path: &Path, position: u64, next_offset: u64) -> Option<Problem> {
        let header = link.header()?;
        if link.own_bytes != link.recorded_bytes {
            let what = format!(
                "the segment has {} bytes, but the next one says that it has {}",
                link.own_bytes, link.recorded_bytes
            );
            return Some(self.problem(path.to_owned(), position, what));
        }
        if link.limit.is_none() && header.original_bytes.is_some() {
            let what = "the segment that followed this one when it was rewritten is missing";
            return Some(self.problem(path.to_owned(), position, what).with_offsets(next_offset, None));
        }
        None
    }

    /// A group that has finished more than is stored proves that messages are missing.
    fn compare_with_groups(&self, findings: &mut Findings) {
        let Some((finished, file)) = &self.furthest else { return };
        let end = findings.segments.last().map_or(self.start, |last| last.next_offset);
        if *finished <= end {
            return;
        }
        let what = format!("{} says that everything before offset {finished} was finished", file.display());
        let Some(last) = findings.segments.last_mut() else {
            let problem = self.problem(self.directory.clone(), 0, what);
            return findings.problems.push(problem.with_offsets(end, Some(*finished)));
        };
        last.next_offset = *finished;
        match last.problems.last_mut() {
            Some(problem) if problem.first_offset.is_some() && problem.last_offset.is_none() => {
                problem.last_offset = Some(finished - 1);
            }
            _ => {
                let path = segment::path(&self.directory, last.link.base_offset);
                let problem = self.problem(path, last.position, what).with_offsets(end, Some(*finished));
                last.problems.push(problem);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use landfall_core::{MessageId, Timestamp};

    use super::*;
    use crate::disk::SystemDisk;
    use crate::storage::batch::BatchHeader;
    use crate::storage::record;
    use crate::storage::rewrite::Rewriter;
    use crate::storage::segment::SegmentHeader;

    fn inspected(directory: &Path, start: u64) -> (Findings, Report) {
        let topic = TopicName::new("orders").unwrap();
        let context =
            PartitionContext { topic: &topic, partition: 0, directory: directory.to_owned(), start, furthest: None };
        let mut report = Report::new(&topic);
        let findings = inspect(&SystemDisk, &context, &mut report, &mut |_| {}).unwrap();
        (findings, report)
    }

    fn segment(directory: &Path, base_offset: u64, previous: Extent, end: u64) -> Extent {
        let header = SegmentHeader::new(0, base_offset, Some(previous));
        let mut rewriter = Rewriter::create(&SystemDisk, directory, header).unwrap();
        rewriter.mark_lost_up_to(end, 0).unwrap();
        rewriter.finish().unwrap()
    }

    #[test]
    fn only_offsets_from_the_start_on_can_be_missing() {
        let folder = tempfile::tempdir().unwrap();
        let first = segment(folder.path(), 10, Extent { base_offset: 4, bytes: 500 }, 15);
        segment(folder.path(), 15, first, 20);
        for (start, missing) in [(12, vec![]), (10, vec![]), (4, vec![(4, 9)]), (2, vec![(2, 3), (4, 9)])] {
            let (findings, report) = inspected(folder.path(), start);
            let problems = findings.segments.iter().flat_map(|segment| &segment.problems);
            let found: Vec<_> = problems.map(|one| (one.first_offset.unwrap(), one.last_offset.unwrap())).collect();
            assert_eq!((found, findings.problems.len(), report.lost), (missing, 0, 10), "start {start}");
        }
    }

    #[test]
    fn removed_records_are_counted_and_invalid_ones_reported() {
        let folder = tempfile::tempdir().unwrap();
        let (mut records, header) = (Vec::new(), SegmentHeader::new(0, 0, None));
        record::encode_removed(MessageId::from_bytes([1; 16]), &mut records);
        records.extend_from_slice(&[1, 0, 0, 0, 0xf0]);
        let appended_at = Timestamp::now().as_millis();
        let batch = BatchHeader { flags: 0, ..BatchHeader::lost(0, 2, appended_at) };
        let mut rewriter = Rewriter::create(&SystemDisk, folder.path(), header).unwrap();
        rewriter.batch(&batch, &records).unwrap();
        rewriter.finish().unwrap();

        let (findings, report) = inspected(folder.path(), 0);
        assert_eq!((report.removed, report.messages, report.lost), (1, 0, 0));
        assert!(!findings.needs_operator && findings.segments[0].problems.is_empty());
        let [problem] = &findings.problems[..] else { panic!("{:?}", findings.problems) };
        assert_eq!((problem.first_offset, problem.is_repairable), (Some(1), false));
    }
}
