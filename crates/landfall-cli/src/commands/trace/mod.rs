//! `landfall trace`: where a message is, and where it has been.

mod broker;
mod path;

use std::collections::BTreeMap;
use std::io::Write;
use std::time::Duration;

use clap::Args;
use landfall::{
    DeadLetter, DeadLetterFilter, DeliveryFilter, HalfMessageFilter, Key, MessageId, OutboxFilter, OutboxState,
    RetryingDelivery, TopicName,
};

use super::sources::Sources;
use crate::config::Config;
use crate::error::{Error, Result};
use crate::output::{Output, escaped, or_dash};
use crate::stores::Database;
use crate::units;
use broker::Search;
use path::Path;

/// Show where a message is and has been: outbox, broker, attempts, inbox, dead letters.
///
/// Reads one database and one broker. If sender and receiver have databases of their own, trace in each: the sender's
/// has the outbox, the receiver's has the attempts, the inbox and the dead letters.
///
/// Exit code 1 if no trace of the message is left.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  landfall trace --id 0197b1c2-8f3e-7c11-9d2b-6a5f0c3e9d10
  landfall trace --key customer-42 --topic orders
  landfall trace --key customer-42 --json | jq -r '.id, .now[]'
  landfall trace --id 0197b1c2-8f3e-7c11-9d2b-6a5f0c3e9d10 --database-url postgres://stock@db/stock

A sent message leaves the outbox after retention.sent, and a handled one leaves the inbox after retention.inbox.")]
pub(crate) struct Trace {
    /// Id of the message.
    #[arg(long, value_name = "UUID", required_unless_present = "key", conflicts_with = "key")]
    id: Option<MessageId>,
    /// Ordering key: traces its newest messages.
    #[arg(long)]
    key: Option<Key>,
    /// Topic of the message; without it, every topic in which it may be is searched.
    #[arg(long)]
    topic: Option<TopicName>,
    /// Maximum number of messages of a key.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    limit: u32,
    /// How far back to read the broker for a key, or for an id without a time: 7d, 36h, 90s.
    #[arg(long, value_name = "AGE", default_value = "1d", value_parser = age)]
    since: Duration,
    /// Maximum number of messages to read from each topic of the broker; 0 leaves the broker out.
    #[arg(long, value_name = "MESSAGES", default_value_t = 100_000)]
    scan: u64,
    /// Print one JSON object per message: id, topic, key, now, steps.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    sources: Sources,
}

/// The messages found, by id.
type Paths = BTreeMap<MessageId, Path>;

impl Trace {
    pub(crate) async fn run(self) -> Result<()> {
        let config = self.sources.load()?;
        let database = self.sources.open_database().await?;
        let mut paths = Paths::new();
        self.read_half_messages(&database, &mut paths).await?;
        self.read_outbox(&database, &mut paths).await?;
        self.read_consumers(&database, &mut paths).await?;
        if self.scan > 0 {
            self.read_broker(&config, &mut paths).await;
        }
        if let Some(id) = self.id {
            // The inbox alone may know it.
            paths.entry(id).or_insert_with(|| Path::new(id));
        }
        self.keep_newest(&mut paths);
        for path in paths.values_mut() {
            path.admitted(database.deliveries.admitted_by(path.id).await?);
        }
        paths.retain(|_, path| path.is_known());
        if paths.is_empty() {
            return Err(Error::failed(self.nothing_found()));
        }
        self.print(&paths)
    }

    /// Reads the half message with the id. Half messages are not searched by key.
    async fn read_half_messages(&self, database: &Database, paths: &mut Paths) -> Result<()> {
        let Some(id) = self.id else { return Ok(()) };
        let filter = HalfMessageFilter { id: Some(id), topic: self.topic.clone(), ..Default::default() };
        for row in database.half.find_half_messages(&filter, 1).await? {
            paths.entry(id).or_insert_with(|| Path::new(id)).half(&row);
        }
        Ok(())
    }

