//! How fast messages go to the broker, and how long one takes.

use std::time::{Duration, Instant};

use async_trait::async_trait;

use super::{BATCH, Contender, Side, messages};
use crate::Result;
use crate::contest::{self, Contestant, Turn};
use crate::table::{Row, latency_rows, rate_rows};

pub(super) async fn throughput(contender: &dyn Contender, total: Duration) -> Result<Vec<Row>> {
    let name = format!("publish, {}, {BATCH} at a time", contender.name());
    let turns = contest::hold(&name, total, &mut sides(contender, BATCH)).await?;
    let turns: Vec<Vec<Turn>> = turns.into_iter().map(|turns| turns.into_iter().map(rate).collect()).collect();
    Ok(rate_rows(&name, "msg/s", &peers(contender), &turns))
}

pub(super) async fn latency(contender: &dyn Contender, total: Duration) -> Result<Vec<Row>> {
    let name = format!("publish, {}, one at a time", contender.name());
    let turns = contest::hold(&name, total, &mut sides(contender, 1)).await?;
    Ok(latency_rows(&name, &peers(contender), &turns))
}

/// Turns are times of batches; this is what they come to together.
fn rate(turn: Turn) -> Turn {
    match turn {
        Turn::Latencies(each) => Turn::Rate { operations: each.len() as u64 * BATCH, elapsed: each.iter().sum() },
        turn => turn,
    }
}

fn peers(contender: &dyn Contender) -> Vec<&'static str> {
    [contender.client_name()].into_iter().chain(contender.careful_client_name()).collect()
}

/// The adapter, and its peers in their order.
fn sides(contender: &dyn Contender, batch: u64) -> Vec<Box<dyn Contestant + '_>> {
    let sides = [Side::Adapter, Side::Client, Side::Careful].into_iter().take(1 + peers(contender).len());
    sides.map(|side| Box::new(Publishing { contender, side, batch }) as Box<dyn Contestant>).collect()
}

struct Publishing<'a> {
    contender: &'a dyn Contender,
    side: Side,
    batch: u64,
}

#[async_trait]
impl Contestant for Publishing<'_> {
    async fn turn(&mut self, length: Duration) -> Result<Turn> {
        let mut client = self.side.fresh(self.contender).await?;
        // Connections and metadata come with the first batch, which does not count.
        client.publish(&messages(self.batch)?).await?;
        let (mut each, mut spent) = (Vec::new(), Duration::ZERO);
        while spent < length {
            // Making the messages is not part of the time.
            let messages = messages(self.batch)?;
            let started = Instant::now();
            client.publish(&messages).await?;
            let elapsed = started.elapsed();
            each.push(elapsed);
            spent += elapsed;
        }
        Ok(Turn::Latencies(each))
    }
}
