//! A program that feeds the log without an outbox, and may crash between sending and hearing the answer: it numbers its
//! messages, sends again whatever it is not sure of, and each number is stored once.
//!
//! Use it where the numbers come from the source itself: lines of a file, readings of a meter, rows that are copied.
//! Where a message belongs to a change in a database, the outbox is the way.
//!
//! ```text
//! cargo run -p landfall-examples --bin numbered_producer
//! ```

use landfall::log::{Log, Options, Producer};
use landfall::{Broker, Message, Outcome, ProducerName, StartAt, TopicName};
use landfall_examples::Result;

/// A producer numbers the messages of each partition on its own; this topic has one partition.
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
    // The program dies, and does not remember which of the three got through.
    drop((producer, log));

    let log = open()?;
    let older = log.producer(&name).await?;
    let next = older.next_sequence(&topic, PARTITION).await?;
    println!("registered again: id {}, epoch {}, next number {next}", older.id(), older.epoch());
    // It could go on with the next number. It may as well send once more what it is not sure of.
    send(&older, &topic, 2..5).await;

    // Somebody starts a second instance while the first one still runs. From now on only the newer one can write.
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

/// Sends the readings with these numbers. They are made anew each time, with other ids: only the numbers tell a repeat.
async fn send(producer: &Producer, topic: &TopicName, numbers: std::ops::Range<u64>) {
    let readings: Vec<_> =
        numbers.clone().map(|number| Message::new(topic.clone(), format!("reading {number}"))).collect();
    let outcomes = producer.publish(topic, PARTITION, numbers.start, &readings).await;
    for (number, outcome) in numbers.zip(outcomes) {
        match outcome {
            Outcome::Accepted(position) => println!("  number {number} is at offset {}", position.offset),
            Outcome::Refused(refusal) => println!("  number {number} is refused: {}", refusal.code),
            Outcome::Unknown(why) => println!("  number {number} may be there or not: {why}"),
        }
    }
}
