//! Every statement of the adapter, built once per instance.
//!
//! `{p}` is the validated table prefix, the only text that is ever pasted into SQL. `{now}` is SQLite's clock in
//! milliseconds. Ids travel as one JSON array, so that a statement has the same text, and stays prepared, for every
//! number of them.

use landfall_core::TablePrefix;
use landfall_sql_toolkit::{fill_prefix, statements};

pub(crate) use landfall_sql_toolkit::Sql;

/// Milliseconds since 1970. SQLite counts days in a double, which is precise to 0.04 ms, so the value is rounded.
const NOW: &str = "CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER)";

/// Whether a lease has expired. Its holder writes now + `ttl_ms`, and a clock that is set back makes that moment more
/// distant. An expiry further away than twice `ttl_ms` was written under a wrong clock and counts as expired. Rows of
/// schema version 1 have no `ttl_ms`; for them the longest configurable lease is assumed.
const EXPIRED: &str = "(expires_at <= {now} OR {misdated})";
const MISDATED: &str = "expires_at > {now} + 2 * coalesce(ttl_ms, 3600000)";

/// The rows that may be published now. A row that waits for its next attempt, or behind a dead letter, blocks its topic
/// and key. A row without a key blocks nothing.
///
/// The clock is read once, because SQLite keeps it constant only for one row of a result. Otherwise a row that is not
/// yet due when it is read could become due when its successor is read, and would be overtaken.
const DUE: &str = "WITH clock (now) AS MATERIALIZED (SELECT {now})
    SELECT {columns} FROM clock CROSS JOIN {p}outbox o
    WHERE (o.next_attempt_at IS NULL OR o.next_attempt_at <= clock.now)
    AND NOT EXISTS (
        SELECT 1 FROM {p}outbox w WHERE w.topic = o.topic AND w.key = o.key AND w.next_attempt_at > clock.now)
    AND NOT EXISTS (
        SELECT 1 FROM {p}held_key h WHERE h.consumer_group = '' AND h.topic = o.topic AND h.key = o.key)
    ORDER BY o.id LIMIT ";

/// The columns of a [`Message`](landfall_core::Message). A payload that a foreign writer stored as text is read as
/// bytes. Only the outbox has a column for text.
const MESSAGE: &str = "message_id, topic, key, sequence, kind, mode, headers, created_at,
    CAST(payload AS BLOB) AS payload";
const OUTBOX_MESSAGE: &str = "message_id, topic, key, sequence, kind, mode, headers, created_at,
    CAST(coalesce(payload, payload_text) AS BLOB) AS payload";

/// Rows of the outbox as operators see them: unsent, parked and sent. The columns are the same, so that a view can
/// combine them.
const OUTBOX_OPEN: &str = "SELECT o.id, o.message_id, o.topic, o.key,
        CASE WHEN o.attempts > 0 THEN 'retrying'
            WHEN EXISTS (
                SELECT 1 FROM {p}outbox w
                WHERE w.topic = o.topic AND w.key = o.key AND w.id <> o.id AND w.next_attempt_at IS NOT NULL)
            OR EXISTS (
                SELECT 1 FROM {p}held_key h WHERE h.consumer_group = '' AND h.topic = o.topic AND h.key = o.key)
            THEN 'waiting' ELSE 'pending' END AS state,
        o.attempts, o.next_attempt_at, o.last_error, o.created_at, NULL AS sent_at,
        length(CAST({payload} AS BLOB)) AS payload_bytes{more}
    FROM {p}outbox o";
const OUTBOX_PAYLOAD: &str = "coalesce(o.payload, o.payload_text)";
const OUTBOX_PARKED: &str = "SELECT o.outbox_id AS id, o.message_id, o.topic, o.key, 'parked' AS state,
        o.attempts, NULL AS next_attempt_at, o.error_code || ': ' || o.error AS last_error, o.created_at,
        NULL AS sent_at, length(CAST(o.payload AS BLOB)) AS payload_bytes{more}
    FROM {p}dead_letter o WHERE o.consumer_group = '' AND o.status = 'parked'";
const OUTBOX_SENT: &str = "SELECT o.id, o.message_id, o.topic, o.key, 'sent' AS state,
        o.attempts, NULL AS next_attempt_at, o.last_error, o.created_at, o.sent_at,
        length(CAST(o.payload AS BLOB)) AS payload_bytes{more}
    FROM {p}outbox_sent o";
/// The columns that are read only for a single message.
const OUTBOX_MORE: &str = ", o.sequence, o.kind, o.mode, o.headers, CAST({payload} AS BLOB) AS payload";

/// The longest error that is stored: an error can contain a whole page of HTML.
const MAX_ERROR_CHARACTERS: &str = "2000";

/// Expands the words of a template and fills in the prefix.
pub(crate) fn fill(template: &str, prefix: &TablePrefix) -> String {
    fill_prefix(&expand_words(template), prefix)
}

