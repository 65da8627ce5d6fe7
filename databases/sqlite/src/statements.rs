//! Every SQL text of this crate, built once per instance from the table prefix.
//!
//! `{p}` becomes the prefix (a validated identifier, the only text that is ever pasted into SQL) and `{now}` SQLite's
//! clock in milliseconds. Lists of ids travel as one JSON array, so that a statement has the same text, and stays
//! prepared, whatever their number.

use std::sync::Arc;

use landfall_core::TablePrefix;
use sqlx::{AssertSqlSafe, SqlSafeStr, SqlStr};

/// Milliseconds since 1970, exactly: SQLite counts days in a double, which is precise to 0.04 ms, so it is rounded.
const NOW: &str = "CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER)";

/// The rows that may be published now. A row that waits for its next attempt, or stands behind a dead letter, holds
/// back its topic and key; one without a key equals nobody's and holds nobody.
///
/// The clock is read once, because SQLite promises that it stands still only for one row of an answer: a head that was
/// not yet due when it was looked at could be so when its successor is, and would be overtaken.
const DUE: &str = "WITH clock (now) AS MATERIALIZED (SELECT {now})
    SELECT {columns} FROM clock CROSS JOIN {p}outbox o
    WHERE (o.next_attempt_at IS NULL OR o.next_attempt_at <= clock.now)
    AND NOT EXISTS (
        SELECT 1 FROM {p}outbox w WHERE w.topic = o.topic AND w.key = o.key AND w.next_attempt_at > clock.now)
    AND NOT EXISTS (
        SELECT 1 FROM {p}held_key h WHERE h.consumer_group = '' AND h.topic = o.topic AND h.key = o.key)
    ORDER BY o.id LIMIT ";

/// What a [`Message`](landfall_core::Message) is made of. A payload that a foreign writer stored as text is its bytes.
const MESSAGE: &str = "message_id, topic, key, sequence, kind, mode, headers, created_at,
    CAST(payload AS BLOB) AS payload";

/// Where a message of the outbox is, as people see it: still to be sent, parked, or sent and kept.
/// The same columns in each, so that the view of the tables can put them together.
const OUTBOX_OPEN: &str = "SELECT o.id, o.message_id, o.topic, o.key,
        CASE WHEN o.attempts > 0 THEN 'retrying'
            WHEN EXISTS (
                SELECT 1 FROM {p}outbox w
                WHERE w.topic = o.topic AND w.key = o.key AND w.id <> o.id AND w.next_attempt_at IS NOT NULL)
            OR EXISTS (
                SELECT 1 FROM {p}held_key h WHERE h.consumer_group = '' AND h.topic = o.topic AND h.key = o.key)
            THEN 'waiting' ELSE 'pending' END AS state,
        o.attempts, o.next_attempt_at, o.last_error, o.created_at, NULL AS sent_at,
        length(CAST(o.payload AS BLOB)) AS payload_bytes{more}
    FROM {p}outbox o";
const OUTBOX_PARKED: &str = "SELECT o.outbox_id AS id, o.message_id, o.topic, o.key, 'parked' AS state,
        o.attempts, NULL AS next_attempt_at, o.error_code || ': ' || o.error AS last_error, o.created_at,
        NULL AS sent_at, length(CAST(o.payload AS BLOB)) AS payload_bytes{more}
    FROM {p}dead_letter o WHERE o.consumer_group = '' AND o.status = 'parked'";
const OUTBOX_SENT: &str = "SELECT o.id, o.message_id, o.topic, o.key, 'sent' AS state,
        o.attempts, NULL AS next_attempt_at, o.last_error, o.created_at, o.sent_at,
        length(CAST(o.payload AS BLOB)) AS payload_bytes{more}
    FROM {p}outbox_sent o";
/// What only somebody who asks for one message wants to see of it.
const OUTBOX_MORE: &str = ", o.sequence, o.kind, o.mode, o.headers, CAST(o.payload AS BLOB) AS payload";

/// Texts that people read are cut: an error may carry a whole page of HTML.
const ERROR_CHARACTERS: &str = "2000";

