//! A program that publishes to the log without an outbox, and may crash before it gets the outcome. It numbers its
//! messages and sends again whenever it is not sure; the log stores each sequence once.
//!
//! Use it where the source has a natural numbering: lines of a file, readings of a meter, rows that are copied. Use the
//! outbox where a message belongs to a change in a database.
//!
//! ```text
//! cargo run -p landfall-examples --bin numbered_producer
//! ```

use landfall::log::{Log, Options, Producer};
use landfall::{Broker, Message, Outcome, ProducerName, StartAt, TopicName};
use landfall_examples::Result;

/// A producer has separate sequences for each partition; this topic has one partition.
const PARTITION: u32 = 0;

#[tokio::main]
async fn main() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let open = || Log::open(folder.path().join("log"), Options { partitions: 1, ..Options::default() });
    let (topic, name) = (TopicName::new("readings")?, ProducerName::new("meter-7")?);

    let log = open()?;
    log.create_topic(&topic, None, Default::default()).await?;
    let producer = log.producer(&name).await?;
    println!("registered: id {}, epoch {}", producer.id(), producer.epoch());
    send(&producer, &topic, 0..3).await;
    // The program crashes and does not remember which of the three messages were stored.
    drop((producer, log));

    let log = open()?;
    let older = log.producer(&name).await?;
    let next = older.next_sequence(&topic, PARTITION).await?;
    println!("registered again: id {}, epoch {}, next sequence {next}", older.id(), older.epoch());
    // It could continue with the next sequence, but it may also repeat messages it is not sure of.
    send(&older, &topic, 2..5).await;

    // A second instance starts while the first one still runs. From now on only the newer one can write.
    let newer = log.producer(&name).await?;
    println!("registered by another instance: id {}, epoch {}", newer.id(), newer.epoch());
    send(&older, &topic, 5..6).await;
    send(&newer, &topic, 5..6).await;

    let stored = log.read(&topic, StartAt::Beginning).await?.read(100).await?;
    let payloads = stored.into_iter().map(|stored| Ok(String::from_utf8(stored.message?.payload.to_vec())?));
    println!("stored: {}", payloads.collect::<Result<Vec<_>>>()?.join(", "));
    log.close().await?;
    Ok(())
}

/// Sends the readings with these sequences. Every call creates new messages with new ids: only the sequence identifies
/// a duplicate.
async fn send(producer: &Producer, topic: &TopicName, sequences: std::ops::Range<u64>) {
    let readings: Vec<_> =
        sequences.clone().map(|sequence| Message::new(topic.clone(), format!("reading {sequence}"))).collect();
    let outcomes = producer.publish(topic, PARTITION, sequences.start, &readings).await;
    for (sequence, outcome) in sequences.zip(outcomes) {
        match outcome {
            Outcome::Accepted(position) => println!("  sequence {sequence} is at offset {}", position.offset),
            Outcome::Refused(refusal) => println!("  sequence {sequence} is refused: {}", refusal.code),
            Outcome::Unknown(why) => println!("  sequence {sequence} has an unknown outcome: {why}"),
        }
    }
}