/// Expands every word of a template except for the prefix.
fn expand_words(template: &str) -> String {
    template
        .replace("{message}", MESSAGE)
        .replace("{outbox_message}", OUTBOX_MESSAGE)
        .replace("{outbox_open}", &OUTBOX_OPEN.replace("{payload}", OUTBOX_PAYLOAD))
        // As in schema version 1.
        .replace("{outbox_open_1}", &OUTBOX_OPEN.replace("{payload}", "o.payload"))
        .replace("{outbox_parked}", OUTBOX_PARKED)
        .replace("{outbox_sent}", OUTBOX_SENT)
        .replace("{more}", "")
        .replace("{expired}", EXPIRED)
        .replace("{misdated}", MISDATED)
        .replace("{error_characters}", MAX_ERROR_CHARACTERS)
        .replace("{now}", NOW)
}

statements! {
    expand = expand_words;

    schema_version: Sql = "SELECT coalesce(max(version), 0) FROM {p}schema";

    // Outbox: writing.
    enqueue_1: Sql = &enqueue(1);
    enqueue_8: Sql = &enqueue(8);
    enqueue_64: Sql = &enqueue(64);

    // Ids of senders that retry.
    insert_enqueued_id: Sql = "INSERT INTO {p}enqueued_id (message_id, fingerprint) VALUES (?1, ?2)
        ON CONFLICT DO NOTHING";
    enqueued_fingerprint: Sql = "SELECT fingerprint FROM {p}enqueued_id WHERE message_id = ?1";

    // Outbox: the relay.
    next: Sql = &format!("{}?1", DUE.replace("{columns}", "o.id, o.attempts, {outbox_message}"));
    is_any_due: Sql = &format!("SELECT EXISTS ({}1)", DUE.replace("{columns}", "1"));
    lease_is_held: Sql = "SELECT EXISTS (SELECT 1 FROM {p}lease WHERE name = ?1 AND holder = ?2 AND epoch = ?3)";
    // A row to which a foreign writer gave an earlier row's id replaces it: the newer one is worth more.
    keep_sent: Sql = "INSERT OR REPLACE INTO {p}outbox_sent (id, message_id, topic, key, sequence, kind, mode, headers,
            created_at, attempts, last_error, payload)
        SELECT id, lower(message_id), topic, key, sequence, kind, mode, headers, created_at, attempts, last_error,
            coalesce(payload, CAST(payload_text AS BLOB))
        FROM {p}outbox WHERE id IN (SELECT value FROM json_each(?1))";
    published: Sql = "DELETE FROM {p}outbox WHERE id IN (SELECT value FROM json_each(?1)) RETURNING id";
    count_published: Sql = "UPDATE {p}outbox_published SET count = count + ?1 WHERE shard = 0";
    retry: Sql = "UPDATE {p}outbox SET attempts = attempts + 1, next_attempt_at = {now} + ?2,
            last_error = substr(?3, 1, {error_characters})
        WHERE id = ?1";
    // A message that was parked, redriven and fails again is the same dead letter.
    park_outbox_row: Sql = "INSERT INTO {p}dead_letter (message_id, topic, key, sequence, kind, mode, headers, \
         created_at,
            outbox_id, status, error_code, error, holds_key, attempts, payload)
        SELECT lower(message_id), topic, key, sequence, kind, mode, headers, created_at,
            id, 'parked', ?2, substr(?3, 1, {error_characters}), ?4, attempts + ?5,
            coalesce(payload, CAST(payload_text AS BLOB))
        FROM {p}outbox WHERE id = ?1 AND attempts >= ?6
        ON CONFLICT (outbox_id) WHERE consumer_group = '' DO UPDATE SET
            message_id = excluded.message_id, topic = excluded.topic, key = excluded.key,
            sequence = excluded.sequence, kind = excluded.kind, mode = excluded.mode, headers = excluded.headers,
            payload = excluded.payload, status = 'parked', error_code = excluded.error_code,
            error = excluded.error, holds_key = excluded.holds_key, attempts = attempts + excluded.attempts,
            last_attempt = {now}, done_at = NULL
        RETURNING id";
    remove_outbox_row: Sql = "DELETE FROM {p}outbox WHERE id = ?1";

    // Outbox: operators.
    outbox_stats: Sql = "SELECT
            count(*) FILTER (WHERE attempts = 0) AS pending,
            count(*) FILTER (WHERE attempts > 0) AS retrying,
            max(coalesce({now} - min(created_at), 0), 0) / 1000.0 AS oldest_seconds,
            (SELECT count(*) FROM {p}dead_letter
                WHERE consumer_group = '' AND status <> 'done' AND status = 'parked') AS parked,
            (SELECT coalesce(sum(count), 0) FROM {p}outbox_published) AS published
        FROM {p}outbox";
    outbox_open: Sql = "SELECT * FROM ({outbox_open}) WHERE 1";
    outbox_parked: Sql = "SELECT * FROM ({outbox_parked}) WHERE 1";
    outbox_sent: Sql = "SELECT * FROM ({outbox_sent}) WHERE 1";
    // A foreign writer may have written an id with capital letters; other tables have it in lower case.
    outbox_show: Sql = &[
        (OUTBOX_OPEN, "lower(message_id)", OUTBOX_PAYLOAD),
        (OUTBOX_PARKED, "message_id", "o.payload"),
        (OUTBOX_SENT, "message_id", "o.payload"),
    ]
    .map(|(part, id, payload)| {
        let part = part.replace("{more}", OUTBOX_MORE).replace("{payload}", payload);
        format!("SELECT * FROM ({part}) WHERE {id} = ?1")
    })
    .join(" UNION ALL ");
    retry_now: Sql = "UPDATE {p}outbox SET next_attempt_at = {now}
        WHERE id IN (SELECT value FROM json_each(?1)) AND next_attempt_at > {now} RETURNING id";
    record_action: Sql = "INSERT INTO {p}audit (actor, action, message_id, detail) VALUES (?1, ?2, ?3, ?4)";
    record_row: Sql = "INSERT INTO {p}audit (actor, action, message_id, detail)
        SELECT ?2, ?3, lower(message_id), ?4 FROM {p}outbox WHERE id IN (SELECT value FROM json_each(?1)) ORDER BY id";

    // Housekeeping. ?1 is an age and ?2 the most rows.
    remove_sent: Sql = "DELETE FROM {p}outbox_sent WHERE id IN (
        SELECT id FROM {p}outbox_sent WHERE sent_at <= {now} - ?1 ORDER BY sent_at LIMIT ?2)";
    old_sent: Sql = &format!("SELECT * FROM ({}) WHERE sent_at <= {{now}} - ?1 ORDER BY sent_at LIMIT ?2",
        OUTBOX_SENT.replace("{more}", OUTBOX_MORE).replace("{payload}", "o.payload"));
    remove_these_sent: Sql = "DELETE FROM {p}outbox_sent WHERE id IN (SELECT value FROM json_each(?1))";
    // An id stays as long as its dead letter exists, done or not: the message can be redriven.
    forget_handled: Sql = "DELETE FROM {p}inbox WHERE (consumer_group, message_id) IN (
        SELECT i.consumer_group, i.message_id FROM {p}inbox i
        WHERE i.handled_at <= {now} - ?1 AND NOT EXISTS (
            SELECT 1 FROM {p}dead_letter d WHERE d.message_id = i.message_id AND +d.consumer_group = i.consumer_group)
        ORDER BY i.handled_at LIMIT ?2)";
    remove_enqueued_ids: Sql = "DELETE FROM {p}enqueued_id WHERE message_id IN (
        SELECT message_id FROM {p}enqueued_id WHERE enqueued_at <= {now} - ?1 ORDER BY enqueued_at LIMIT ?2)";
    remove_retries: Sql = "DELETE FROM {p}delivery WHERE (consumer_group, message_id, topic) IN (
        SELECT d.consumer_group, d.message_id, d.topic FROM {p}delivery d
        WHERE d.next_attempt_at <= {now} - ?1 OR EXISTS (
            SELECT 1 FROM {p}inbox i WHERE i.consumer_group = d.consumer_group AND i.message_id = d.message_id)
        LIMIT ?2)";
    remove_done_letters: Sql = "DELETE FROM {p}dead_letter WHERE id IN (
        SELECT id FROM {p}dead_letter WHERE status = 'done' AND done_at <= {now} - ?1
            AND (restored_at IS NULL OR restored_at <= {now} - ?1) ORDER BY done_at LIMIT ?2)";
    forget_sequences: Sql = "DELETE FROM {p}sequence WHERE (consumer_group, topic, key) IN (
        SELECT s.consumer_group, s.topic, s.key FROM {p}sequence s
        WHERE s.since <= {now} - ?1 AND NOT EXISTS (
            SELECT 1 FROM {p}dead_letter d WHERE d.consumer_group = s.consumer_group AND d.topic = s.topic
                AND d.key = s.key AND d.status <> 'done')
        LIMIT ?2)";

    // Leases. An additional millisecond compensates for the rounding of {now}: a lease must not expire here before its
    // holder expects it.
    lease_acquire: Sql = "INSERT INTO {p}lease (name, holder, epoch, expires_at, ttl_ms)
        VALUES (?1, ?2, 1, {now} + ?3 + 1, ?3)
        ON CONFLICT (name) DO UPDATE SET
            epoch = epoch + (holder IS NULL OR {expired}),
            holder = excluded.holder,
            expires_at = excluded.expires_at,
            ttl_ms = excluded.ttl_ms
        WHERE holder IS NULL OR holder = excluded.holder OR {expired}
        RETURNING epoch";
    lease_misdated: Sql = "SELECT holder FROM {p}lease WHERE name = ?1 AND holder IS NOT NULL AND {misdated}";
    lease_renew: Sql = "UPDATE {p}lease SET expires_at = {now} + ?4 + 1, ttl_ms = ?4
        WHERE name = ?1 AND holder = ?2 AND epoch = ?3";
    lease_release: Sql = "UPDATE {p}lease SET holder = NULL, expires_at = {now}
        WHERE name = ?1 AND holder = ?2 AND epoch = ?3";
    leases_held: Sql = "SELECT name FROM {p}lease
        WHERE substr(name, 1, length(?1)) = ?1 AND holder IS NOT NULL AND NOT {expired} ORDER BY name";
    leases_lapsed: Sql = "SELECT DISTINCT holder FROM {p}lease
        WHERE substr(name, 1, length(?1)) = ?1 AND holder IS NOT NULL AND {expired} ORDER BY holder";

    // Inbox. Without a row from `admit`, the id existed before.
    admit: Sql = "INSERT INTO {p}inbox (consumer_group, message_id) VALUES (?1, ?2) ON CONFLICT DO NOTHING
        RETURNING EXISTS (SELECT 1 FROM {p}held_key WHERE consumer_group = ?1 AND topic = ?3 AND key = ?4)";
    is_held: Sql = "SELECT EXISTS (SELECT 1 FROM {p}held_key WHERE consumer_group = ?1 AND topic = ?2 AND key = ?3)";
    keep_forever: Sql = "UPDATE {p}inbox SET handled_at = 253402300799000
        WHERE consumer_group = ?1 AND message_id = ?2";
    // ?2 is a JSON array, of ids and of pairs of topic and key.
    admit_batch: Sql = "INSERT INTO {p}inbox (consumer_group, message_id)
        SELECT ?1, value FROM json_each(?2) WHERE true ON CONFLICT DO NOTHING RETURNING message_id";
    handled: Sql = "SELECT message_id FROM {p}inbox
        WHERE consumer_group = ?1 AND message_id IN (SELECT value FROM json_each(?2))";
    are_held: Sql = "SELECT held.topic, held.key FROM json_each(?2) given
        CROSS JOIN {p}held_key held ON held.consumer_group = ?1
            AND held.topic = json_extract(given.value, '$[0]') AND held.key = json_extract(given.value, '$[1]')";
    wait_behind: Sql = &format!("{INSERT_DEAD_LETTER} DO NOTHING RETURNING id");
    park: Sql = &format!("{INSERT_DEAD_LETTER} DO UPDATE SET
            status = excluded.status, error_code = excluded.error_code, error = excluded.error,
            attempts = excluded.attempts, holds_key = excluded.holds_key, last_attempt = {{now}},
            retry_at = excluded.retry_at, discarded = 0, fingerprint = excluded.fingerprint, causes = excluded.causes
        RETURNING id");
    next_delayed: Sql = "SELECT d.id, d.attempts, d.redrives, d.original_partition, d.original_offset, {message}
        FROM {p}dead_letter d
        WHERE d.consumer_group = ?1 AND d.status = 'delayed' AND d.retry_at <= {now}
        AND d.id NOT IN (SELECT value FROM json_each(?2)) AND NOT EXISTS (
            SELECT 1 FROM {p}dead_letter e
            WHERE e.consumer_group = d.consumer_group AND e.topic = d.topic AND e.key = d.key AND e.id < d.id
                AND e.status <> 'done' AND e.holds_key)
        ORDER BY d.retry_at LIMIT 1";
    next_redriven: Sql = "SELECT d.id, d.attempts, d.redrives, d.original_partition, d.original_offset, {message}
        FROM {p}dead_letter d
        WHERE d.consumer_group = ?1 AND d.status IN ('redriving', 'waiting')
        AND d.id NOT IN (SELECT value FROM json_each(?2)) AND NOT EXISTS (
            SELECT 1 FROM {p}dead_letter e
            WHERE e.consumer_group = d.consumer_group AND e.topic = d.topic AND e.key = d.key AND e.id < d.id
                AND e.status <> 'done' AND e.holds_key)
        ORDER BY d.id LIMIT 1";
    complete_redriven: Sql = "UPDATE {p}dead_letter
        SET status = 'done', last_attempt = {now}, done_at = {now}, retry_at = NULL
        WHERE id = ?1 AND status IN ('redriving', 'waiting', 'delayed') RETURNING consumer_group";
    park_redriven: Sql = "UPDATE {p}dead_letter SET status = iif(?5 IS NULL, 'parked', 'delayed'), attempts = ?4,
            error_code = ?2, error = substr(?3, 1, {error_characters}), last_attempt = {now}, retry_at = {now} + ?5,
            holds_key = holds_key AND ?6, fingerprint = ?7, causes = ?8
        WHERE id = ?1 AND status IN ('redriving', 'waiting', 'delayed') RETURNING consumer_group";

    // Deliveries that failed and are attempted again. A filter is appended to `retrying`.
    record_retry: Sql = "INSERT INTO {p}delivery (consumer_group, topic, message_id, key, attempts, error_code, error,
            next_attempt_at)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, substr(?7, 1, {error_characters}), {now} + ?8)
        ON CONFLICT (consumer_group, message_id, topic) DO UPDATE SET
            attempts = excluded.attempts, error_code = excluded.error_code, error = excluded.error,
            last_attempt_at = {now}, next_attempt_at = excluded.next_attempt_at";
    clear_retry: Sql = "DELETE FROM {p}delivery WHERE consumer_group = ?1 AND topic = ?2 AND message_id = ?3";
    retrying: Sql = "SELECT d.message_id, d.topic, d.consumer_group, d.key, d.attempts, d.error_code, d.error,
            d.first_failed_at, d.last_attempt_at, d.next_attempt_at
        FROM {p}delivery d WHERE NOT EXISTS (
            SELECT 1 FROM {p}inbox i WHERE i.consumer_group = d.consumer_group AND i.message_id = d.message_id)";
    retrying_counts: Sql = "SELECT d.topic, d.consumer_group, count(*) FROM {p}delivery d WHERE NOT EXISTS (
            SELECT 1 FROM {p}inbox i WHERE i.consumer_group = d.consumer_group AND i.message_id = d.message_id)
        GROUP BY d.topic, d.consumer_group";
    // The primary key begins with the group. There are few of them, so each is looked up in turn.
    admitted_by: Sql = "WITH RECURSIVE known (name) AS (
            SELECT min(consumer_group) FROM {p}inbox
            UNION ALL
            SELECT (SELECT min(i.consumer_group) FROM {p}inbox i WHERE i.consumer_group > known.name)
            FROM known WHERE known.name IS NOT NULL)
        SELECT i.consumer_group, i.handled_at
        FROM known JOIN {p}inbox i ON i.consumer_group = known.name AND i.message_id = ?1
        ORDER BY i.handled_at, i.consumer_group";

    // Half messages. The nine columns of a message come first in `half_insert` and `half_complete`.
    half_insert: Sql = "INSERT INTO {p}half_message (id, topic, key, sequence, kind, mode, headers, payload, created_at,
            fingerprint, business_type, business_id, check_back, check_after_ms, state, next_check_at)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, 'prepared', {now} + ?14)
        ON CONFLICT DO NOTHING";
    half_complete: Sql = "UPDATE {p}half_message SET topic = ?2, key = ?3, sequence = ?4, kind = ?5, mode = ?6,
            headers = ?7, payload = ?8, created_at = ?9, fingerprint = ?10, business_type = ?11, business_id = ?12,
            check_back = ?13, check_after_ms = ?14
        WHERE id = ?1 AND fingerprint IS NULL";
    half_insert_early: Sql = "INSERT INTO {p}half_message (id, state, decided_by, decided_at) VALUES (?1, ?2, ?3, {now})
        ON CONFLICT DO NOTHING";
    half_stored: Sql = "SELECT state, fingerprint FROM {p}half_message WHERE id = ?1";
    half_decide: Sql = "UPDATE {p}half_message SET state = ?2, decided_by = ?3, decided_at = {now}, next_check_at = NULL
        WHERE id = ?1 AND state IN ('prepared', 'parked')";
    half_enqueue: Sql = "INSERT INTO {p}outbox (message_id, topic, key, sequence, kind, mode, headers, payload,
            created_at)
        SELECT id, topic, key, sequence, kind, mode, headers, payload, created_at FROM {p}half_message
        WHERE id = ?1 AND state = 'committed'";
    half_contradict: Sql = "UPDATE {p}half_message SET contradicted_at = {now}, contradicted_by = ?2
        WHERE id = ?1 AND contradicted_at IS NULL";
    half_acknowledge: Sql = "UPDATE {p}half_message SET acknowledged_at = {now}, acknowledged_by = ?2
        WHERE id = ?1 AND contradicted_at IS NOT NULL AND acknowledged_at IS NULL";
    half_audit: Sql = "INSERT INTO {p}audit (actor, action, message_id, detail) VALUES (?1, ?2, ?3, ?4)";
    half_is_due: Sql = "SELECT EXISTS (
        SELECT 1 FROM {p}half_message WHERE state = 'prepared' AND next_check_at <= {now})";
    half_due: Sql = "SELECT id AS message_id, topic, key, sequence, kind, mode, headers, created_at, payload,
            business_type, business_id, check_back, check_after_ms, prepared_at, checks
        FROM {p}half_message WHERE state = 'prepared' AND next_check_at <= {now} ORDER BY next_check_at LIMIT ?1";
    half_claim: Sql = "UPDATE {p}half_message SET next_check_at = {now} + ?2
        WHERE id IN (SELECT value FROM json_each(?1)) AND state = 'prepared'";
    half_record_check: Sql = "UPDATE {p}half_message SET checks = checks + 1, last_answer = ?3, state = ?4,
            next_check_at = {now} + ?5
        WHERE id = ?1 AND state = 'prepared' AND checks = ?2";
    half_messages: Sql = "SELECT id, state, topic, key, kind, business_type, business_id, check_back, prepared_at,
            decided_at, decided_by, checks, next_check_at, last_answer, contradicted_at, contradicted_by,
            acknowledged_at, acknowledged_by
        FROM {p}half_message h WHERE 1";
    half_old: Sql = "SELECT id, state, topic, key, kind, business_type, business_id, check_back, prepared_at,
            decided_at, decided_by, checks, next_check_at, last_answer, contradicted_at, contradicted_by,
            acknowledged_at, acknowledged_by, sequence, mode, headers, payload
        FROM {p}half_message
        WHERE decided_at <= {now} - ?1 AND (contradicted_at IS NULL OR acknowledged_at IS NOT NULL)
        ORDER BY decided_at LIMIT ?2";
    remove_these_half: Sql = "DELETE FROM {p}half_message WHERE id IN (SELECT value FROM json_each(?1))
        AND decided_at IS NOT NULL AND (contradicted_at IS NULL OR acknowledged_at IS NOT NULL)";
    half_stats: Sql = "SELECT prepared.count, parked.count,
            (SELECT count(*) FROM {p}half_message WHERE contradicted_at IS NOT NULL AND acknowledged_at IS NULL),
            (SELECT count(*) FROM {p}half_message WHERE fingerprint IS NULL AND state = 'committed'),
            coalesce(max({now} - min(coalesce(prepared.oldest, parked.oldest),
                coalesce(parked.oldest, prepared.oldest)), 0), 0) / 1000
        FROM (SELECT count(*) AS count, min(prepared_at) AS oldest FROM {p}half_message WHERE state = 'prepared')
                prepared,
            (SELECT count(*) AS count, min(prepared_at) AS oldest FROM {p}half_message WHERE state = 'parked') parked";
    remove_half_messages: Sql = "DELETE FROM {p}half_message WHERE id IN (
        SELECT id FROM {p}half_message
        WHERE decided_at <= {now} - ?1 AND (contradicted_at IS NULL OR acknowledged_at IS NOT NULL)
        ORDER BY decided_at LIMIT ?2)";

    // Idempotency records. The additional millisecond is that of leases.
    record_insert: Sql = "INSERT INTO {p}idempotency (id, kind, scope, business_type, key, state, fingerprint, epoch,
            parks, expires_at, ttl_ms, ceiling_at)
        VALUES (?1, ?2, ?3, ?4, ?5, 'in_flight', ?6, {now}, ?7, {now} + ?8 + (?8 > 0), ?8, {now} + ?9)
        ON CONFLICT DO NOTHING RETURNING epoch";
    record_take_over: Sql = "UPDATE {p}idempotency SET state = 'in_flight', fingerprint = ?4, epoch = epoch + 1,
            parks = ?5, claimed_at = {now}, updated_at = {now}, expires_at = {now} + ?6 + (?6 > 0), ttl_ms = ?6,
            ceiling_at = {now} + ?7, status = NULL, headers = NULL, body = NULL, body_state = NULL, reason = NULL
        WHERE id = ?1 AND epoch = ?2 AND state = ?3
            AND (state = 'released' OR (state = 'issued' AND NOT {expired})
                OR (state = 'in_flight' AND NOT parks AND {expired}))
        RETURNING epoch";
    record_stored: Sql = "SELECT state, epoch, fingerprint, parks,
            CASE WHEN {expired} THEN 0 ELSE max(1, expires_at - {now}) END AS remaining,
            status, headers, body, body_state
        FROM {p}idempotency WHERE id = ?1";
    record_renew: Sql = "UPDATE {p}idempotency SET expires_at = min({now} + ?3 + 1, ceiling_at), ttl_ms = ?3
        WHERE id = ?1 AND epoch = ?2 AND state = 'in_flight' AND ceiling_at > {now}
        RETURNING max(1, expires_at - {now})";
    record_complete: Sql = "UPDATE {p}idempotency SET state = 'completed', status = ?3, headers = ?4, body = ?5,
            body_state = ?6, updated_at = {now}, reason = NULL
        WHERE id = ?1 AND epoch = ?2 AND state IN ('in_flight', 'uncertain')";
    record_release: Sql = "UPDATE {p}idempotency SET state = 'released', updated_at = {now}, reason = NULL
        WHERE id = ?1 AND epoch = ?2 AND state IN ('in_flight', 'uncertain')";
    record_unknown: Sql = "UPDATE {p}idempotency SET state = CASE WHEN parks THEN 'uncertain' ELSE 'in_flight' END,
            expires_at = {now}, updated_at = {now}, reason = ?3
        WHERE id = ?1 AND epoch = ?2 AND state IN ('in_flight', 'uncertain')";
    record_answer: Sql = "UPDATE {p}idempotency SET state = 'completed', status = ?2, headers = ?3, body = ?4,
            body_state = ?5, updated_at = {now}
        WHERE id = ?1 AND state = 'in_flight'";
    record_resolve: Sql = "UPDATE {p}idempotency SET state = ?2, epoch = epoch + 1, status = ?3, headers = ?4,
            body = ?5, body_state = ?6, updated_at = {now}, reason = 'resolved by ' || ?7
        WHERE id = ?1 AND (state = 'uncertain' OR (state = 'in_flight' AND parks AND {expired}))";
    record_audit: Sql = "INSERT INTO {p}audit (actor, action, message_id, detail)
        SELECT ?2, ?3, ?4, business_type || '/' || key || ' (scope ' || scope || ')' FROM {p}idempotency WHERE id = ?1";
    records: Sql = "SELECT lower(hex(r.id)) AS id, r.kind, r.scope, r.business_type, r.key, r.state, r.epoch, r.parks,
            r.claimed_at, r.updated_at,
            CASE WHEN r.state IN ('issued', 'in_flight') THEN r.expires_at END AS expires_at,
            r.status, r.body_state, r.body_bytes, r.reason
        FROM (SELECT id, kind, scope, business_type, key, state AS stored_state, epoch,
                CASE WHEN state = 'in_flight' AND parks AND {expired} THEN 'uncertain' ELSE state END AS state,
                parks, claimed_at, updated_at, expires_at, status, body_state, length(body) AS body_bytes, reason
            FROM {p}idempotency) r
        WHERE 1";
    record_stats: Sql = "SELECT count(CASE WHEN NOT is_uncertain AND is_live THEN 1 END),
            count(CASE WHEN is_uncertain THEN 1 END),
            max(0, coalesce(({now} - min(CASE WHEN is_uncertain THEN claimed_at END)) / 1000, 0))
        FROM (SELECT claimed_at, NOT {expired} AS is_live, state = 'uncertain' OR (parks AND {expired}) AS is_uncertain
            FROM {p}idempotency WHERE state IN ('in_flight', 'uncertain') AND kind <> 'window')";
    token_issue: Sql = "INSERT INTO {p}idempotency (id, kind, scope, business_type, key, state, epoch, expires_at,
            ttl_ms, ceiling_at)
        VALUES (?1, ?2, ?3, ?4, ?5, 'issued', {now}, {now} + ?6 + 1, ?6, {now}) RETURNING expires_at";
    remove_answers: Sql = "UPDATE {p}idempotency SET headers = NULL, body = NULL, body_state = 'expired' WHERE id IN (
        SELECT id FROM {p}idempotency WHERE body_state = 'kept' AND claimed_at <= {now} - ?1
        ORDER BY claimed_at LIMIT ?2)";
    remove_records: Sql = "DELETE FROM {p}idempotency WHERE id IN (
        SELECT id FROM {p}idempotency WHERE claimed_at <= {now} - ?1
            AND (state IN ('completed', 'released') OR (state = 'issued' AND {expired})
                OR (state = 'in_flight' AND NOT parks AND {expired}))
        ORDER BY claimed_at LIMIT ?2)";

    // The barrier.
    barrier_enter: Sql = "INSERT INTO {p}barrier (id) VALUES (?1)";
    barrier_verdict: Sql = "SELECT verdict FROM {p}barrier WHERE id = ?1";
    barrier_tombstone: Sql = "INSERT INTO {p}barrier (id, verdict) VALUES (?1, 'rolled_back') ON CONFLICT DO NOTHING";
    barrier_removed: Sql = "SELECT removed_before FROM {p}barrier_removed WHERE slot = 1";
    remove_barriers: Sql = "DELETE FROM {p}barrier WHERE id IN (
        SELECT id FROM {p}barrier WHERE created_at <= {now} - ?1 ORDER BY created_at LIMIT ?2)";
    barriers_removed: Sql = "INSERT INTO {p}barrier_removed (slot, removed_before) VALUES (1, {now} - ?1 + 1)
        ON CONFLICT (slot) DO UPDATE SET removed_before = max(removed_before, excluded.removed_before)";

    // The sequence that each entity has reached. ?2 is a JSON array of [topic, key], or of [topic, key, sequence].
    reached: Sql = "SELECT known.topic, known.key, known.reached FROM json_each(?2) given
        CROSS JOIN {p}sequence known ON known.consumer_group = ?1
            AND known.topic = json_extract(given.value, '$[0]') AND known.key = json_extract(given.value, '$[1]')";
    reach: Sql = "INSERT INTO {p}sequence (consumer_group, topic, key, reached)
        SELECT ?1, json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]')
        FROM json_each(?2) WHERE true
        ON CONFLICT (consumer_group, topic, key) DO UPDATE SET reached = excluded.reached, since = {now}";

    // Dead letters; ?1 is a JSON array of their ids.
    hold_keys: Sql = "INSERT INTO {p}held_key (consumer_group, topic, key)
        SELECT consumer_group, topic, key FROM {p}dead_letter
        WHERE id IN (SELECT value FROM json_each(?1)) AND key IS NOT NULL AND holds_key
        ON CONFLICT DO NOTHING";
    // Releases a key without open dead letters: parked and waiting ones hold it, a skipped one does not.
    release_keys: Sql = "DELETE FROM {p}held_key AS h
        WHERE (consumer_group, topic, key) IN (
            SELECT consumer_group, topic, key FROM {p}dead_letter WHERE id IN (SELECT value FROM json_each(?1)))
        AND NOT EXISTS (
            SELECT 1 FROM {p}dead_letter d
            WHERE d.consumer_group = h.consumer_group AND d.topic = h.topic AND d.key = h.key AND d.status <> 'done'
                AND d.holds_key)";
    record: Sql = "INSERT INTO {p}audit (actor, action, dead_letter_id, message_id, detail)
        SELECT ?2, ?3, id, message_id, ?4 FROM {p}dead_letter WHERE id IN (SELECT value FROM json_each(?1)) ORDER BY
            id";
    // The plus keeps SQLite from scanning every dead letter of the relay instead of looking up the ids.
    return_to_outbox: Sql = "INSERT INTO {p}outbox (id, message_id, topic, key, sequence, kind, mode, headers, \
         created_at, payload)
        SELECT outbox_id, message_id, topic, key, sequence, kind, mode, headers, created_at, payload
        FROM {p}dead_letter WHERE id IN (SELECT value FROM json_each(?1)) AND +consumer_group = ''";
    // A letter that the relay parks again has another error, whose fingerprint is then computed.
    redrive: Sql = "UPDATE {p}dead_letter SET redrives = redrives + 1, redrive_id = NULL,
            fingerprint = CASE consumer_group WHEN '' THEN NULL ELSE fingerprint END,
            causes = CASE consumer_group WHEN '' THEN NULL ELSE causes END,
            status = CASE consumer_group WHEN '' THEN 'done' ELSE 'redriving' END,
            done_at = CASE consumer_group WHEN '' THEN {now} END
        WHERE id IN (SELECT value FROM json_each(?1))";
    dead_letters_to_redrive: Sql = "SELECT id, iif(ignored, 'ignored', status) AS status, consumer_group
        FROM {p}dead_letter";
    dead_letters: Sql = "SELECT id, message_id, consumer_group, topic, key, sequence, kind,
            CASE WHEN discarded THEN 'discarded' WHEN ignored AND status = 'parked' THEN 'ignored' ELSE status END
                AS status,
            error_code, error, fingerprint, causes, attempts, redrives, original_partition,
            original_offset, first_seen, last_attempt, retry_at, headers,
            CAST(payload AS BLOB) AS payload, original_payload
        FROM {p}dead_letter";
    // As `dead_letters`, without the payloads, which a list does not show.
    list_letters: Sql = "SELECT id, message_id, consumer_group, topic, key, sequence, kind,
            CASE WHEN discarded THEN 'discarded' WHEN ignored AND status = 'parked' THEN 'ignored' ELSE status END
                AS status,
            error_code, error, fingerprint, causes, attempts, redrives, original_partition,
            original_offset, first_seen, last_attempt, retry_at, headers,
            x'' AS payload, NULL AS original_payload
        FROM {p}dead_letter";
    parked_age_p95: Sql = "SELECT max({now} - first_seen, 0) FROM {p}dead_letter WHERE status = 'parked'
        ORDER BY first_seen LIMIT 1 OFFSET ?1";
    dead_letter_stats: Sql = "SELECT CASE WHEN discarded THEN 'discarded'
            WHEN ignored AND status = 'parked' THEN 'ignored' ELSE status END, count(*) FROM {p}dead_letter GROUP BY 1";
    open_letters: Sql = "SELECT topic, consumer_group, status, count(*) FROM {p}dead_letter WHERE status <> 'done'
        GROUP BY topic, consumer_group, status ORDER BY topic, consumer_group";
    discard: Sql = "UPDATE {p}dead_letter SET status = 'done', discarded = 1, done_at = {now}
        WHERE id IN (SELECT value FROM json_each(?1))";
    edit: Sql = "UPDATE {p}dead_letter SET original_payload = coalesce(original_payload, CAST(payload AS BLOB)),
            payload = ?2
        WHERE id = ?1 AND status = 'parked'";
}

