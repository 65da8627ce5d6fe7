//! `landfall dlq archive`, `archives` and `restore`: dead letters leave the database, and come back.

use std::time::Duration;

use clap::Args;
use indicatif::{HumanCount, ProgressBar, ProgressStyle};
use landfall::housekeeping::{LETTERS_AT_ONCE, Span};
use landfall::{ArchivableLetters, ArchivedLetter, DeadLetterId, MessageId, Timestamp};
use serde::Serialize;

use super::super::sources::Sources;
use crate::actor::actor;
use crate::archive::{LetterArchive, Object};
use crate::config::{Address, Config};
use crate::error::{Error, Result};
use crate::output::Output;
use crate::units;

/// Letters restored in one transaction.
const CHUNK: usize = 100;

/// Archive done and discarded dead letters now, and remove them from the database.
///
/// `landfall serve` does so once an hour. Letters are removed after their object and its manifest were read back and
/// compared. An interrupted run keeps what it has archived so far. Open letters stay.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  landfall dlq archive
  landfall dlq archive --older-than 7d --json")]
pub(super) struct Archive {
    /// Only letters that are final for longer than this: 7d, 36h, 0 for all [default: retention.dead_letters].
    #[arg(long, value_name = "AGE", value_parser = age)]
    older_than: Option<Duration>,
    #[command(flatten)]
    place: Place,
    /// Name for the audit table [default: $USER]
    #[arg(long)]
    actor: Option<String>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct Place {
    /// Folder or URL of the archive [default: retention.dead_letters_archive].
    #[arg(long, value_name = "URL")]
    archive: Option<String>,
}

/// List the objects of the archive, the oldest letters first.
#[derive(Debug, Args)]
pub(super) struct Archives {
    #[command(flatten)]
    place: Place,
    /// Print one JSON object per line.
    #[arg(long)]
    json: bool,
}

/// Put archived dead letters and their history back into the database.
///
/// The checksum of an object is verified before anything is inserted. A letter that is in the database is left alone,
/// so a repetition changes nothing. Restored letters are kept for the full retention again.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  landfall dlq archives
  landfall dlq restore dead-letters/2026-10-01/17-240-0f3a5b7c9d1e2f40.jsonl.zst
  landfall dlq restore --message-id 0197b1c2-8f3e-7c11-9d2b-6a5f0c3e9d10 --actor maria")]
pub(super) struct Restore {
    /// Objects to restore, as `dlq archives` lists them. Default: all, if a filter is given.
    #[arg(value_name = "OBJECT")]
    objects: Vec<String>,
    #[command(flatten)]
    filter: Filter,
    #[command(flatten)]
    place: Place,
    /// Name for the audit table [default: $USER]
    #[arg(long)]
    actor: Option<String>,
    /// Print one JSON object with the lists of ids restored and present.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Filters (all given ones must match)")]
struct Filter {
    /// Id of the dead letter.
    #[arg(long)]
    id: Option<DeadLetterId>,
    /// Id of the message.
    #[arg(long, value_name = "UUID")]
    message_id: Option<MessageId>,
    /// First seen at or after this time (2026-11-15T08:00:00Z).
    #[arg(long, value_name = "TIME")]
    from: Option<Timestamp>,
    /// First seen before this time.
    #[arg(long, value_name = "TIME")]
    to: Option<Timestamp>,
}

#[derive(Debug, Default, Serialize)]
struct Archived {
    letters: u64,
    objects: u64,
    bytes: u64,
}

#[derive(Debug, Default, Serialize)]
struct Restored {
    restored: Vec<DeadLetterId>,
    present: Vec<DeadLetterId>,
}

fn age(text: &str) -> std::result::Result<Duration, String> {
    units::age(text).map_err(|wanted| format!("it {wanted}"))
}

impl Place {
    fn open(&self, config: &Config) -> Result<LetterArchive> {
        let given = self.archive.as_deref().map(Address::new);
        let address = given.as_ref().or(config.retention.dead_letters_archive.as_ref());
        LetterArchive::open(address.ok_or_else(|| {
            Error::usage("no archive is configured; set retention.dead_letters_archive, or add --archive URL")
        })?)
    }
}

impl Archive {
    pub(super) async fn run(self, sources: &Sources) -> Result<()> {
        let config = sources.load()?;
        let archive = self.place.open(&config)?;
        let age = match (self.older_than, config.retention.dead_letters) {
            (Some(age), _) | (None, Span::Time(age)) => age,
            (None, Span::Forever) => {
                return Err(Error::usage("retention.dead_letters is \"forever\"; add --older-than AGE"));
            }
        };
        let (database, actor) = (sources.open_database().await?.housekeeping, actor(self.actor));
        let bar = bar("archived");
        let mut done = Archived::default();
        loop {
            let letters = database.old_letters(age, LETTERS_AT_ONCE).await?;
            if letters.is_empty() {
                break;
            }
            let ids: Vec<_> = letters.iter().map(|letter| letter.id).collect();
            let object = archive.save(letters).await?;
            done.letters += database.remove_archived_letters(&ids, &object.name, &actor).await?;
            done.objects += 1;
            done.bytes += object.bytes;
            bar.set_position(done.letters);
        }
        bar.finish_and_clear();
        let mut output = Output::new();
        if self.json {
            output.json(&done)?;
        } else {
            output.line(&format!("{} archived in {} objects", HumanCount(done.letters), HumanCount(done.objects)))?;
        }
        output.flush()
    }
}

impl Archives {
    pub(super) async fn run(self, sources: &Sources) -> Result<()> {
        let archive = self.place.open(&sources.load()?)?;
        let mut objects = Vec::new();
        for manifest in archive.manifests().await? {
            objects.extend(archive.objects(&manifest).await?);
        }
        let columns = ["object", "letters", "first id", "last id", "from", "to", "bytes"];
        Output::new().list(self.json, &objects, columns, |object| {
            [
                object.name.clone(),
                object.letters.to_string(),
                object.first_id.to_string(),
                object.last_id.to_string(),
                Timestamp::from_millis(object.from_ms).to_string(),
                Timestamp::from_millis(object.to_ms).to_string(),
                object.bytes.to_string(),
            ]
        })
    }
}

impl Restore {
    pub(super) async fn run(self, sources: &Sources) -> Result<()> {
        if self.objects.is_empty() && self.filter.is_empty() {
            return Err(Error::usage("name the objects to restore, or a filter such as --message-id or --from"));
        }
        let archive = self.place.open(&sources.load()?)?;
        let (database, actor) = (sources.open_database().await?.housekeeping, actor(self.actor.clone()));
        let objects = self.selected(&archive).await?;
        let bar = bar("read");
        let mut done = Restored::default();
        for object in objects {
            let letters = archive.load(&object).await?;
            bar.inc(letters.len() as u64);
            let chosen: Vec<_> = letters.into_iter().filter(|letter| self.filter.matches(letter)).collect();
            restore(&*database, &chosen, &object, &actor, &mut done).await?;
        }
        bar.finish_and_clear();
        self.report(&done)
    }

