//! A pooler between this process and the server.

use landfall_core::{Finding, Rank, Result};
use sqlx::{Connection, PgConnection, Row};

use super::DOING;
use crate::Postgres;

const CHECK: &str = "postgres.pooler";
/// A busy pooler may assign two server connections by chance, but not every time.
const PROBES: u32 = 3;

/// Reports a pooler in transaction mode. It is the only way in which two connections that are open at the same time
/// answer from the same backend.
pub(super) async fn sharing(database: &Postgres) -> Result<Vec<Finding>> {
    let address = database.inner.server.address();
    if database.inner.pooler {
        let what = format!(
            "connections to {address} go through a pooler in transaction mode: wake-ups from other processes do not \
             pass, and the relay finds their messages when it polls"
        );
        let mend = "give the relay a URL of the server itself, without pooler=transaction";
        return Ok(vec![Finding::new((CHECK, Rank::Latency), address, what, mend)]);
    }
    let could_not = || database.could_not(DOING);
    let mut one = database.pool().acquire().await.map_err(could_not())?;
    let target = database.pool().connect_options();
    let mut other = PgConnection::connect_with(&target).await.map_err(could_not())?;
    let mut is_shared = false;
    for _ in 0..PROBES {
        let first = backend(&mut one).await.map_err(could_not())?;
        is_shared |= first == backend(&mut other).await.map_err(could_not())?;
    }
    // The server also notices a connection that is closed without a message.
    let _ = other.close().await;
    if !is_shared {
        return Ok(Vec::new());
    }
    let what = format!(
        "a pooler in transaction mode is in front of {address}, and landfall is not configured for it: a prepared \
         statement can collide with another program's of the same name, and wake-ups are lost"
    );
    let mend = "add ?pooler=transaction to the URL, or use pool_mode = session";
    Ok(vec![Finding::new((CHECK, Rank::Loss), address, what, mend)])
}

/// Asks in one protocol message, without a prepared statement.
async fn backend(connection: &mut PgConnection) -> sqlx::Result<i32> {
    sqlx::raw_sql("SELECT pg_backend_pid()").fetch_one(connection).await?.try_get(0)
}
