//! Latency from a commit on PostgreSQL to the effect, over each broker, compared with the same over the embedded log.

use std::time::Duration;

use async_trait::async_trait;
use landfall::postgres::Postgres;

use super::{Contender, fresh_adapter};
use crate::Result;
use crate::bare::Bare;
use crate::contest::{self, Contestant, Sample};
use crate::latency::{Landfall, PER_SECOND, commit_to_effect};
use crate::table::{Row, latency_rows};

/// Returns `None` if this machine cannot run PostgreSQL.
pub(super) async fn latency(contender: &dyn Contender, total: Duration) -> Result<Option<Vec<Row>>> {
    let Some(url) = landfall_testkit::servers::fresh_postgres_database().await else { return Ok(None) };
    let database = <Postgres as Bare>::open(&url).await?;
    let name = format!("commit → effect, PostgreSQL over {}, {PER_SECOND} msg/s", contender.name());
    let mut contestants: [Box<dyn Contestant>; 2] =
        [Box::new(OverBroker { contender, database: &database }), Box::new(Landfall { database: &database })];
    let samples = contest::compare(&name, total, &mut contestants).await?;
    Ok(Some(latency_rows(&name, &["over the embedded log"], &samples)))
}

struct OverBroker<'a> {
    contender: &'a dyn Contender,
    database: &'a Postgres,
}

#[async_trait]
impl Contestant for OverBroker<'_> {
    async fn sample(&mut self, length: Duration) -> Result<Sample> {
        commit_to_effect(self.database, fresh_adapter(self.contender).await?, length).await
    }
}
