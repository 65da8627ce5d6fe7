//! Open transactions and connections.

use landfall_core::{Finding, Rank, Result, Span};

use super::variables::Variables;
use super::{Checkup, hidden, text};

const LONG: (&str, Rank) = ("mysql.long-transaction", Rank::Latency);
const PREPARED: (&str, Rank) = ("mysql.prepared-transaction", Rank::Latency);
const CONNECTIONS: (&str, Rank) = ("mysql.connections", Rank::Latency);

/// A transaction open for more than 300 seconds was forgotten, or should be split. `trx_started` is in the time zone of
/// the server's process, not of the session. At most ten are listed: more of them have one cause.
const QUESTION: &str = "
    SELECT trx_mysql_thread_id, age, trx_rows_modified FROM (
        SELECT trx_mysql_thread_id, trx_rows_modified,
               TIMESTAMPDIFF(SECOND, trx_started, CONVERT_TZ(UTC_TIMESTAMP(), '+00:00', 'SYSTEM')) AS age
        FROM information_schema.innodb_trx WHERE trx_mysql_thread_id <> CONNECTION_ID()) AS open_for
    WHERE age > 300 ORDER BY age DESC LIMIT 10";

pub(super) async fn long_transactions(checkup: &mut Checkup<'_>) -> Result<Vec<Finding>> {
    let Some(rows) = checkup.ask(QUESTION).await? else {
        return Ok(vec![hidden("long transactions were", "PROCESS")]);
    };
    let judge = |row: &sqlx::mysql::MySqlRow| {
        let (thread, age, changes) = (text(row, 0), text(row, 1), text(row, 2));
        let age = Span::Time(std::time::Duration::from_secs(age.parse().unwrap_or_default()));
        // No connection: it was prepared by a coordinator that has disconnected.
        if thread == "0" {
            let what = format!(
                "a transaction was prepared {age} ago and is neither committed nor rolled back: what it enqueued is \
                 not sent, and its {changes} changed rows stay locked, also after a restart"
            );
            let mend = "XA RECOVER; lists it; XA COMMIT or XA ROLLBACK it, as its coordinator decided";
            return Finding::new(PREPARED, "prepared transaction", what, mend);
        }
        let what = format!(
            "the connection {thread} has had a transaction open for {age}: what it enqueued is not sent, its {changes} \
             changed rows stay locked, and old versions of all rows are kept for it"
        );
        Finding::new(LONG, format!("connection {thread}"), what, format!("end it: KILL {thread};"))
    };
    Ok(rows.iter().map(judge).collect())
}

pub(super) fn connections(variables: &Variables) -> Option<Finding> {
    let (used, usable) = (variables.number("threads_connected")?, variables.number("max_connections")?);
    let what = format!("{used} of {usable} connections are in use: new ones, also of relays, are about to be refused");
    let mend = "close idle connections, use smaller pools, or raise max_connections";
    (used * 10 >= usable * 9).then(|| Finding::new(CONNECTIONS, "max_connections", what, mend))
}
