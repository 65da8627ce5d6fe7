//! `landfall dlq groups`, and `landfall dlq group`: what people say about them.

use std::time::Duration;

use clap::{Args, Subcommand};
use landfall::{DeadLetters, GroupChange, LetterGroups, Timestamp};

use super::filter::Filter;
use crate::actor::actor;
use crate::error::Result;
use crate::output::{Output, or_dash};
use crate::units;

/// Group parked messages by the cause of their failure, the largest group first.
///
/// Errors that differ only in ids, numbers, dates, addresses and quoted text have the same fingerprint.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  landfall dlq groups --topic orders
  landfall dlq groups --json | jq -r '.fingerprint' | head -1")]
pub(super) struct Groups {
    /// Print one JSON object per line.
    #[arg(long)]
    json: bool,
    /// Maximum number of groups.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    #[command(flatten)]
    filter: Filter,
}

impl Groups {
    pub(super) async fn run(self, dead_letters: &dyn DeadLetters) -> Result<()> {
        let groups = dead_letters.dead_letter_groups(&self.filter.to_filter(), self.limit as usize).await?;
        let columns = [
            "fingerprint",
            "state",
            "count",
            "hour",
            "day",
            "code",
            "first seen",
            "last seen",
            "sample",
            "note",
            "error",
        ];
        Output::new().list(self.json, &groups, columns, |group| {
            [
                group.fingerprint.clone(),
                group.state.as_str().to_owned(),
                group.count.to_string(),
                group.last_hour.to_string(),
                group.last_day.to_string(),
                group.error_code.clone(),
                group.first_seen.to_string(),
                group.last_seen.to_string(),
                group.sample.to_string(),
                or_dash(Some(&group.note).filter(|note| !note.is_empty())),
                group.error.clone(),
            ]
        })
    }
}

/// Say what you know about a failure group: all dead letters with one fingerprint.
///
/// A muted group opens when its time is over. A resolved group becomes regressed with its next dead letter. The audit
/// table records each change under --actor.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  landfall dlq group acknowledge 1-0f3a5b7c9d1e2f40 --note 'see INC-42' --actor maria
  landfall dlq group mute 1-0f3a5b7c9d1e2f40 --for 12h
  landfall dlq groups --state regressed")]
pub(super) struct Group {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Say that a person works on it.
    Acknowledge(Change),
    /// Leave it alone for some time.
    Mute {
        /// For how long: 30m, 12h, 7d.
        #[arg(long = "for", value_name = "TIME", value_parser = time)]
        duration: Duration,
        #[command(flatten)]
        change: Change,
    },
    /// Say that its cause is repaired.
    Resolve(Change),
    /// Make it open again.
    Reopen(Change),
    /// Replace its note; without --note remove it.
    Note(Change),
}

#[derive(Debug, Args)]
struct Change {
    /// Fingerprint, as `dlq groups` shows it.
    fingerprint: String,
    /// Note that everyone sees; replaces the old one.
    #[arg(long, value_name = "TEXT", default_value = "")]
    note: String,
    /// Name for the audit table [default: $USER]
    #[arg(long)]
    actor: Option<String>,
    /// Print the group as a JSON object.
    #[arg(long)]
    json: bool,
}

fn time(text: &str) -> std::result::Result<Duration, String> {
    units::age(text).map_err(|wanted| format!("it {wanted}"))
}

impl Group {
    pub(super) async fn run(self, groups: &dyn LetterGroups) -> Result<()> {
        let (kind, change) = match self.verb {
            Verb::Acknowledge(change) => (GroupChange::Acknowledge, change),
            Verb::Mute { duration, change } => (GroupChange::Mute { until: after(duration) }, change),
            Verb::Resolve(change) => (GroupChange::Resolve, change),
            Verb::Reopen(change) => (GroupChange::Reopen, change),
            Verb::Note(change) => (GroupChange::Note, change),
        };
        let Change { fingerprint, note, actor: given, json } = change;
        let status = groups.change_group(&fingerprint, kind, &note, &actor(given)).await?;
        Output::new().list(json, &[status], ["fingerprint", "state", "muted until", "note"], |status| {
            [
                status.fingerprint.clone(),
                status.state.as_str().to_owned(),
                or_dash(status.muted_until),
                or_dash(Some(&status.note).filter(|note| !note.is_empty())),
            ]
        })
    }
}

fn after(duration: Duration) -> Timestamp {
    let ms = i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
    Timestamp::from_millis(Timestamp::now().as_millis().saturating_add(ms))
}
