//! The server's clock beside this machine's.

use landfall_core::{ClockSkew, Finding, Rank, Result, Timestamp};

use super::{Patient, finding};

const SKEW: (&str, Rank) = ("postgres.clock-skew", Rank::Latency);

pub(super) async fn skew(patient: &mut Patient<'_>) -> Result<Option<Finding>> {
    let question = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint";
    let mut measured = None;
    // The first time the statement is prepared, and the connection may have slept.
    for _ in 0..2 {
        let asked = Timestamp::now();
        let rows: Vec<(i64,)> = patient.ask(sqlx::query_as(question)).await?;
        let theirs = rows.first().map(|(millis,)| Timestamp::from_millis(*millis));
        measured = theirs.map(|theirs| ClockSkew::measured(asked, theirs, Timestamp::now()));
    }
    let judge = |skew: ClockSkew| {
        let what = format!(
            "the server's clock is {skew}: leases and retries go by the server's, the times in messages by their sender's, \
             so that ages and delays are told wrong by so much"
        );
        finding(
            SKEW,
            &patient.database.inner.place,
            what,
            "keep both clocks by a time server (chrony, systemd-timesyncd)",
        )
    };
    Ok(measured.filter(|skew| !skew.is_tolerable()).map(judge))
}