    async fn read_outbox(&self, database: &Database, paths: &mut Paths) -> Result<()> {
        let mut rows = Vec::new();
        if let Some(id) = self.id {
            rows.extend(database.view.show(id).await?.into_iter().map(|detail| detail.row));
        } else {
            for state in [None, Some(OutboxState::Parked), Some(OutboxState::Sent)] {
                let filter =
                    OutboxFilter { state, key: self.key.clone(), topic: self.topic.clone(), ..Default::default() };
                rows.extend(database.view.list(&filter, MAX_ROWS).await?);
            }
        }
        for row in rows.iter().filter(|row| self.topic.as_ref().is_none_or(|topic| *topic == row.topic)) {
            paths.entry(row.message_id).or_insert_with(|| Path::new(row.message_id)).in_outbox(row);
        }
        Ok(())
    }

    /// Reads failed deliveries and dead letters.
    async fn read_consumers(&self, database: &Database, paths: &mut Paths) -> Result<()> {
        let (message_id, key, topic) = (self.id, self.key.clone(), self.topic.clone());
        let filter = DeliveryFilter { message_id, key: key.clone(), topic: topic.clone(), group: None };
        let failing: Vec<RetryingDelivery> = database.deliveries.retrying(&filter, MAX_ROWS).await?;
        for delivery in &failing {
            let id = delivery.message_id;
            paths.entry(id).or_insert_with(|| Path::new(id)).retrying(delivery);
        }
        let filter = DeadLetterFilter { message_id, key, topic, ..Default::default() };
        let letters: Vec<DeadLetter> = database.dead_letters.list_letters(&filter, MAX_ROWS).await?;
        for letter in &letters {
            let id = letter.message_id;
            paths.entry(id).or_insert_with(|| Path::new(id)).dead_letter(letter);
        }
        Ok(())
    }

    /// Searches the broker. A broker that cannot be read leaves its part out, with a note.
    async fn read_broker(&self, config: &Config, paths: &mut Paths) {
        let known = paths.values().filter_map(|path| path.topic.clone());
        let topics = self.topic.clone().into_iter().chain(known).collect();
        let search = Search { id: self.id, key: self.key.as_ref(), topics, since: self.since, at_most: self.scan };
        match search.run(config).await {
            Ok(found) => {
                for (message, position) in &found.messages {
                    paths.entry(message.id).or_insert_with(|| Path::new(message.id)).stored(message, *position);
                }
                for topic in &found.cut_short {
                    note(&format!("reading topic {topic} stopped after {} messages; raise --scan", self.scan));
                }
            }
            Err(error) => note(&format!("the broker is left out: {error}")),
        }
    }

    /// Keeps the newest `limit` messages.
    fn keep_newest(&self, paths: &mut Paths) {
        let mut newest: Vec<_> = paths.values().map(|path| (path.first_seen(), path.id)).collect();
        newest.sort_unstable();
        let surplus = newest.len().saturating_sub(self.limit as usize);
        for (_, id) in &newest[..surplus] {
            paths.remove(id);
        }
    }

    fn nothing_found(&self) -> String {
        let what = match (&self.id, &self.key) {
            (Some(id), _) => format!("message {id}"),
            (None, key) => format!("messages with the key {:?}", or_dash(key.as_ref())),
        };
        format!(
            "no trace of {what}: it was never committed here, or retention has removed it; if the receiver has a \
             database of its own, name it with --database-url"
        )
    }

    fn print(&self, paths: &Paths) -> Result<()> {
        let mut output = Output::new();
        let mut sorted: Vec<&Path> = paths.values().collect();
        sorted.sort_by_key(|path| (path.first_seen(), path.id));
        for path in sorted {
            let report = path.report();
            if self.json {
                output.json(&report)?;
                continue;
            }
            let (topic, key) = (or_dash(path.topic.as_ref()), or_dash(path.key.as_ref()));
            output.line(&format!("message {}  topic {topic}  key {}", path.id, escaped(&key)))?;
            for now in &report.now {
                output.line(&format!("  now: {}", escaped(now)))?;
            }
            for step in &report.steps {
                output.line(&format!("  {}  {}", step.time, escaped(&step.to_string())))?;
            }
        }
        output.flush()
    }
}

/// Rows of one kind that are read.
const MAX_ROWS: usize = 1000;

fn note(text: &str) {
    // A closed stderr must not stop the command.
    let _ = writeln!(std::io::stderr(), "note: {text}");
}

fn age(text: &str) -> std::result::Result<Duration, String> {
    units::age(text).map_err(|wanted| format!("it {wanted}"))
}
