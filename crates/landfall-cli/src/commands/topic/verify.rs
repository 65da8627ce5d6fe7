//! `landfall topic verify`.

use std::io::IsTerminal;

use clap::Args;
use indicatif::{HumanBytes, HumanCount, ProgressBar, ProgressStyle};
use landfall::TopicName;
use landfall::log::{Lost, Problem, Repaired, Report};

use super::confirm::confirm;
use crate::config::Config;
use crate::error::{Error, Result};
use crate::output::{Output, escaped};
use crate::stores::broker;

/// Check every byte of the embedded log, report damage by file and byte, and repair it on request.
///
/// Without --repair it changes nothing and works beside a running daemon. An unfinished write at the end of a log, as a
/// crash leaves it, is no damage: it was never acknowledged, and the next start removes it.
///
/// With --repair, readable messages stay in place. The offsets of unreadable ones are marked as lost, and readers skip
/// them. Each damaged file is kept unchanged in the folder "damaged" of the log. Stop the daemon first. If you have a
/// backup of the damaged files, restore it instead: a repair cannot recover a message.
///
/// Exit code 0 if there is no damage or all of it was repaired, else 1.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  landfall topic verify
  landfall topic verify orders --json | jq '.problems[] | {file, position, first_offset, last_offset}'
  landfall topic verify --broker-url log:/var/lib/landfall/log
  landfall topic verify orders --repair")]
pub(super) struct Verify {
    /// Check only this topic.
    topic: Option<TopicName>,
    /// Repair damaged files; gives up unreadable messages.
    #[arg(long)]
    repair: bool,
    /// Repair without confirmation.
    #[arg(long, requires = "repair")]
    yes: bool,
    /// Print one JSON object per line and topic: topic, segments, batches, messages, removed, lost, bytes,
    /// unfinished_bytes, problems. With --repair, one per repaired file: topic, partition, file, problems, kept, lost.
    #[arg(long)]
    json: bool,
}

impl Verify {
    pub(super) async fn run(self, config: &Config) -> Result<()> {
        let can_ask = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
        if self.repair && !self.yes && !can_ask {
            return Err(Error::usage("--repair gives up unreadable messages; confirm with --yes without a terminal"));
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
            (_, 0) => Err(Error::failed(format!("{}; --repair cannot repair any of it", problem_count(found)))),
            _ if !self.repair => Err(Error::failed(format!(
                "{}; restore the files from a backup, or use --repair, which gives up unreadable messages",
                problem_count(found)
            ))),
            _ => {
                confirm(self.yes, &warning(problems()))?;
                self.repair(config, &mut output).await
            }
        }
    }

    async fn verify(&self, config: &Config) -> Result<Vec<Report>> {
        let files = broker::files(config)?;
        // Draws nothing if stderr is not a terminal.
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
                output.line(&escaped(&describe_repair(&repaired)))?;
            }
        }
        output.flush()?;
        let left: usize = self.verify(config).await?.iter().map(|report| report.problems.len()).sum();
        match left {
            0 => Ok(()),
            _ => Err(Error::failed(format!("{} could not be repaired", problem_count(left)))),
        }
    }

    /// Prints a line for each problem and one for the topic; nothing with `--repair --json`, which prints only repairs.
    fn print(&self, output: &mut Output, report: &Report) -> Result<()> {
        if self.json {
            return if self.repair { Ok(()) } else { output.json(report) };
        }
        for problem in &report.problems {
            output.line(&escaped(&problem.to_string()))?;
        }
        output.line(&summary(report))
    }
}

fn summary(report: &Report) -> String {
    let problems =
        if report.problems.is_empty() { "no problem".to_owned() } else { problem_count(report.problems.len()) };
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
        line += &format!("; unfinished write of {} at the end", HumanBytes(report.unfinished_bytes));
    }
    line
}

/// Returns what a repair will give up, for the confirmation.
fn warning<'a>(problems: impl Iterator<Item = &'a Problem>) -> String {
    let (mut lost, mut is_open_ended) = (0, false);
    for problem in problems.filter(|problem| problem.is_repairable) {
        match (problem.first_offset, problem.last_offset) {
            (Some(first), Some(last)) => lost += last - first + 1,
            (Some(_), None) => is_open_ended = true,
            (None, _) => {}
        }
    }
    let more = if is_open_ended { " and any later messages in the damaged tail" } else { "" };
    let offsets = if lost == 1 { "offset" } else { "offsets" };
    format!(
        "a repair permanently gives up {} {offsets}{more}; the damaged files are kept in the folder \"damaged\"",
        HumanCount(lost)
    )
}

/// Describes the repair of one file.
fn describe_repair(repaired: &Repaired) -> String {
    let mut line = repaired.file.display().to_string();
    let range = |lost: &Lost| match (lost.first_offset, lost.last_offset) {
        (first, last) if first == last => first.to_string(),
        (first, last) => format!("{first} to {last}"),
    };
    let ranges: Vec<_> = repaired.lost.iter().map(range).collect();
    let is_cut = repaired.problems.iter().any(|one| one.first_offset.is_some() && one.last_offset.is_none());
    line += match (repaired.partition, ranges.is_empty() && !is_cut) {
        (None, _) => " was moved to the folder \"damaged\", and the group starts from the beginning",
        (Some(_), true) => " was repaired; nothing is lost",
        (Some(_), false) => " was repaired",
    };
    if !ranges.is_empty() {
        line += &format!("; lost offsets: {}", ranges.join(", "));
    }
    if is_cut {
        line += "; its unreadable tail is cut off";
    }
    if let Some(kept) = &repaired.kept {
        line += &format!("; the original is kept in {}", kept.display());
    }
    line
}

fn problem_count(problems: usize) -> String {
    if problems == 1 { "1 problem".to_owned() } else { format!("{problems} problems") }
}
