//! Publish throughput in batches, and latency of single messages.

use std::time::{Duration, Instant};

use async_trait::async_trait;

use super::{BATCH, Contender, Side, messages};
use crate::Result;
use crate::contest::{self, Contestant, Sample};
use crate::table::{Row, latency_rows, rate_rows};

pub(super) async fn throughput(contender: &dyn Contender, total: Duration) -> Result<Vec<Row>> {
    let name = format!("publish, {}, {BATCH} at a time", contender.name());
    let samples = contest::compare(&name, total, &mut sides(contender, BATCH)).await?;
    let samples: Vec<Vec<Sample>> =
        samples.into_iter().map(|samples| samples.into_iter().map(rate).collect()).collect();
    Ok(rate_rows(&name, "msg/s", &peers(contender), &samples))
}

pub(super) async fn latency(contender: &dyn Contender, total: Duration) -> Result<Vec<Row>> {
    let name = format!("publish, {}, one at a time", contender.name());
    let samples = contest::compare(&name, total, &mut sides(contender, 1)).await?;
    Ok(latency_rows(&name, &peers(contender), &samples))
}

/// Converts the latencies of batches into a rate.
fn rate(sample: Sample) -> Sample {
    match sample {
        Sample::Latencies(each) => Sample::Rate { operations: each.len() as u64 * BATCH, elapsed: each.iter().sum() },
        sample => sample,
    }
}

fn peers(contender: &dyn Contender) -> Vec<&'static str> {
    [contender.client_name()].into_iter().chain(contender.deduplicating_client_name()).collect()
}

/// The adapter first, then its peers in the order of [`peers`].
fn sides(contender: &dyn Contender, batch: u64) -> Vec<Box<dyn Contestant + '_>> {
    let sides = [Side::Adapter, Side::Client, Side::DeduplicatingClient].into_iter().take(1 + peers(contender).len());
    sides.map(|side| Box::new(Publishing { contender, side, batch }) as Box<dyn Contestant>).collect()
}

struct Publishing<'a> {
    contender: &'a dyn Contender,
    side: Side,
    batch: u64,
}

#[async_trait]
impl Contestant for Publishing<'_> {
    async fn sample(&mut self, length: Duration) -> Result<Sample> {
        let mut client = self.side.fresh(self.contender).await?;
        // The first batch opens connections and fetches metadata; it is not measured.
        client.publish(&messages(self.batch)?).await?;
        let (mut each, mut spent) = (Vec::new(), Duration::ZERO);
        while spent < length {
            // Creating the messages is not measured.
            let messages = messages(self.batch)?;
            let started = Instant::now();
            client.publish(&messages).await?;
            let elapsed = started.elapsed();
            each.push(elapsed);
            spent += elapsed;
        }
        Ok(Sample::Latencies(each))
    }
}
