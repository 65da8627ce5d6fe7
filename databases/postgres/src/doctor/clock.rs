//! The server's clock compared with this machine's.

use landfall_core::adapter::ClockSkew;
use landfall_core::{Finding, Result, Timestamp};

use super::Checkup;

const SKEW: &str = "postgres.clock-skew";

pub(super) async fn skew(checkup: &mut Checkup<'_>) -> Result<Option<Finding>> {
    let question = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint";
    let mut measured = None;
    // The first round trip includes preparing the statement, and possibly waking the connection.
    for _ in 0..2 {
        let asked = Timestamp::now();
        let rows: Vec<(i64,)> = checkup.ask(sqlx::query_as(question)).await?;
        let theirs = rows.first().map(|(millis,)| Timestamp::from_millis(*millis));
        measured = theirs.map(|theirs| ClockSkew::measured(asked, theirs, Timestamp::now()));
    }
    Ok(measured.and_then(|skew| skew.database_finding(SKEW, checkup.database.inner.server.address())))
}
