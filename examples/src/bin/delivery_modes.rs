//! The three delivery modes side by side, and what a consumer sees of each when the broker fails once.
//!
//! A publish can fail in two ways that need opposite reactions. A *refused* message is not stored: without a retry it
//! is lost. After a *timeout* it may be stored: a retry may create a duplicate.
//!
//! ```text
//! cargo run -p landfall-examples --bin delivery_modes
//! ```

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use landfall::consume::{self, Consumer, Context, Handler};
use landfall::log::{self, Log};
use landfall::relay::{self, Relay};
use landfall::sqlite::{self, Sqlite};
use landfall::{
    Backoff, Broker, ErrorCode, Failure, GroupName, Key, Kind, Message, MessageId, Mode, OutboxFilter, OutboxQueue,
    OutboxView, Outcome, Publisher, Schema, TopicName,
};
use landfall_examples::{Result, until};
use sqlx::Executor;
use tokio_util::sync::CancellationToken;

const REFUSED: &str = "RefusedOnce";
const TIMED_OUT: &str = "TimedOutOnce";
const LAST: &str = "Last";

#[tokio::main]
async fn main() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("modes.db");
    let database = Sqlite::open(&file.display().to_string(), sqlite::Options::default()).await?;
    database.migrate().await?;
    database.pool().execute("CREATE TABLE effect (mode TEXT NOT NULL, fault TEXT NOT NULL)").await?;
    // By default the log deduplicates messages by id; here it behaves like brokers that do not.
    let settings = log::TopicSettings { deduplicate: false, ..Default::default() };
    let options = log::Options { topic: settings, ..Default::default() };
    let log: Arc<dyn Broker> = Arc::new(Log::open(folder.path().join("log"), options)?);
    let topic = TopicName::new("news")?;

    let messages = one_of_each(&topic)?;
    database.append(&messages).await?;

    let stop = CancellationToken::new();
    let queue = Arc::new(database.clone());
    let flaky = Arc::new(Flaky { broker: log.publisher(), faulted: Mutex::default() });
    let backoff = Backoff { first: Duration::from_millis(20), cap: Duration::from_secs(1), max_attempts: 5 };
    let options = relay::Options { backoff, ..relay::Options::default() };
    let relay = tokio::spawn(Relay::new(queue.clone(), queue, flaky, options).run(stop.clone()));
    let (group, options) = (GroupName::new("readers")?, consume::Options::default());
    let consumer = Consumer::new(database.clone(), log.clone(), topic, group, Note, options);
    let consumer = tokio::spawn(consumer.run(stop.clone()));

    until("the outbox is empty", async || Ok(database.list(&OutboxFilter::default(), 1).await?.is_empty())).await?;
    // Messages of a key take effect in order: after this last one, no duplicate of its key can still arrive.
    let last = Kind::new(LAST)?;
    let last = messages.iter().map(|message| message.clone().with_id(MessageId::new()).with_kind(last.clone()));
    log.publisher().publish(&last.collect::<Vec<_>>()).await;
    until("the last message of every key is handled", async || Ok(count(&database, "%", LAST).await? == 6)).await?;
    stop.cancel();
    relay.await??;
    consumer.await??;

    println!("effects of one message    refused once    timed out once");
    for mode in Mode::ALL {
        let refused = count(&database, mode.as_str(), REFUSED).await?;
        let timed_out = count(&database, mode.as_str(), TIMED_OUT).await?;
        println!("{:<25} {refused:<15} {timed_out}", mode.as_str());
    }
    Ok(())
}

/// One message for each pair of mode and fault, each with its own key.
fn one_of_each(topic: &TopicName) -> Result<Vec<Message>> {
    let pairs = Mode::ALL.into_iter().flat_map(|mode| [(mode, REFUSED), (mode, TIMED_OUT)]);
    let message = |(mode, fault)| {
        let message = Message::new(topic.clone(), "hello").with_key(Key::new(format!("{mode}/{fault}"))?);
        Ok(message.with_mode(mode).with_kind(Kind::new(fault)?))
    };
    pairs.map(message).collect()
}

/// A broker that fails the first attempt of every message, as its kind says.
struct Flaky {
    broker: Arc<dyn Publisher>,
    faulted: Mutex<HashSet<MessageId>>,
}

#[async_trait::async_trait]
impl Publisher for Flaky {
    async fn publish(&self, batch: &[Message]) -> Vec<Outcome> {
        let mut outcomes = Vec::new();
        for message in batch {
            let is_first = self.faulted.lock().is_ok_and(|mut faulted| faulted.insert(message.id));
            if is_first && message.kind.as_str() == REFUSED {
                outcomes.push(Outcome::retry_later(ErrorCode::new("BUSY"), "the queue is full"));
                continue;
            }
            let accepted = self.broker.publish(std::slice::from_ref(message)).await;
            // A timeout: the message is stored, and only the response is lost.
            let is_lost = is_first && message.kind.as_str() == TIMED_OUT;
            outcomes.extend(if is_lost { vec![Outcome::Unknown("no response".into())] } else { accepted });
        }
        outcomes
    }
}

struct Note;

impl Handler<Sqlite> for Note {
    async fn handle<'a>(&'a self, context: Context<'a, Sqlite>) -> Result<(), Failure> {
        let (mode, fault) = (context.message.mode.as_str(), context.message.kind.as_str());
        sqlx::query("INSERT INTO effect VALUES (?, ?)").bind(mode).bind(fault).execute(context.connection).await?;
        Ok(())
    }
}

async fn count(database: &Sqlite, mode: &str, fault: &str) -> Result<i64> {
    let count = sqlx::query_scalar("SELECT count(*) FROM effect WHERE mode LIKE ? AND fault LIKE ?");
    Ok(count.bind(mode).bind(fault).fetch_one(database.pool()).await?)
}