    /// Returns the objects that may contain matching letters.
    async fn selected(&self, archive: &LetterArchive) -> Result<Vec<Object>> {
        let mut objects = Vec::new();
        for name in &self.objects {
            objects.push(archive.object(name).await?);
        }
        if self.objects.is_empty() {
            for manifest in archive.manifests().await? {
                objects.extend(archive.objects(&manifest).await?);
            }
        }
        objects.retain(|object| self.filter.may_match(object));
        Ok(objects)
    }

    fn report(&self, done: &Restored) -> Result<()> {
        let mut output = Output::new();
        if self.json {
            output.json(done)?;
        } else {
            let present = match done.present.len() {
                0 => String::new(),
                count => format!("; {count} were in the database"),
            };
            output.line(&format!("{} restored{present}", done.restored.len()))?;
        }
        output.flush()?;
        match (done.restored.len(), done.present.len()) {
            (0, 0) => Err(Error::failed("no archived dead letter matches")),
            _ => Ok(()),
        }
    }
}

async fn restore(
    database: &(impl ArchivableLetters + ?Sized),
    letters: &[ArchivedLetter],
    object: &Object,
    actor: &str,
    done: &mut Restored,
) -> Result<()> {
    for chunk in letters.chunks(CHUNK) {
        let more = database.restore_letters(chunk, &object.name, actor).await?;
        done.restored.extend(more.restored);
        done.present.extend(more.present);
    }
    Ok(())
}

impl Filter {
    fn is_empty(&self) -> bool {
        let Self { id, message_id, from, to } = self;
        id.is_none() && message_id.is_none() && from.is_none() && to.is_none()
    }

    fn may_match(&self, object: &Object) -> bool {
        self.id.is_none_or(|id| (object.first_id..=object.last_id).contains(&id))
            && self.from.is_none_or(|from| object.to_ms >= from.as_millis())
            && self.to.is_none_or(|to| object.from_ms < to.as_millis())
    }

    fn matches(&self, letter: &ArchivedLetter) -> bool {
        self.id.is_none_or(|id| letter.id == id)
            && self.message_id.is_none_or(|id| letter.message_id.eq_ignore_ascii_case(&id.to_string()))
            && self.from.is_none_or(|from| letter.first_seen >= from.as_millis())
            && self.to.is_none_or(|to| letter.first_seen < to.as_millis())
    }
}

/// Draws nothing if stderr is not a terminal.
fn bar(what: &str) -> ProgressBar {
    let bar = ProgressBar::no_length();
    let template = format!("  {{spinner}} {{human_pos}} {what}  {{elapsed}}  {{per_sec}}");
    if let Ok(style) = ProgressStyle::with_template(&template) {
        bar.set_style(style);
    }
    bar
}
