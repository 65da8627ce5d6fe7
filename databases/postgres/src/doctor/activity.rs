//! Sessions, open transactions and connections.

use landfall_core::{Finding, Rank, Result};

use super::{Checkup, time};

const SIGHT: (&str, Rank) = ("postgres.sight", Rank::Latency);
const LONG: (&str, Rank) = ("postgres.long-transaction", Rank::Latency);
const PREPARED: (&str, Rank) = ("postgres.prepared-transaction", Rank::Latency);
const CONNECTIONS: (&str, Rank) = ("postgres.connections", Rank::Latency);

/// A transaction that is open for longer was forgotten, or should be split.
const LONG_SECONDS: f64 = 300.0;
/// At most this many are listed: more of them have one cause.
const MOST: i64 = 10;

pub(super) async fn missing_privilege(checkup: &mut Checkup<'_>) -> Result<Option<Finding>> {
    let question = "SELECT quote_ident(current_user), pg_has_role(current_user, 'pg_read_all_stats', 'USAGE')";
    let rows: Vec<(String, bool)> = checkup.ask(sqlx::query_as(question)).await?;
    let judge = |(role, _): (String, bool)| {
        let what = format!(
            "the role {role} cannot see other roles' sessions: long transactions and the lag of standbys were not \
             checked"
        );
        Finding::new(SIGHT, format!("role {role}"), what, format!("GRANT pg_monitor TO {role};"))
    };
    Ok(rows.into_iter().find(|(_, sees)| !sees).map(judge))
}

pub(super) async fn long_transactions(checkup: &mut Checkup<'_>) -> Result<Vec<Finding>> {
    let question = "
        SELECT pid, coalesce(usename, '')::text, coalesce(nullif(application_name, ''), 'an unnamed program'),
               coalesce(state, ''), extract(epoch FROM clock_timestamp() - xact_start)::float8,
               backend_xid IS NOT NULL
        FROM pg_stat_activity
        WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()
          AND xact_start < clock_timestamp() - make_interval(secs => $1)
        ORDER BY xact_start LIMIT $2";
    let rows: Vec<(i32, String, String, String, f64, bool)> =
        checkup.ask(sqlx::query_as(question).bind(LONG_SECONDS).bind(MOST)).await?;
    let judge = |(pid, role, program, state, seconds, writes): (i32, String, String, String, f64, bool)| {
        let holds_up = match writes {
            true => {
                "what it enqueued is not sent, it keeps its locks, and neither sent messages nor dead rows are removed"
            }
            false => "dead rows are not removed, nor are partitions of the outbox that it has read",
        };
        let what =
            format!("{program} (role {role}, {state}) has had a transaction open for {}: {holds_up}", time(seconds));
        let mend = format!(
            "end it: SELECT pg_terminate_backend({pid}); and set idle_in_transaction_session_timeout against the \
             next one"
        );
        Finding::new(LONG, format!("session {pid}"), what, mend)
    };
    Ok(rows.into_iter().map(judge).collect())
}

pub(super) async fn prepared_transactions(checkup: &mut Checkup<'_>) -> Result<Vec<Finding>> {
    let question = "
        SELECT quote_literal(gid), database::text, extract(epoch FROM clock_timestamp() - prepared)::float8
        FROM pg_prepared_xacts WHERE prepared < clock_timestamp() - make_interval(secs => $1)
        ORDER BY prepared LIMIT $2";
    let rows: Vec<(String, String, f64)> = checkup.ask(sqlx::query_as(question).bind(LONG_SECONDS).bind(MOST)).await?;
    let judge = |(name, database, seconds): (String, String, f64)| {
        let what = format!(
            "the transaction {name} in database {database} was prepared {} ago and is neither committed nor rolled \
             back: what it enqueued is not sent, and its locks survive restarts",
            time(seconds)
        );
        let mend =
            format!("COMMIT PREPARED {name}; or ROLLBACK PREPARED {name}; in {database}, as its coordinator decided");
        Finding::new(PREPARED, format!("prepared transaction {name}"), what, mend)
    };
    Ok(rows.into_iter().map(judge).collect())
}

pub(super) async fn connections(checkup: &mut Checkup<'_>) -> Result<Option<Finding>> {
    let question = "
        SELECT (SELECT sum(numbackends)::bigint FROM pg_stat_database),
               current_setting('max_connections')::bigint - current_setting('superuser_reserved_connections')::bigint
                   - coalesce(current_setting('reserved_connections', true)::bigint, 0)";
    let rows: Vec<(i64, i64)> = checkup.ask(sqlx::query_as(question)).await?;
    let judge = |(used, usable): (i64, i64)| {
        let what = format!(
            "{used} of {usable} connections are in use: new ones, also of relays, are about to be \
             refused"
        );
        let mend = "close idle connections, put a pooler in front of the applications, or raise max_connections";
        Finding::new(CONNECTIONS, "max_connections", what, mend)
    };
    Ok(rows.into_iter().find(|(used, usable)| used * 10 >= usable * 9).map(judge))
}
