//! A pooler between this process and the server.

use landfall_core::{Finding, Rank, Result};
use sqlx::{Connection, PgConnection, Row};

use super::DOING;
use crate::Postgres;

const CHECK: &str = "postgres.pooler";
/// A busy pooler may hand out two connections of the server by chance; one that shares them will not do so every time.
const LOOKS: u32 = 3;

/// Whether connections are shared by the transaction. Two connections that are open at the same time and answer with the
/// same backend can be nothing else.
pub(super) async fn sharing(database: &Postgres) -> Result<Vec<Finding>> {
    let place = &database.inner.place;
    if database.inner.pooler {
        let what = format!(
            "connections to {place} come from a pooler that shares them by the transaction: wake-ups from \
             other processes do not pass, and the relay learns of their messages when it polls"
        );
        let mend = "give the relay a URL that leads to the server itself, without pooler=transaction";
        return Ok(vec![Finding::new((CHECK, Rank::Latency), place, what, mend)]);
    }
    let could_not = || database.could_not(DOING);
    let mut one = database.pool().acquire().await.map_err(could_not())?;
    let target = database.pool().connect_options();
    let mut other = PgConnection::connect_with(&target).await.map_err(could_not())?;
    let mut is_shared = false;
    for _ in 0..LOOKS {
        let first = backend(&mut one).await.map_err(could_not())?;
        is_shared |= first == backend(&mut other).await.map_err(could_not())?;
    }
    // The server notices by itself if this goodbye is lost.
    let _ = other.close().await;
    if !is_shared {
        return Ok(Vec::new());
    }
    let what = format!(
        "a pooler in front of {place} shares connections by the transaction and nobody told landfall: a \
         prepared statement can meet another program's of the same name, and wake-ups are not heard"
    );
    let mend = "add ?pooler=transaction to the URL, or use pool_mode = session";
    Ok(vec![Finding::new((CHECK, Rank::Loss), place, what, mend)])
}

/// In one message, and without preparing anything.
async fn backend(connection: &mut PgConnection) -> sqlx::Result<i32> {
    sqlx::raw_sql("SELECT pg_backend_pid()").fetch_one(connection).await?.try_get(0)
}