pub(crate) fn expand(text: &str, prefix: &TablePrefix) -> String {
    text.replace("{message}", MESSAGE)
        .replace("{outbox_open}", OUTBOX_OPEN)
        .replace("{outbox_parked}", OUTBOX_PARKED)
        .replace("{outbox_sent}", OUTBOX_SENT)
        .replace("{more}", "")
        .replace("{error_characters}", ERROR_CHARACTERS)
        .replace("{now}", NOW)
        .replace("{p}", prefix.as_str())
}

fn statement(text: &str, prefix: &TablePrefix) -> SqlStr {
    // Shared, so that a use costs no copy of the text.
    AssertSqlSafe(Arc::<str>::from(expand(text, prefix))).into_sql_str()
}

macro_rules! statements {
    ($($name:ident = $text:expr;)*) => {
        pub(crate) struct Statements {
            $(pub(crate) $name: SqlStr,)*
        }

        impl Statements {
            pub(crate) fn new(prefix: &TablePrefix) -> Self {
                Self { $($name: statement($text, prefix),)* }
            }
        }
    };
}

statements! {
    schema_version = "SELECT coalesce(max(version), 0) FROM {p}schema";

    // Outbox: writing.
    enqueue_1 = &enqueue(1);
    enqueue_8 = &enqueue(8);
    enqueue_64 = &enqueue(64);

    // Outbox: the relay.
    next = &format!("{}?1", DUE.replace("{columns}", "o.id, o.attempts, {message}"));
    is_any_due = &format!("SELECT EXISTS ({}1)", DUE.replace("{columns}", "1"));
    lease_is_held = "SELECT EXISTS (SELECT 1 FROM {p}lease WHERE name = ?1 AND holder = ?2 AND epoch = ?3)";
    // One that a foreign writer gave the number of an earlier one takes its place: the newer is worth more.
    keep_sent = "INSERT OR REPLACE INTO {p}outbox_sent (id, message_id, topic, key, sequence, kind, mode, headers,
            created_at, attempts, last_error, payload)
        SELECT id, lower(message_id), topic, key, sequence, kind, mode, headers, created_at, attempts, last_error,
            payload
        FROM {p}outbox WHERE id IN (SELECT value FROM json_each(?1))";
    published = "DELETE FROM {p}outbox WHERE id IN (SELECT value FROM json_each(?1)) RETURNING id";
    count_published = "UPDATE {p}outbox_published SET count = count + ?1 WHERE shard = 0";
    retry = "UPDATE {p}outbox SET attempts = attempts + 1, next_attempt_at = {now} + ?2,
            last_error = substr(?3, 1, {error_characters})
        WHERE id = ?1";
    // One that was parked before, redriven and now fails again is the same dead letter.
    park_outbox_row = "INSERT INTO {p}dead_letter (message_id, topic, key, sequence, kind, mode, headers, created_at,
            outbox_id, status, error_code, error, holds_key, attempts, payload)
        SELECT lower(message_id), topic, key, sequence, kind, mode, headers, created_at,
            id, 'parked', ?2, substr(?3, 1, {error_characters}), ?4, attempts + ?5, payload
        FROM {p}outbox WHERE id = ?1 AND attempts >= ?6
        ON CONFLICT (outbox_id) WHERE consumer_group = '' DO UPDATE SET
            message_id = excluded.message_id, topic = excluded.topic, key = excluded.key,
            sequence = excluded.sequence, kind = excluded.kind, mode = excluded.mode, headers = excluded.headers,
            payload = excluded.payload, status = 'parked', error_code = excluded.error_code,
            error = excluded.error, holds_key = excluded.holds_key, attempts = attempts + excluded.attempts,
            last_attempt = {now}, done_at = NULL
        RETURNING id";
    remove_outbox_row = "DELETE FROM {p}outbox WHERE id = ?1";

    // Outbox: people.
    outbox_stats = "SELECT
            count(*) FILTER (WHERE attempts = 0) AS pending,
            count(*) FILTER (WHERE attempts > 0) AS retrying,
            max(coalesce({now} - min(created_at), 0), 0) / 1000.0 AS oldest_seconds,
            (SELECT count(*) FROM {p}dead_letter
                WHERE consumer_group = '' AND status <> 'done' AND status = 'parked') AS parked,
            (SELECT coalesce(sum(count), 0) FROM {p}outbox_published) AS published
        FROM {p}outbox";
    outbox_open = "SELECT * FROM ({outbox_open}) WHERE 1";
    outbox_parked = "SELECT * FROM ({outbox_parked}) WHERE 1";
    outbox_sent = "SELECT * FROM ({outbox_sent}) WHERE 1";
    // A foreign writer may have spelled an id with capital letters; from here on it has none.
    outbox_show = &[(OUTBOX_OPEN, "lower(message_id)"), (OUTBOX_PARKED, "message_id"), (OUTBOX_SENT, "message_id")]
        .map(|(part, id)| format!("SELECT * FROM ({}) WHERE {id} = ?1", part.replace("{more}", OUTBOX_MORE)))
        .join(" UNION ALL ");
    retry_now = "UPDATE {p}outbox SET next_attempt_at = {now}
        WHERE id IN (SELECT value FROM json_each(?1)) AND next_attempt_at > {now} RETURNING id";
    record_row = "INSERT INTO {p}audit (actor, action, message_id, detail)
        SELECT ?2, ?3, lower(message_id), ?4 FROM {p}outbox WHERE id IN (SELECT value FROM json_each(?1)) ORDER BY id";

    // Housekeeping. ?1 is an age and ?2 at most how many.
    remove_sent = "DELETE FROM {p}outbox_sent WHERE id IN (
        SELECT id FROM {p}outbox_sent WHERE sent_at <= {now} - ?1 ORDER BY sent_at LIMIT ?2)";
    old_sent = &format!("SELECT * FROM ({}) WHERE sent_at <= {{now}} - ?1 ORDER BY sent_at LIMIT ?2",
        OUTBOX_SENT.replace("{more}", OUTBOX_MORE));
    remove_these_sent = "DELETE FROM {p}outbox_sent WHERE id IN (SELECT value FROM json_each(?1))";
    // As long as a letter is there, done or not, its id is: a redrive gives a message a second life.
    forget_handled = "DELETE FROM {p}inbox WHERE (consumer_group, message_id) IN (
        SELECT i.consumer_group, i.message_id FROM {p}inbox i
        WHERE i.handled_at <= {now} - ?1 AND NOT EXISTS (
            SELECT 1 FROM {p}dead_letter d WHERE d.message_id = i.message_id AND +d.consumer_group = i.consumer_group)
        ORDER BY i.handled_at LIMIT ?2)";
    remove_done_letters = "DELETE FROM {p}dead_letter WHERE id IN (
        SELECT id FROM {p}dead_letter WHERE status = 'done' AND done_at <= {now} - ?1 ORDER BY done_at LIMIT ?2)";
    forget_sequences = "DELETE FROM {p}sequence WHERE (consumer_group, topic, key) IN (
        SELECT s.consumer_group, s.topic, s.key FROM {p}sequence s
        WHERE s.since <= {now} - ?1 AND NOT EXISTS (
            SELECT 1 FROM {p}dead_letter d WHERE d.consumer_group = s.consumer_group AND d.topic = s.topic
                AND d.key = s.key AND d.status <> 'done')
        LIMIT ?2)";

    // Leases. One millisecond more than asked for makes up for what {now} is rounded down: a lease must not end here
    // before its holder thinks so.
    lease_acquire = "INSERT INTO {p}lease (name, holder, epoch, expires_at) VALUES (?1, ?2, 1, {now} + ?3 + 1)
        ON CONFLICT (name) DO UPDATE SET
            epoch = epoch + (holder IS NULL OR expires_at <= {now}),
            holder = excluded.holder,
            expires_at = excluded.expires_at
        WHERE holder IS NULL OR holder = excluded.holder OR expires_at <= {now}
        RETURNING epoch";
    lease_renew = "UPDATE {p}lease SET expires_at = {now} + ?4 + 1 WHERE name = ?1 AND holder = ?2 AND epoch = ?3";
    lease_release = "UPDATE {p}lease SET holder = NULL, expires_at = {now}
        WHERE name = ?1 AND holder = ?2 AND epoch = ?3";
    leases_held = "SELECT name FROM {p}lease
        WHERE substr(name, 1, length(?1)) = ?1 AND holder IS NOT NULL AND expires_at > {now} ORDER BY name";
    leases_lapsed = "SELECT DISTINCT holder FROM {p}lease
        WHERE substr(name, 1, length(?1)) = ?1 AND holder IS NOT NULL AND expires_at <= {now} ORDER BY holder";

    // Inbox. No row from `admit`: the id was there before.
    admit = "INSERT INTO {p}inbox (consumer_group, message_id) VALUES (?1, ?2) ON CONFLICT DO NOTHING
        RETURNING EXISTS (SELECT 1 FROM {p}held_key WHERE consumer_group = ?1 AND topic = ?3 AND key = ?4)";
    is_held = "SELECT EXISTS (SELECT 1 FROM {p}held_key WHERE consumer_group = ?1 AND topic = ?2 AND key = ?3)";
    // ?2 is a JSON array, of ids and of pairs of topic and key.
    admit_batch = "INSERT INTO {p}inbox (consumer_group, message_id)
        SELECT ?1, value FROM json_each(?2) WHERE true ON CONFLICT DO NOTHING RETURNING message_id";
    handled = "SELECT message_id FROM {p}inbox
        WHERE consumer_group = ?1 AND message_id IN (SELECT value FROM json_each(?2))";
    are_held = "SELECT held.topic, held.key FROM json_each(?2) given
        CROSS JOIN {p}held_key held ON held.consumer_group = ?1
            AND held.topic = json_extract(given.value, '$[0]') AND held.key = json_extract(given.value, '$[1]')";
    wait_behind = &format!("{INSERT_DEAD_LETTER} DO NOTHING");
    park = &format!("{INSERT_DEAD_LETTER} DO UPDATE SET
            status = excluded.status, error_code = excluded.error_code, error = excluded.error,
            attempts = excluded.attempts, holds_key = excluded.holds_key, last_attempt = {{now}},
            retry_at = excluded.retry_at
        RETURNING id");
    next_delayed = "SELECT d.id, d.attempts, d.redrives, d.original_partition, d.original_offset, {message}
        FROM {p}dead_letter d
        WHERE d.consumer_group = ?1 AND d.status = 'delayed' AND d.retry_at <= {now}
        AND d.id NOT IN (SELECT value FROM json_each(?2)) AND NOT EXISTS (
            SELECT 1 FROM {p}dead_letter e
            WHERE e.consumer_group = d.consumer_group AND e.topic = d.topic AND e.key = d.key AND e.id < d.id
                AND e.status <> 'done' AND e.holds_key)
        ORDER BY d.retry_at LIMIT 1";
    next_redriven = "SELECT d.id, d.attempts, d.redrives, d.original_partition, d.original_offset, {message}
        FROM {p}dead_letter d
        WHERE d.consumer_group = ?1 AND d.status IN ('redriving', 'waiting')
        AND d.id NOT IN (SELECT value FROM json_each(?2)) AND NOT EXISTS (
            SELECT 1 FROM {p}dead_letter e
            WHERE e.consumer_group = d.consumer_group AND e.topic = d.topic AND e.key = d.key AND e.id < d.id
                AND e.status <> 'done' AND e.holds_key)
        ORDER BY d.id LIMIT 1";
    complete_redriven = "UPDATE {p}dead_letter
        SET status = 'done', last_attempt = {now}, done_at = {now}, retry_at = NULL
        WHERE id = ?1 AND status IN ('redriving', 'waiting', 'delayed') RETURNING consumer_group";
    park_redriven = "UPDATE {p}dead_letter SET status = iif(?5 IS NULL, 'parked', 'delayed'), attempts = ?4,
            error_code = ?2, error = substr(?3, 1, {error_characters}), last_attempt = {now}, retry_at = {now} + ?5,
            holds_key = holds_key AND ?6
        WHERE id = ?1 AND status IN ('redriving', 'waiting', 'delayed') RETURNING consumer_group";

    // What each entity has reached; ?2 is a JSON array of [topic, key] and of [topic, key, number].
    reached = "SELECT known.topic, known.key, known.reached FROM json_each(?2) given
        CROSS JOIN {p}sequence known ON known.consumer_group = ?1
            AND known.topic = json_extract(given.value, '$[0]') AND known.key = json_extract(given.value, '$[1]')";
    reach = "INSERT INTO {p}sequence (consumer_group, topic, key, reached)
        SELECT ?1, json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]')
        FROM json_each(?2) WHERE true
        ON CONFLICT (consumer_group, topic, key) DO UPDATE SET reached = excluded.reached, since = {now}";

    // Dead letters; ?1 is a JSON array of their ids.
    hold_keys = "INSERT INTO {p}held_key (consumer_group, topic, key)
        SELECT consumer_group, topic, key FROM {p}dead_letter
        WHERE id IN (SELECT value FROM json_each(?1)) AND key IS NOT NULL AND holds_key
        ON CONFLICT DO NOTHING";
    // Only where no dead letter of the key is left open: parked ones, and those that wait, still hold it. One that was
    // skipped does not.
    release_keys = "DELETE FROM {p}held_key AS h
        WHERE (consumer_group, topic, key) IN (
            SELECT consumer_group, topic, key FROM {p}dead_letter WHERE id IN (SELECT value FROM json_each(?1)))
        AND NOT EXISTS (
            SELECT 1 FROM {p}dead_letter d
            WHERE d.consumer_group = h.consumer_group AND d.topic = h.topic AND d.key = h.key AND d.status <> 'done'
                AND d.holds_key)";
    record = "INSERT INTO {p}audit (actor, action, dead_letter_id, message_id, detail)
        SELECT ?2, ?3, id, message_id, ?4 FROM {p}dead_letter WHERE id IN (SELECT value FROM json_each(?1)) ORDER BY id";
    // The plus keeps SQLite from walking through all that the relay ever parked instead of looking up the ids.
    return_to_outbox = "INSERT INTO {p}outbox (id, message_id, topic, key, sequence, kind, mode, headers, created_at, payload)
        SELECT outbox_id, message_id, topic, key, sequence, kind, mode, headers, created_at, payload
        FROM {p}dead_letter WHERE id IN (SELECT value FROM json_each(?1)) AND +consumer_group = ''";
    redrive = "UPDATE {p}dead_letter SET redrives = redrives + 1,
            status = CASE consumer_group WHEN '' THEN 'done' ELSE 'redriving' END,
            done_at = CASE consumer_group WHEN '' THEN {now} END
        WHERE id IN (SELECT value FROM json_each(?1))";
    dead_letters_to_redrive = "SELECT id, status, consumer_group FROM {p}dead_letter WHERE 1";
    dead_letters = "SELECT id, message_id, consumer_group, topic, key, sequence, kind, status, error_code, error,
            attempts, redrives, original_partition, original_offset, first_seen, last_attempt, retry_at, headers,
            CAST(payload AS BLOB) AS payload
        FROM {p}dead_letter WHERE 1";
    parked_age_p95 = "SELECT max({now} - first_seen, 0) FROM {p}dead_letter WHERE status = 'parked'
        ORDER BY first_seen LIMIT 1 OFFSET ?1";
    dead_letter_stats = "SELECT status, count(*) FROM {p}dead_letter GROUP BY status";
}