const INSERT_DEAD_LETTER: &str = "INSERT INTO {p}dead_letter (consumer_group, message_id, topic, key, sequence, kind,
        mode, headers, payload, created_at, original_partition, original_offset, status, error_code, error, attempts,
        holds_key, retry_at, fingerprint, causes)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, substr(?15, 1, {error_characters}), ?16, ?17,
        {now} + ?18, ?19, ?20)
    ON CONFLICT (consumer_group, message_id, topic, coalesce(key, '')) WHERE consumer_group <> ''";

/// Returns an insert of `rows` messages, in their order.
fn enqueue(rows: usize) -> String {
    let row = "(?, ?, ?, ?, ?, ?, ?, ?, ?)";
    format!(
        "INSERT INTO {{p}}outbox (message_id, topic, key, sequence, kind, mode, headers, payload, created_at) VALUES \
         {}",
        vec![row; rows].join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_prefix_is_pasted_into_statements() {
        let statements = Statements::new(&TablePrefix::new("shop_").unwrap());
        for statement in [&statements.next, &statements.is_any_due, &statements.park, &statements.enqueue_8] {
            let text = statement.as_str();
            assert!(text.contains("shop_outbox") || text.contains("shop_dead_letter"), "{text}");
            assert!(!text.contains(['{', '}']), "{text}");
        }
    }

    #[test]
    fn clock_is_read_once_per_statement() {
        let statements = Statements::new(&TablePrefix::default());
        for statement in [&statements.next, &statements.is_any_due] {
            assert_eq!(statement.as_str().matches("'now'").count(), 1, "{}", statement.as_str());
        }
    }
}
