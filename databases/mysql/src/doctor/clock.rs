//! The server's clock compared with this machine's.

use landfall_core::adapter::ClockSkew;
use landfall_core::{Finding, Result, Timestamp};

use super::{Checkup, text};

const SKEW: &str = "mysql.clock-skew";

pub(super) async fn skew(checkup: &mut Checkup<'_>) -> Result<Option<Finding>> {
    let question = "SELECT CAST(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) DIV 1000 AS CHAR)";
    let asked = Timestamp::now();
    let rows = checkup.ask(question).await?.unwrap_or_default();
    let answered = Timestamp::now();
    let theirs = rows.first().and_then(|row| text(row, 0).parse().ok()).map(Timestamp::from_millis);
    let skew = theirs.map(|theirs| ClockSkew::measured(asked, theirs, answered));
    Ok(skew.and_then(|skew| skew.database_finding(SKEW, checkup.database.inner.server.address())))
}