const INSERT_DEAD_LETTER: &str = "INSERT INTO {p}dead_letter (consumer_group, message_id, topic, key, sequence, kind,
        mode, headers, created_at, payload, original_partition, original_offset, status, error_code, error, attempts,
        holds_key, retry_at)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, substr(?15, 1, {error_characters}), ?16, ?17,
        {now} + ?18)
    ON CONFLICT (consumer_group, message_id, topic, coalesce(key, '')) WHERE consumer_group <> ''";

/// An insert of `rows` messages at once, in their order.
fn enqueue(rows: usize) -> String {
    let row = "(?, ?, ?, ?, ?, ?, ?, ?, ?)";
    format!(
        "INSERT INTO {{p}}outbox (message_id, topic, key, sequence, kind, mode, headers, created_at, payload) VALUES {}",
        vec![row; rows].join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_prefix_is_all_that_is_pasted_into_a_statement() {
        let statements = Statements::new(&TablePrefix::new("shop_").unwrap());
        for statement in [&statements.next, &statements.is_any_due, &statements.park, &statements.enqueue_8] {
            let text = statement.as_str();
            assert!(text.contains("shop_outbox") || text.contains("shop_dead_letter"), "{text}");
            assert!(!text.contains(['{', '}']), "{text}");
        }
    }

    #[test]
    fn what_is_due_is_judged_by_one_moment() {
        let statements = Statements::new(&TablePrefix::default());
        for statement in [&statements.next, &statements.is_any_due] {
            assert_eq!(statement.as_str().matches("'now'").count(), 1, "{}", statement.as_str());
        }
    }
}
