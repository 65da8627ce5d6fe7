//! The server's clock beside this machine's.

use landfall_core::{ClockSkew, Finding, Rank, Result, Timestamp};

use super::{Patient, finding, text};

const SKEW: (&str, Rank) = ("mysql.clock-skew", Rank::Latency);

pub(super) async fn skew(patient: &mut Patient<'_>) -> Result<Option<Finding>> {
    let question = "SELECT CAST(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) DIV 1000 AS CHAR)";
    let asked = Timestamp::now();
    let rows = patient.ask(question).await?.unwrap_or_default();
    let answered = Timestamp::now();
    let theirs = rows.first().and_then(|row| text(row, 0).parse().ok()).map(Timestamp::from_millis);
    let skew = theirs.map(|theirs| ClockSkew::measured(asked, theirs, answered));
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
    Ok(skew.filter(|skew| !skew.is_tolerable()).map(judge))
}
