//! `landfall topic verify`.

use std::io::IsTerminal;

use clap::Args;
use indicatif::{HumanBytes, HumanCount, ProgressBar, ProgressStyle};
use landfall::TopicName;
use landfall::log::{Lost, Problem, Repaired, Report};

use super::confirm::confirm;
use crate::config::Config;
use crate::error::{Error, Result};
use crate::output::{Output, shown};
use crate::stores::broker;

/// Read every byte of the embedded log and say what is damaged, in which file and at which byte.
///
/// Works beside a running daemon, and changes nothing. What a crash left unfinished at the end of a log is no damage:
/// nobody was told that it is there, and the next start cuts it off.
///
/// With --repair what is damaged is made usable again: whatever can be read stays where it is, the offsets of what
/// cannot be read are given up as lost and passed over by every reader, and each damaged file is kept, as it was found,
/// in the folder "damaged" of the log. Stop the daemon first. If you have a backup of the damaged files, put them
/// back instead: a repair cannot bring a message back.
///
/// Exit code 0 if nothing is wrong, or nothing any more; 1 if something is.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  landfall topic verify
  landfall topic verify orders --json | jq '.problems[] | {file, position, first_offset, last_offset}'
  landfall topic verify --broker-url log:/var/lib/landfall/log
  landfall topic verify orders --repair")]
pub(super) struct Verify {
    /// Only this topic.
    topic: Option<TopicName>,
    /// Make what is damaged usable again, without what cannot be read.
    #[arg(long)]
    repair: bool,
    /// Do not ask before a repair.
    #[arg(long, requires = "repair")]
    yes: bool,
    /// One JSON object a line, one for each topic: topic, segments, batches, messages, removed, lost, bytes,
    /// unfinished_bytes, problems. With --repair one for each repaired file: topic, partition, file, problems, kept,
    /// lost.
    #[arg(long)]
    json: bool,
}

impl Verify {
    pub(super) async fn run(self, config: &Config) -> Result<()> {
        let can_ask = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
        if self.repair && !self.yes && !can_ask {
            return Err(Error::wrong_use("--repair gives up what cannot be read; say --yes where nobody can be asked"));
        }
        let reports = self.verify(config).await?;
        let mut output = Output::new();
        for report in &reports {
            self.print(&mut output, report)?;
        }
        output.flush()?;
        let problems = || reports.iter().flat_map(|report| &report.problems);
        let (found, repairable) = (problems().count(), problems().filter(|problem| problem.is_repairable).count());
        match (found, repairable) {
            (0, _) => Ok(()),
            (_, 0) => Err(Error::not_so(format!("{}; none of it can be repaired here", counted(found)))),
            _ if !self.repair => Err(Error::not_so(format!(
                "{}; put the files back from a backup, or let --repair give up what cannot be read",
                counted(found)
            ))),
            _ => {
                confirm(self.yes, &warning(problems()))?;
                self.repair(config, &mut output).await
            }
        }
    }

    async fn verify(&self, config: &Config) -> Result<Vec<Report>> {
        let files = broker::files(config)?;
        // Draws nothing where stderr is not a terminal.
        let bar = ProgressBar::new(files.bytes(self.topic.as_ref()).await?);
        if let Ok(style) = ProgressStyle::with_template("  {wide_bar:.cyan/blue} {bytes} of {total_bytes}  {elapsed}") {
            bar.set_style(style);
        }
        let progress = bar.clone();
        let reports = files.verify(self.topic.as_ref(), Box::new(move |bytes| progress.inc(bytes))).await;
        bar.finish_and_clear();
        Ok(reports?)
    }

    async fn repair(&self, config: &Config, output: &mut Output) -> Result<()> {
        for repaired in broker::files(config)?.repair(self.topic.as_ref()).await? {
            if self.json {
                output.json(&repaired)?;
            } else {
                output.line(&shown(&told(&repaired)))?;
            }
        }
        output.flush()?;
        let left: usize = self.verify(config).await?.iter().map(|report| report.problems.len()).sum();
        match left {
            0 => Ok(()),
            _ => Err(Error::not_so(format!("{} could not be repaired here", counted(left)))),
        }
    }

    /// A line for each problem and one for the topic. With `--repair --json` stdout is for what was repaired.
    fn print(&self, output: &mut Output, report: &Report) -> Result<()> {
        if self.json {
            return if self.repair { Ok(()) } else { output.json(report) };
        }
        for problem in &report.problems {
            output.line(&shown(&problem.to_string()))?;
        }
        output.line(&summary(report))
    }
}

fn summary(report: &Report) -> String {
    let problems = if report.problems.is_empty() { "no problem".to_owned() } else { counted(report.problems.len()) };
    let mut line = format!(
        "{}: {problems}; messages: {}, segments: {}, {}",
        report.topic,
        HumanCount(report.messages),
        HumanCount(report.segments),
        HumanBytes(report.bytes)
    );
    if report.removed > 0 {
        line += &format!("; {} removed by compaction", HumanCount(report.removed));
    }
    if report.lost > 0 {
        line += &format!("; {} given up as lost by earlier repairs", HumanCount(report.lost));
    }
    if report.unfinished_bytes > 0 {
        line += &format!("; {} at the end were never finished", HumanBytes(report.unfinished_bytes));
    }
    line
}

/// What a repair will cost, before it is done.
fn warning<'a>(problems: impl Iterator<Item = &'a Problem>) -> String {
    let (mut lost, mut is_open_ended) = (0, false);
    for problem in problems.filter(|problem| problem.is_repairable) {
        match (problem.first_offset, problem.last_offset) {
            (Some(first), Some(last)) => lost += last - first + 1,
            (Some(_), None) => is_open_ended = true,
            (None, _) => {}
        }
    }
    let more = if is_open_ended { ", and what may have followed at the end," } else { "" };
    let offsets = if lost == 1 { "offset" } else { "offsets" };
    format!("a repair gives up {} {offsets}{more} for good; the damaged files are kept aside", HumanCount(lost))
}

/// What was done to one file.
fn told(repaired: &Repaired) -> String {
    let mut line = repaired.file.display().to_string();
    let range = |lost: &Lost| match (lost.first_offset, lost.last_offset) {
        (first, last) if first == last => first.to_string(),
        (first, last) => format!("{first} to {last}"),
    };
    let ranges: Vec<_> = repaired.lost.iter().map(range).collect();
    let is_cut = repaired.problems.iter().any(|one| one.first_offset.is_some() && one.last_offset.is_none());
    line += match (repaired.partition, ranges.is_empty() && !is_cut) {
        (None, _) => " was put aside, and the group begins anew",
        (Some(_), true) => " was repaired; nothing is lost",
        (Some(_), false) => " was repaired",
    };
    if !ranges.is_empty() {
        line += &format!("; lost offsets: {}", ranges.join(", "));
    }
    if is_cut {
        line += "; what could not be read at its end is cut off";
    }
    if let Some(kept) = &repaired.kept {
        line += &format!("; as it was found it is kept in {}", kept.display());
    }
    line
}

fn counted(problems: usize) -> String {
    if problems == 1 { "1 problem".to_owned() } else { format!("{problems} problems") }
}
