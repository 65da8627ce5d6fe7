//! Consume throughput: messages a second from the broker, each acknowledged.

use std::time::{Duration, Instant};

use async_trait::async_trait;

use super::{BATCH, Contender, Side, messages};
use crate::Result;
use crate::contest::{self, Contestant, Pace, Sample};
use crate::table::{Row, rate_rows};

pub(super) async fn throughput(contender: &dyn Contender, total: Duration) -> Result<Vec<Row>> {
    let name = format!("consume, {}", contender.name());
    let mut contestants = [Side::Adapter, Side::Client]
        .map(|side| Box::new(Consuming { contender, side, pace: Pace::guess(2_000.0) }) as Box<dyn Contestant>);
    let samples = contest::compare(&name, total, &mut contestants).await?;
    Ok(rate_rows(&name, "msg/s", &[contender.client_name()], &samples))
}

struct Consuming<'a> {
    contender: &'a dyn Contender,
    side: Side,
    pace: Pace,
}

#[async_trait]
impl Contestant for Consuming<'_> {
    async fn sample(&mut self, length: Duration) -> Result<Sample> {
        let operations = self.pace.operations(length);
        let mut client = self.side.fresh(self.contender).await?;
        for batch in messages(operations + 1)?.chunks(BATCH as usize) {
            client.publish(batch).await?;
        }
        // Joining a group takes long and happens once, so the measurement starts after the first message.
        client.consume(1).await?;
        let started = Instant::now();
        client.consume(operations).await?;
        let elapsed = started.elapsed();
        self.pace.learn(operations, elapsed);
        Ok(Sample::Rate { operations, elapsed })
    }
}
