//! A hot key among a thousand, on PostgreSQL: the latency of the other keys' messages, from broker to
//! acknowledgement, with and without a key that has half of the traffic.
//!
//! The other keys have the same rate in both runs; the hot key's messages come in addition. One handler at a time could
//! not sustain the rate, and a key's messages are handled one after the other. So batches keep the hot key from falling
//! behind, and fair key lanes keep the other keys from waiting for it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use landfall::consume::{Consumer, Options};
use landfall::postgres::{self, Postgres};
use landfall::{Broker, Key, Message, MessageId};
use landfall_testkit::MemoryBroker;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::Result;
use crate::bare::{Bare, Table};
use crate::consumer::Effect;
use crate::contest::{self, Contestant, Sample, ensure_equal};
use crate::latency::{messages_in, ticks};
use crate::observed::Observed;
use crate::table::{Row, latency_rows};
use crate::workload::{PAYLOAD_BYTES, group, message, topic};

/// Messages a second of the thousand other keys, sent in bursts.
const PER_SECOND: u32 = 1_000;
const BURSTS_PER_SECOND: u32 = 100;
const STUCK_AFTER: Duration = Duration::from_secs(60);

pub(crate) async fn measure(url: &str, total: Duration) -> Result<Vec<Row>> {
    let database = Postgres::connect(url, postgres::Options { max_connections: 20, ..Default::default() }).await?;
    let name =
        format!("broker → effect of the other keys, PostgreSQL, {PER_SECOND} msg/s, beside a hot key with as many");
    let run = |hot| Traffic { database: &database, hot };
    let mut contestants: [Box<dyn Contestant>; 2] = [Box::new(run(true)), Box::new(run(false))];
    let samples = contest::compare(&name, total, &mut contestants).await?;
    Ok(latency_rows(&name, &["the same without the hot key"], &samples))
}

struct Traffic<'a> {
    database: &'a Postgres,
    hot: bool,
}

#[async_trait]
impl Contestant for Traffic<'_> {
    async fn sample(&mut self, length: Duration) -> Result<Sample> {
        let (acknowledged, mut acknowledgements) = mpsc::unbounded_channel();
        let memory = Arc::new(MemoryBroker::new());
        let broker: Arc<dyn Broker> = memory.clone();
        let broker = Arc::new(Observed::new(broker, acknowledged));
        let options = Options { concurrency: 8, batch: 20, ..Options::default() };
        let consumer = Consumer::new(self.database.clone(), broker, topic()?, group()?, Effect, options);
        let stop = CancellationToken::new();
        let consumer = tokio::spawn(consumer.run(stop.clone()));

        let (mut sent, mut count, mut ticks) = (HashMap::new(), 0_u64, ticks(BURSTS_PER_SECOND));
        for burst in 0..=messages_in(length, BURSTS_PER_SECOND) {
            ticks.tick().await;
            let mut messages = Vec::new();
            for n in 0..u64::from(PER_SECOND / BURSTS_PER_SECOND) {
                messages.push(message(burst * 97 + n * 101, PAYLOAD_BYTES)?);
                if self.hot {
                    messages.push(Message { key: Some(Key::new("hot")?), ..message(0, PAYLOAD_BYTES)? });
                }
            }
            let now = Instant::now();
            sent.extend(messages.iter().map(|message| (message.id, (now, burst > 0 && is_cold(message)))));
            count += messages.len() as u64;
            memory.publisher().publish(&messages).await;
        }
        let latencies = collect(&mut acknowledgements, sent).await;
        stop.cancel();
        consumer.await??;
        ensure_equal("effects", self.database.count(Table::Effects).await?, count)?;
        self.database.clear().await?;
        Ok(Sample::Latencies(latencies?))
    }
}

fn is_cold(message: &Message) -> bool {
    message.key.as_ref().is_some_and(|key| key.as_str() != "hot")
}

/// The latencies of the messages that are measured.
async fn collect(
    acknowledgements: &mut mpsc::UnboundedReceiver<(MessageId, Instant)>,
    mut sent: HashMap<MessageId, (Instant, bool)>,
) -> Result<Vec<Duration>> {
    let mut latencies = Vec::with_capacity(sent.len());
    while !sent.is_empty() {
        let next = tokio::time::timeout(STUCK_AFTER, acknowledgements.recv()).await?;
        let (id, acknowledged) = next.ok_or("the consumer ended before the effects of all messages")?;
        let (started, is_measured) = sent.remove(&id).ok_or("a message took effect twice or was never sent")?;
        if is_measured {
            latencies.push(acknowledged - started);
        }
    }
    Ok(latencies)
}
