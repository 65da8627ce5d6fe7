//! The CPU that the server spends at a steady thousand messages a second, their inserts included.

use std::time::Duration;

use async_trait::async_trait;
use landfall::postgres::Postgres;
use tokio::task::JoinSet;

use super::server_cpu::ServerCpu;
use super::side::{PEER_NAMES, Running, Side};
use crate::Result;
use crate::contest::{self, Contestant, Sample};
use crate::latency::{messages_in, ticks};
use crate::table::{Row, rate_rows};

const CLIENTS: u32 = 4;
const PER_SECOND: u32 = 1_000;
/// Shorter samples have too few of the kernel's ticks.
const MIN_TOTAL: Duration = Duration::from_secs(28);

pub(super) async fn measure(database: &Postgres, total: Duration) -> Result<Vec<Row>> {
    let name = format!("messages per second of server CPU, PostgreSQL, {PER_SECOND} tx/s");
    let mut contestants = Side::ALL.map(|side| Box::new(Steady { side, database }) as Box<dyn Contestant>);
    let samples = contest::compare(&name, total.max(MIN_TOTAL), &mut contestants).await?;
    Ok(rate_rows(&name, "/s", &PEER_NAMES, &samples))
}

struct Steady<'a> {
    side: Side,
    database: &'a Postgres,
}

#[async_trait]
impl Contestant for Steady<'_> {
    async fn sample(&mut self, length: Duration) -> Result<Sample> {
        let mut running = Running::start(self.side, self.database).await?;
        let cpu = ServerCpu::of(self.database.pool()).await?;
        let before = cpu.used()?;
        let each = messages_in(length, PER_SECOND / CLIENTS);
        let mut clients = JoinSet::<Result<()>>::new();
        for _ in 0..CLIENTS {
            let (side, database) = (self.side, self.database.clone());
            clients.spawn(async move {
                let mut ticks = ticks(PER_SECOND / CLIENTS);
                for number in 0..each {
                    ticks.tick().await;
                    side.insert(&database, number).await?;
                }
                Ok(())
            });
        }
        while let Some(written) = clients.join_next().await {
            written??;
        }
        let operations = each * u64::from(CLIENTS);
        running.drained(operations).await?;
        let elapsed = cpu.used()? - before;
        running.end(self.database).await?;
        Ok(Sample::Rate { operations, elapsed })
    }
}
