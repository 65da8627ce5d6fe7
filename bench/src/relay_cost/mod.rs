//! What a relay costs its database: writers' throughput beside it, CPU of the server per message and at rest, and the
//! latency of writers that know only SQL. The peer is the poller of most tutorials, eagerly set to 5 ms.
//!
//! Both sides write with the same plain `INSERT`, and hand what they read to the same broker, which only reports it.

mod at_rest;
mod plain_sql;
mod poller;
mod server_cpu;
mod side;
mod steady;
mod writers;

use std::time::Duration;

use landfall::postgres::Postgres;

use crate::Result;
use crate::table::Row;

pub(crate) async fn measure(database: &Postgres, total: Duration) -> Result<Vec<Row>> {
    poller::create_table(database.pool()).await?;
    let mut rows = writers::measure(database, total).await?;
    rows.extend(steady::measure(database, total).await?);
    for per_second in [20, 500] {
        rows.extend(plain_sql::measure(database, per_second, total).await?);
    }
    rows.extend(at_rest::measure(database).await?);
    Ok(rows)
}
