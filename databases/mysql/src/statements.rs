//! Every statement of the adapter, built once per instance: `{p}` is the validated table prefix.
//!
//! Values always travel as parameters. A statement that locks several rows locks them in a stated order, and names the
//! index that finds them: on a small table the optimizer prefers to read all rows, and a locking statement waits for
//! every row it reads.
//!
//! Statements on several rows (`{rows}`) exist in a few sizes, so that all of them stay prepared: a list shorter than
//! its statement is padded with its last element.

use landfall_sql_toolkit::statements;

use crate::sql::expand_words;

pub(crate) use crate::sql::{ByPairs, ByRows, SHARDS, fill};
pub(crate) use landfall_sql_toolkit::Sql;

/// Rows of the outbox as operators see them: unsent, parked and sent. A filter is appended.
const OUTBOX_ROWS: &str = "
    SELECT o.id, o.message_id, o.topic, o.`key`,
           CASE WHEN o.attempts > 0 THEN 'retrying' WHEN {free} THEN 'pending' ELSE 'waiting' END AS state,
           o.attempts, {ms:o.next_attempt_at} AS next_attempt_at, o.last_error, {ms:o.created_at} AS created_at,
           NULL AS sent_at, OCTET_LENGTH({payload:o}) AS payload_bytes{more}
    FROM {p}outbox o {blocked} WHERE TRUE";
const PARKED_ROWS: &str = "
    SELECT o.outbox_id AS id, o.message_id, o.topic, o.`key`, 'parked' AS state,
           o.attempts, NULL AS next_attempt_at, CONCAT(o.error_code, ': ', o.error) AS last_error,
           {ms:o.created_at} AS created_at, NULL AS sent_at, OCTET_LENGTH(o.payload) AS payload_bytes{more}
    FROM {p}dead_letter o WHERE o.is_open = 1 AND o.consumer_group = ''";
const SENT_ROWS: &str = "
    SELECT o.id, o.message_id, o.topic, o.`key`, 'sent' AS state,
           o.attempts, NULL AS next_attempt_at, o.last_error, {ms:o.created_at} AS created_at,
           {ms:o.sent_at} AS sent_at, OCTET_LENGTH(o.payload) AS payload_bytes{more}
    FROM {p}outbox_sent o WHERE TRUE";

fn rows(template: &str) -> String {
    template.replace("{more}", "")
}

fn whole(template: &str) -> String {
    let payload = if template == OUTBOX_ROWS { "{payload:o} AS payload" } else { "o.payload" };
    template.replace("{more}", &format!(", o.sequence, o.kind, o.mode, o.headers, {payload}"))
}

fn details(template: &str) -> String {
    whole(template) + " AND o.message_id = ?"
}

const LETTER: &str = "
    INSERT INTO {p}dead_letter (
        consumer_group, message_id, topic, `key`, sequence, kind, mode, headers, payload, created_at,
        original_partition, original_offset, status, error_code, error, attempts, holds_key, retry_at, fingerprint,
        causes)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, {now} + INTERVAL ? MICROSECOND, ?, ?)
    ON DUPLICATE KEY UPDATE id = LAST_INSERT_ID(id)";

/// Returns an insert of `rows` messages, in their order.
fn enqueue(rows: usize) -> String {
    format!(
        "INSERT INTO {{p}}outbox (message_id, topic, `key`, sequence, kind, mode, headers, payload, created_at) \
         VALUES {}",
        vec!["(?, ?, ?, ?, ?, ?, ?, ?, ?)"; rows].join(", ")
    )
}

statements! {
    expand = expand_words;

    // The outbox: writing.
    enqueue_1: Sql = &enqueue(1);
    enqueue_8: Sql = &enqueue(8);
    enqueue_64: Sql = &enqueue(64);

    // Ids of senders that retry.
    insert_enqueued_id: Sql = "INSERT IGNORE INTO {p}enqueued_id (message_id, fingerprint) VALUES (?, ?)";
    enqueued_fingerprint: Sql = "SELECT fingerprint FROM {p}enqueued_id WHERE message_id = ?";

    // The outbox: the relay. One statement sees one state of the tables. The primary key is named because statistics of
    // a table that is empty at one moment and full at the next are useless.
    next: Sql = "
        SELECT o.id, o.shard, o.attempts, {outbox_message} FROM {p}outbox o FORCE INDEX (PRIMARY) {blocked}
        WHERE o.shard IN ({shards}) AND (o.next_attempt_at IS NULL OR o.next_attempt_at <= {now}) AND {free}
        ORDER BY o.id LIMIT ?";
    claim: Sql = "
        SELECT o.id, o.shard, o.attempts, {outbox_message} FROM {p}outbox o FORCE INDEX (PRIMARY)
        WHERE o.next_attempt_at IS NULL OR o.next_attempt_at <= {now}
        ORDER BY o.id LIMIT ? FOR UPDATE SKIP LOCKED";
    // Waits for a takeover in flight and then sees it; a later takeover waits for this transaction. Leases are locked
    // in order of name everywhere, so that there are no deadlocks.
    lock_leases: Sql = "
        SELECT name, holder, epoch FROM {p}lease FORCE INDEX (PRIMARY) WHERE name IN ({shards}) ORDER BY name LOCK
            IN SHARE MODE";
    lock_rows: ByRows = "
        SELECT id FROM {p}outbox FORCE INDEX (PRIMARY) WHERE id IN ({rows}) AND shard IN ({shards})
        ORDER BY id FOR UPDATE";
    lock_failed_rows: ByRows = "
        SELECT id FROM {p}outbox FORCE INDEX (PRIMARY) WHERE id IN ({rows}) AND attempts > 0
        ORDER BY id FOR UPDATE";
    // A DELETE accepts no index hint, so the ids are a table (a JSON array) that the rows are joined to.
    remove_of_shards: Sql = "
        DELETE o FROM JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT PATH '$')) given
        STRAIGHT_JOIN {p}outbox o FORCE INDEX (PRIMARY) ON o.id = given.id WHERE o.shard IN ({shards})";
    remove: Sql = "
        DELETE o FROM JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT PATH '$')) given
        STRAIGHT_JOIN {p}outbox o FORCE INDEX (PRIMARY) ON o.id = given.id";
    keep: ByRows = "
        REPLACE INTO {p}outbox_sent (id, message_id, topic, `key`, sequence, kind, mode, headers, created_at, attempts,
            last_error, payload, sent_at)
        SELECT id, message_id, topic, `key`, sequence, kind, mode, headers, created_at, attempts, last_error,
            {payload:o}, {now}
        FROM {p}outbox o FORCE INDEX (PRIMARY) WHERE id IN ({rows})";
    flush: Sql = "INSERT INTO {p}flush (slot, times) VALUES (?, 1) ON DUPLICATE KEY UPDATE times = times + 1";
    count_published: Sql = "UPDATE {p}outbox_published SET count = count + ? WHERE shard = ?";
    retry: Sql = "
        UPDATE {p}outbox SET attempts = attempts + 1, next_attempt_at = {now} + INTERVAL ? MICROSECOND, last_error = ?
        WHERE id = ?";
    // A message that was parked, redriven and fails again is the same dead letter.
    park_row: Sql = "
        INSERT INTO {p}dead_letter (message_id, topic, `key`, sequence, kind, mode, headers, payload, created_at,
            outbox_id, status, error_code, error, attempts, holds_key)
        SELECT o.message_id, o.topic, o.`key`, o.sequence, o.kind, o.mode, o.headers, {payload:o}, o.created_at,
            o.id, 'parked', ?, ?, o.attempts + ?, ?
        FROM {p}outbox o WHERE o.id = ?
        ON DUPLICATE KEY UPDATE id = LAST_INSERT_ID({p}dead_letter.id),
            message_id = VALUES(message_id), topic = VALUES(topic), `key` = VALUES(`key`),
            sequence = VALUES(sequence), kind = VALUES(kind), mode = VALUES(mode), headers = VALUES(headers),
            payload = VALUES(payload), status = 'parked', error_code = VALUES(error_code), error = VALUES(error),
            attempts = {p}dead_letter.attempts + VALUES(attempts), holds_key = VALUES(holds_key),
            last_attempt = {now}, done_at = NULL";

    // The outbox: operators.
    outbox_stats: Sql = "
        SELECT CAST(COALESCE(SUM(attempts = 0), 0) AS SIGNED), CAST(COALESCE(SUM(attempts > 0), 0) AS SIGNED),
               CAST(GREATEST(COALESCE(TIMESTAMPDIFF(MICROSECOND, MIN(created_at), {now}), 0), 0) AS SIGNED),
               (SELECT COUNT(*) FROM {p}dead_letter FORCE INDEX ({b}dead_letter_open) WHERE is_open = 1 AND
                   consumer_group = ''),
               CAST((SELECT COALESCE(SUM(count), 0) FROM {p}outbox_published) AS SIGNED)
        FROM {p}outbox";
    outbox_rows: Sql = &rows(OUTBOX_ROWS);
    parked_rows: Sql = &rows(PARKED_ROWS);
    sent_rows: Sql = &rows(SENT_ROWS);
    outbox_details: Sql = &details(OUTBOX_ROWS);
    parked_details: Sql = &details(PARKED_ROWS);
    sent_details: Sql = &details(SENT_ROWS);
    lock_waiting_rows: ByRows = "
        SELECT id FROM {p}outbox FORCE INDEX (PRIMARY) WHERE id IN ({rows}) AND next_attempt_at > {now}
        ORDER BY id FOR UPDATE";
    make_due: ByRows = "UPDATE {p}outbox FORCE INDEX (PRIMARY) SET next_attempt_at = {now} WHERE id IN ({rows})";
    audit_action: Sql = "INSERT INTO {p}audit (actor, action, message_id, detail) VALUES (?, ?, ?, ?)";
    audit_rows: ByRows = "
        INSERT INTO {p}audit (actor, action, outbox_id, message_id)
        SELECT ?, ?, id, message_id FROM {p}outbox FORCE INDEX (PRIMARY) WHERE id IN ({rows}) ORDER BY id";

    // Leases. The epoch is returned as the last insert id, since there is no RETURNING. It is assigned first, while
    // holder and expires_at still have their old values.
    lease_take: Sql = "
        UPDATE {p}lease
        SET epoch = LAST_INSERT_ID(epoch + (holder IS NULL OR {expired})),
            holder = ?, expires_at = {now} + INTERVAL ? MICROSECOND, ttl_ms = ?
        WHERE name = ? AND (holder IS NULL OR holder = ? OR {expired})";
    lease_misdated: Sql = "SELECT holder FROM {p}lease WHERE name = ? AND holder IS NOT NULL AND {misdated}";
    lease_make: Sql = "
        INSERT IGNORE INTO {p}lease (name, holder, epoch, expires_at, ttl_ms)
        VALUES (?, ?, 1, {now} + INTERVAL ? MICROSECOND, ?)";
    // Locked and compared first, so that one statement renews all of them.
    lock_leases_to_renew: Sql = "
        SELECT name, holder, epoch FROM {p}lease FORCE INDEX (PRIMARY) WHERE name IN ({shards}) ORDER BY name
        FOR UPDATE";
    lease_renew: Sql = "
        UPDATE {p}lease FORCE INDEX (PRIMARY) SET expires_at = {now} + INTERVAL ? MICROSECOND, ttl_ms = ?
        WHERE name IN ({shards})";
    lease_release: Sql = "UPDATE {p}lease SET holder = NULL WHERE name = ? AND holder = ? AND epoch = ?";
    lease_held: Sql = "
        SELECT name FROM {p}lease
        WHERE holder IS NOT NULL AND NOT {expired} AND LEFT(name, CHAR_LENGTH(?)) = ? ORDER BY name";
    lease_lapsed: Sql = "
        SELECT DISTINCT holder FROM {p}lease
        WHERE holder IS NOT NULL AND {expired} AND LEFT(name, CHAR_LENGTH(?)) = ? ORDER BY holder";

    // The inbox. The id is inserted before the held key is locked, so that two deliveries of one message cannot
    // deadlock.
    admit: Sql = "INSERT IGNORE INTO {p}inbox (consumer_group, message_id) VALUES (?, ?)";
    keep_forever: Sql = "
        UPDATE {p}inbox SET handled_at = '9999-12-31 00:00:00' WHERE consumer_group = ? AND message_id = ?";
    admit_batch: ByPairs = "INSERT IGNORE INTO {p}inbox (consumer_group, message_id) VALUES {pairs}";
    handled: ByPairs = "
        SELECT message_id FROM {p}inbox FORCE INDEX (PRIMARY) WHERE (consumer_group, message_id) IN ({pairs})";
    lock_held_keys: ByPairs = "
        SELECT topic, `key` FROM {p}held_key FORCE INDEX (PRIMARY)
        WHERE consumer_group = ? AND (topic, `key`) IN ({pairs}) ORDER BY topic, `key` FOR UPDATE";
    lock_held_key: Sql = "
        SELECT 1 FROM {p}held_key WHERE consumer_group = ? AND topic = ? AND `key` = ? FOR UPDATE";
    queue_behind: Sql = LETTER;
    park: Sql = &format!("{LETTER}, status = VALUES(status), due = NULL, error_code = VALUES(error_code),
        error = VALUES(error), attempts = VALUES(attempts), holds_key = VALUES(holds_key), last_attempt = {{now}},
        done_at = NULL, retry_at = VALUES(retry_at), discarded = FALSE, fingerprint = VALUES(fingerprint),
        causes = VALUES(causes)");
    // Found by their time: dead letters that are not due yet are not read, however many there are.
    next_delayed: Sql = "
        SELECT letter.id, letter.attempts, {message}, redrives, original_partition, original_offset
        FROM {p}dead_letter letter FORCE INDEX ({b}dead_letter_delayed)
        WHERE letter.consumer_group = ? AND letter.retry_at <= {now} AND letter.status = 'delayed'
          AND NOT JSON_CONTAINS(?, CAST(letter.id AS CHAR))
          AND (letter.`key` IS NULL OR NOT EXISTS (
            SELECT 1 FROM {p}dead_letter earlier FORCE INDEX ({b}dead_letter_open)
            WHERE earlier.is_open = 1 AND earlier.consumer_group = letter.consumer_group
              AND earlier.topic = letter.topic AND earlier.`key` = letter.`key` AND earlier.id < letter.id
              AND earlier.holds_key))
        ORDER BY letter.retry_at LIMIT 1
        FOR UPDATE SKIP LOCKED";
    next_redriven: Sql = "
        SELECT letter.id, letter.attempts, {message}, redrives, original_partition, original_offset
        FROM {p}dead_letter letter FORCE INDEX ({b}dead_letter_due)
        WHERE letter.consumer_group = ? AND letter.due IS NOT NULL AND letter.status IN ('redriving', 'waiting')
          AND NOT JSON_CONTAINS(?, CAST(letter.id AS CHAR))
          AND (letter.`key` IS NULL OR NOT EXISTS (
            SELECT 1 FROM {p}dead_letter earlier FORCE INDEX ({b}dead_letter_open)
            WHERE earlier.is_open = 1 AND earlier.consumer_group = letter.consumer_group
              AND earlier.topic = letter.topic AND earlier.`key` = letter.`key` AND earlier.id < letter.id
              AND earlier.holds_key))
        ORDER BY letter.due LIMIT 1
        FOR UPDATE SKIP LOCKED";
    complete_redriven: Sql = "
        UPDATE {p}dead_letter SET status = 'done', due = NULL, retry_at = NULL, last_attempt = {now}, done_at = {now}
        WHERE id = ? AND status IN ('redriving', 'waiting', 'delayed')";
    park_redriven: Sql = "
        UPDATE {p}dead_letter
        SET status = ?, due = NULL, attempts = ?, error_code = ?, error = ?, last_attempt = {now},
            retry_at = {now} + INTERVAL ? MICROSECOND, holds_key = holds_key AND ?, fingerprint = ?, causes = ?
        WHERE id = ? AND status IN ('redriving', 'waiting', 'delayed')";
    group_of: Sql = "SELECT consumer_group FROM {p}dead_letter WHERE id = ?";
    // After a dead letter of the key is done, the next one becomes due if it was waiting; without one, the key is free.
    // They run after `lock_held_key`, as separate statements that see what was committed during the wait.
    head_of_key: Sql = "
        SELECT id FROM {p}dead_letter FORCE INDEX ({b}dead_letter_open)
        WHERE is_open = 1 AND consumer_group = ? AND topic = ? AND `key` = ? AND holds_key ORDER BY id LIMIT 1";
    hand_over_key: Sql = "UPDATE {p}dead_letter SET due = id WHERE id = ? AND status = 'waiting'";
    free_key: Sql = "DELETE FROM {p}held_key WHERE consumer_group = ? AND topic = ? AND `key` = ?";

    // Deliveries that failed and are attempted again. A filter is appended to `retrying`.
    record_retry: Sql = "
        INSERT INTO {p}delivery (consumer_group, topic, message_id, `key`, attempts, error_code, error, next_attempt_at)
        VALUES (?, ?, ?, ?, ?, ?, ?, {now} + INTERVAL ? MICROSECOND)
        ON DUPLICATE KEY UPDATE attempts = VALUES(attempts), error_code = VALUES(error_code), error = VALUES(error),
            last_attempt_at = {now}, next_attempt_at = VALUES(next_attempt_at)";
    clear_retry: Sql = "DELETE FROM {p}delivery WHERE consumer_group = ? AND topic = ? AND message_id = ?";
    retrying: Sql = "
        SELECT {uuid:d.message_id}, d.topic, d.consumer_group, d.`key`, CAST(d.attempts AS SIGNED), d.error_code,
               d.error, {ms:d.first_failed_at}, {ms:d.last_attempt_at}, {ms:d.next_attempt_at}
        FROM {p}delivery d WHERE NOT EXISTS (
            SELECT 1 FROM {p}inbox i WHERE i.consumer_group = d.consumer_group AND i.message_id = d.message_id)";
    retrying_counts: Sql = "
        SELECT d.topic, d.consumer_group, COUNT(*) FROM {p}delivery d WHERE NOT EXISTS (
            SELECT 1 FROM {p}inbox i WHERE i.consumer_group = d.consumer_group AND i.message_id = d.message_id)
        GROUP BY d.topic, d.consumer_group";
    // The primary key begins with the group. There are few of them, so each is looked up in turn.
    admitted_by: Sql = "
        SELECT i.consumer_group, {ms:i.handled_at}
        FROM (SELECT DISTINCT consumer_group FROM {p}inbox) known
        JOIN {p}inbox i ON i.consumer_group = known.consumer_group AND i.message_id = ?
        ORDER BY i.handled_at, i.consumer_group";

    // The sequence that each entity has reached. The row is inserted before it is read, so that there is one to lock.
    ensure_sequence: Sql = "
        INSERT INTO {p}sequence (consumer_group, topic, `key`) VALUES (?, ?, ?)
        ON DUPLICATE KEY UPDATE reached = {p}sequence.reached";
    reached: Sql = "SELECT reached FROM {p}sequence WHERE consumer_group = ? AND topic = ? AND `key` = ? FOR UPDATE";
    reach: Sql = "
        UPDATE {p}sequence SET reached = ?, since = {now} WHERE consumer_group = ? AND topic = ? AND `key` = ?";

    // Dead letters. Holding a key that is already held locks it.
    hold_key: Sql = "
        INSERT INTO {p}held_key (consumer_group, topic, `key`)
        SELECT consumer_group, topic, `key` FROM {p}dead_letter WHERE id = ? AND `key` IS NOT NULL AND holds_key
        ON DUPLICATE KEY UPDATE since = {p}held_key.since";
    audit_letter: Sql = "
        INSERT INTO {p}audit (actor, action, dead_letter_id, outbox_id, message_id, detail)
        SELECT ?, ?, id, outbox_id, message_id, ? FROM {p}dead_letter WHERE id = ?";
    audit_letters: ByRows = "
        INSERT INTO {p}audit (actor, action, detail, dead_letter_id, outbox_id, message_id)
        SELECT ?, ?, ?, id, outbox_id, message_id FROM {p}dead_letter FORCE INDEX (PRIMARY) WHERE id IN ({rows}) ORDER
            BY id";
    // A filter is appended to the first three.
    find: Sql = "
        SELECT id, message_id, consumer_group, topic, `key`, sequence, kind,
               CASE WHEN discarded THEN 'discarded' WHEN ignored AND status = 'parked' THEN 'ignored' ELSE status END
                   AS status,
               error_code, error, attempts, fingerprint, causes, redrives, original_partition, original_offset,
               {ms:first_seen} AS first_seen,
               {ms:last_attempt} AS last_attempt, headers, payload, original_payload, {ms:retry_at} AS retry_at
        FROM {p}dead_letter";
    // As `find`, without the payloads, which a list does not show.
    list_letters: Sql = "
        SELECT id, message_id, consumer_group, topic, `key`, sequence, kind,
               CASE WHEN discarded THEN 'discarded' WHEN ignored AND status = 'parked' THEN 'ignored' ELSE status END
                   AS status,
               error_code, error, attempts, fingerprint, causes, redrives, original_partition, original_offset,
               {ms:first_seen} AS first_seen,
               {ms:last_attempt} AS last_attempt, headers, CAST('' AS BINARY) AS payload, NULL AS original_payload,
               {ms:retry_at} AS retry_at
        FROM {p}dead_letter";
    find_ids: Sql = "SELECT id, status = 'parked' AND NOT ignored FROM {p}dead_letter";
    lock_parked: ByRows = "
        SELECT id, consumer_group = '' FROM {p}dead_letter FORCE INDEX (PRIMARY) WHERE id IN ({rows}) AND status =
            'parked' AND NOT ignored
        ORDER BY id FOR UPDATE";
    redrive_consumer: ByRows = "
        UPDATE {p}dead_letter FORCE INDEX (PRIMARY) SET status = 'redriving', due = id, redrives = redrives + 1,
            redrive_id = NULL
        WHERE id IN ({rows})";
    return_to_outbox: ByRows = "
        INSERT INTO {p}outbox (id, message_id, topic, `key`, sequence, kind, mode, headers, created_at, payload)
        SELECT outbox_id, message_id, topic, `key`, sequence, kind, mode, headers, created_at, payload
        FROM {p}dead_letter FORCE INDEX (PRIMARY) WHERE id IN ({rows}) ORDER BY outbox_id";
    // A letter that the relay parks again has another error, whose fingerprint is then computed.
    redrive_relay: ByRows = "
        UPDATE {p}dead_letter FORCE INDEX (PRIMARY) SET status = 'done', redrives = redrives + 1, done_at = {now},
            redrive_id = NULL, fingerprint = NULL, causes = NULL
        WHERE id IN ({rows})";
    lock_relay_keys: ByRows = "
        SELECT 1 FROM {p}dead_letter letter FORCE INDEX (PRIMARY)
        STRAIGHT_JOIN {p}held_key held FORCE INDEX (PRIMARY) ON held.consumer_group = '' AND held.topic =
            letter.topic AND held.`key` = letter.`key`
        WHERE letter.id IN ({rows}) ORDER BY held.topic, held.`key` FOR UPDATE";
    // Another dead letter of the key that holds it keeps it held. Runs after `lock_relay_keys`.
    release_relay_keys: ByRows = "
        DELETE held FROM {p}dead_letter letter FORCE INDEX (PRIMARY)
        STRAIGHT_JOIN {p}held_key held FORCE INDEX (PRIMARY)
            ON held.consumer_group = '' AND held.topic = letter.topic AND held.`key` = letter.`key`
        WHERE letter.id IN ({rows})
          AND NOT EXISTS (
            SELECT 1 FROM {p}dead_letter other FORCE INDEX ({b}dead_letter_open)
            WHERE other.is_open = 1 AND other.consumer_group = '' AND other.topic = held.topic
              AND other.`key` = held.`key` AND other.holds_key)";
    dead_letter_stats: Sql = "
        SELECT CASE WHEN discarded THEN 'discarded' WHEN ignored AND status = 'parked' THEN 'ignored' ELSE status END
                   AS shown, COUNT(*)
        FROM {p}dead_letter GROUP BY shown";
    open_letters: Sql = "
        SELECT topic, consumer_group, status, COUNT(*) FROM {p}dead_letter FORCE INDEX ({b}dead_letter_open)
        WHERE is_open = 1 GROUP BY topic, consumer_group, status ORDER BY topic, consumer_group";
    discard: ByRows = "
        UPDATE {p}dead_letter FORCE INDEX (PRIMARY) SET status = 'done', discarded = TRUE, due = NULL, done_at = {now}
        WHERE id IN ({rows})";
    keys_of: ByRows = "
        SELECT DISTINCT consumer_group, topic, `key` FROM {p}dead_letter FORCE INDEX (PRIMARY)
        WHERE id IN ({rows}) AND `key` IS NOT NULL AND holds_key ORDER BY consumer_group, topic, `key`";
    edit: Sql = "
        UPDATE {p}dead_letter SET original_payload = COALESCE(original_payload, payload), payload = ?
        WHERE id = ? AND status = 'parked'";
    parked_age_p95: Sql = "
        SELECT GREATEST(TIMESTAMPDIFF(MICROSECOND, first_seen, {now}), 0) FROM {p}dead_letter
        WHERE is_open = 1 AND status = 'parked' ORDER BY first_seen LIMIT 1 OFFSET ?";

    // Housekeeping. Expired rows are listed without locks and deleted by key: a statement that locks rows while
    // searching waits for transactions that work on them.
    remove_sent: Sql = "
        DELETE sent FROM (
            SELECT id FROM {p}outbox_sent FORCE INDEX ({b}outbox_sent_at)
            WHERE sent_at < {now} - INTERVAL ? MICROSECOND ORDER BY sent_at LIMIT ?) old
        STRAIGHT_JOIN {p}outbox_sent sent FORCE INDEX (PRIMARY) ON sent.id = old.id";
    old_sent: Sql = &(whole(SENT_ROWS) + " AND o.sent_at < {now} - INTERVAL ? MICROSECOND ORDER BY o.sent_at LIMIT ?");
    remove_these_sent: Sql = "
        DELETE sent FROM JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT PATH '$')) given
        STRAIGHT_JOIN {p}outbox_sent sent FORCE INDEX (PRIMARY) ON sent.id = given.id";
    forget_handled: Sql = "
        DELETE inbox FROM (
            SELECT handled.consumer_group, handled.message_id
            FROM {p}inbox handled FORCE INDEX ({b}inbox_handled)
            WHERE handled.handled_at < {now} - INTERVAL ? MICROSECOND AND NOT EXISTS (
                SELECT 1 FROM {p}dead_letter letter FORCE INDEX ({b}dead_letter_message)
                WHERE letter.message_id = handled.message_id AND letter.consumer_group = handled.consumer_group
                  AND letter.is_open = 1)
            ORDER BY handled.handled_at LIMIT ?) old
        STRAIGHT_JOIN {p}inbox inbox FORCE INDEX (PRIMARY)
            ON inbox.consumer_group = old.consumer_group AND inbox.message_id = old.message_id";
    // Half messages. The nine columns of a message come first in `half_insert` and `half_complete`.
    half_insert: Sql = "
        INSERT INTO {p}half_message (id, topic, `key`, sequence, kind, mode, headers, payload, created_at, fingerprint,
            business_type, business_id, check_back, check_after_ms, next_check_at, state, has_message)
        VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, {now} + INTERVAL ? MICROSECOND, 'prepared', TRUE)";
    // The id is not changed: it is bound first because it comes first in a message.
    half_complete: Sql = "
        UPDATE {p}half_message SET id = ?, topic = ?, `key` = ?, sequence = ?, kind = ?, mode = ?, headers = ?,
            payload = ?, created_at = ?, fingerprint = ?, business_type = ?, business_id = ?, check_back = ?,
            check_after_ms = ?, has_message = TRUE
        WHERE id = ? AND NOT has_message";
    half_insert_early: Sql = "
        INSERT INTO {p}half_message (id, state, decided_by, decided_at, has_message) VALUES (?, ?, ?, {now}, FALSE)";
    half_stored: Sql = "SELECT state, fingerprint FROM {p}half_message WHERE id = ?";
    half_decide: Sql = "
        UPDATE {p}half_message SET state = ?, decided_by = ?, decided_at = {now}, next_check_at = NULL
        WHERE id = ? AND state IN ('prepared', 'parked')";
    half_enqueue: Sql = "
        INSERT INTO {p}outbox (message_id, topic, `key`, sequence, kind, mode, headers, payload, created_at)
        SELECT id, topic, `key`, sequence, kind, mode, headers, payload, created_at FROM {p}half_message
        WHERE id = ? AND state = 'committed'";
    half_contradict: Sql = "
        UPDATE {p}half_message SET contradicted_at = {now}, contradicted_by = ?
        WHERE id = ? AND contradicted_at IS NULL";
    half_acknowledge: Sql = "
        UPDATE {p}half_message SET acknowledged_at = {now}, acknowledged_by = ?
        WHERE id = ? AND contradicted_at IS NOT NULL AND acknowledged_at IS NULL";
    half_audit: Sql = "INSERT INTO {p}audit (actor, action, message_id, detail) VALUES (?, ?, ?, ?)";
    half_due: Sql = "
        SELECT id AS message_id, topic, `key`, sequence, kind, mode, headers, payload, {ms:created_at} AS created_at,
            business_type, business_id, check_back, check_after_ms, {ms:prepared_at} AS prepared_at,
            CAST(checks AS SIGNED) AS checks
        FROM {p}half_message FORCE INDEX ({b}half_message_due) WHERE next_check_at <= {now}
        ORDER BY next_check_at LIMIT ? FOR UPDATE SKIP LOCKED";
    // The lease and the ids are appended.
    half_claim: Sql = "UPDATE {p}half_message FORCE INDEX (PRIMARY) SET next_check_at = {now} + INTERVAL ";
    half_record_check: Sql = "
        UPDATE {p}half_message SET checks = checks + 1, last_answer = ?, state = ?,
            next_check_at = {now} + INTERVAL ? MICROSECOND
        WHERE id = ? AND state = 'prepared' AND checks = ?";
    half_messages: Sql = "
        SELECT {uuid:h.id} AS id, h.state, h.topic, h.`key`, h.kind, h.business_type, h.business_id, h.check_back,
            {ms:h.prepared_at} AS prepared_at, {ms:h.decided_at} AS decided_at, h.decided_by,
            CAST(h.checks AS SIGNED) AS checks, {ms:h.next_check_at} AS next_check_at, h.last_answer,
            {ms:h.contradicted_at} AS contradicted_at, h.contradicted_by, {ms:h.acknowledged_at} AS acknowledged_at,
            h.acknowledged_by
        FROM {p}half_message h WHERE TRUE";
    half_old: Sql = "
        SELECT {uuid:h.id} AS id, h.state, h.topic, h.`key`, h.kind, h.business_type, h.business_id, h.check_back,
            {ms:h.prepared_at} AS prepared_at, {ms:h.decided_at} AS decided_at, h.decided_by,
            CAST(h.checks AS SIGNED) AS checks, {ms:h.next_check_at} AS next_check_at, h.last_answer,
            {ms:h.contradicted_at} AS contradicted_at, h.contradicted_by, {ms:h.acknowledged_at} AS acknowledged_at,
            h.acknowledged_by, h.sequence, h.mode, h.headers, h.payload
        FROM {p}half_message h FORCE INDEX ({b}half_message_decided)
        WHERE h.decided_at < {now} - INTERVAL ? MICROSECOND
          AND (h.contradicted_at IS NULL OR h.acknowledged_at IS NOT NULL)
        ORDER BY h.decided_at LIMIT ?";
    remove_these_half: Sql = "
        DELETE half FROM JSON_TABLE(?, '$[*]' COLUMNS (id CHAR(32) PATH '$')) given
        STRAIGHT_JOIN {p}half_message half FORCE INDEX (PRIMARY) ON half.id = UNHEX(given.id)
            AND half.decided_at IS NOT NULL AND (half.contradicted_at IS NULL OR half.acknowledged_at IS NOT NULL)";
    half_stats: Sql = "
        SELECT prepared.rows_found, parked.rows_found,
            (SELECT COUNT(*) FROM {p}half_message WHERE contradicted_at IS NOT NULL AND acknowledged_at IS NULL),
            (SELECT COUNT(*) FROM {p}half_message WHERE state = 'committed' AND has_message = FALSE),
            CAST(GREATEST(0, COALESCE(TIMESTAMPDIFF(SECOND, LEAST(COALESCE(prepared.oldest, parked.oldest),
                COALESCE(parked.oldest, prepared.oldest)), {now}), 0)) AS SIGNED)
        FROM (SELECT COUNT(*) AS rows_found, MIN(prepared_at) AS oldest FROM {p}half_message
              WHERE state = 'prepared' AND has_message = TRUE) prepared,
             (SELECT COUNT(*) AS rows_found, MIN(prepared_at) AS oldest FROM {p}half_message
              WHERE state = 'parked' AND has_message = TRUE) parked";
    remove_half_messages: Sql = "
        DELETE half FROM (
            SELECT id FROM {p}half_message FORCE INDEX ({b}half_message_decided)
            WHERE decided_at < {now} - INTERVAL ? MICROSECOND
              AND (contradicted_at IS NULL OR acknowledged_at IS NOT NULL)
            ORDER BY decided_at LIMIT ?) old
        STRAIGHT_JOIN {p}half_message half FORCE INDEX (PRIMARY) ON half.id = old.id
            AND (half.contradicted_at IS NULL OR half.acknowledged_at IS NOT NULL)";

    // Idempotency records.
    record_insert: Sql = "
        INSERT IGNORE INTO {p}idempotency (id, kind, scope, business_type, `key`, state, fingerprint, epoch, parks,
            expires_at, ttl_ms, ceiling_at)
        VALUES (?, ?, ?, ?, ?, 'in_flight', ?, {now_ms}, ?, {now} + INTERVAL ? MICROSECOND, ?,
            {now} + INTERVAL ? MICROSECOND)";
    record_take_over: Sql = "
        UPDATE {p}idempotency SET fingerprint = ?, claimed_at = UTC_TIMESTAMP(3), updated_at = {now}, status = NULL,
            headers = NULL, body = NULL, body_state = NULL, reason = NULL, parks = ?,
            expires_at = {now} + INTERVAL ? MICROSECOND, ttl_ms = ?, ceiling_at = {now} + INTERVAL ? MICROSECOND,
            epoch = epoch + 1, state = 'in_flight'
        WHERE id = ? AND epoch = ? AND state = ?
          AND (state = 'released' OR (state = 'issued' AND NOT {expired})
               OR (state = 'in_flight' AND NOT parks AND {expired}))";
    record_stored: Sql = "
        SELECT state, epoch, fingerprint, CAST(parks AS SIGNED) AS parks,
            CAST(CASE WHEN {expired} THEN 0
                 ELSE GREATEST(1, TIMESTAMPDIFF(MICROSECOND, {now}, expires_at) DIV 1000) END AS SIGNED) AS remaining,
            CAST(status AS SIGNED) AS status, headers, body, body_state
        FROM {p}idempotency WHERE id = ?";
    record_renew: Sql = "
        UPDATE {p}idempotency SET expires_at = LEAST({now} + INTERVAL ? MICROSECOND, ceiling_at), ttl_ms = ?
        WHERE id = ? AND epoch = ? AND state = 'in_flight' AND ceiling_at > {now}";
    record_complete: Sql = "
        UPDATE {p}idempotency SET state = 'completed', status = ?, headers = ?, body = ?, body_state = ?,
            updated_at = {now}, reason = NULL
        WHERE id = ? AND epoch = ? AND state IN ('in_flight', 'uncertain')";
    record_release: Sql = "
        UPDATE {p}idempotency SET state = 'released', updated_at = {now}, reason = NULL
        WHERE id = ? AND epoch = ? AND state IN ('in_flight', 'uncertain')";
    record_unknown: Sql = "
        UPDATE {p}idempotency SET state = IF(parks, 'uncertain', 'in_flight'), expires_at = {now}, updated_at = {now},
            reason = ?
        WHERE id = ? AND epoch = ? AND state IN ('in_flight', 'uncertain')";
    record_answer: Sql = "
        UPDATE {p}idempotency SET state = 'completed', status = ?, headers = ?, body = ?, body_state = ?,
            updated_at = {now}
        WHERE id = ? AND state = 'in_flight'";
    record_resolve: Sql = "
        UPDATE {p}idempotency SET epoch = epoch + 1, status = ?, headers = ?, body = ?, body_state = ?,
            updated_at = {now}, reason = CONCAT('resolved by ', ?), state = ?
        WHERE id = ? AND (state = 'uncertain' OR (state = 'in_flight' AND parks AND {expired}))";
    record_audit: Sql = "
        INSERT INTO {p}audit (actor, action, message_id, detail)
        SELECT ?, ?, ?, CONCAT(business_type, '/', `key`, ' (scope ', scope, ')') FROM {p}idempotency WHERE id = ?";
    records: Sql = "
        SELECT LOWER(HEX(r.id)) AS id, r.kind, r.scope, r.business_type, r.`key` AS `key`, r.state, r.epoch, r.parks,
            {ms:r.claimed_at} AS claimed_at, {ms:r.updated_at} AS updated_at,
            CASE WHEN r.state IN ('issued', 'in_flight') THEN {ms:r.expires_at} END AS expires_at,
            r.status, r.body_state, r.body_bytes, r.reason
        FROM (SELECT id, kind, scope, business_type, `key`, state AS stored_state, epoch,
                  CASE WHEN state = 'in_flight' AND parks AND {expired} THEN 'uncertain' ELSE state END AS state,
                  CAST(parks AS SIGNED) AS parks, claimed_at, updated_at, expires_at, CAST(status AS SIGNED) AS status,
                  body_state, CAST(OCTET_LENGTH(body) AS SIGNED) AS body_bytes, reason
              FROM {p}idempotency) r
        WHERE TRUE";
    record_stats: Sql = "
        SELECT CAST(COALESCE(SUM(NOT is_uncertain AND is_live), 0) AS SIGNED),
            CAST(COALESCE(SUM(is_uncertain), 0) AS SIGNED),
            CAST(GREATEST(0, COALESCE(TIMESTAMPDIFF(SECOND, MIN(IF(is_uncertain, claimed_at, NULL)), {now}), 0))
                AS SIGNED)
        FROM (SELECT claimed_at, NOT {expired} AS is_live,
                  state = 'uncertain' OR (parks AND {expired}) AS is_uncertain
              FROM {p}idempotency
              WHERE state IN ('in_flight', 'uncertain') AND kind IN ('record', 'token')) open_records";
    token_issue: Sql = "
        INSERT INTO {p}idempotency (id, kind, scope, business_type, `key`, state, epoch, expires_at, ttl_ms, ceiling_at)
        VALUES (?, ?, ?, ?, ?, 'issued', {now_ms}, {now} + INTERVAL ? MICROSECOND, ?, {now})";
    token_expiry: Sql = "SELECT {ms:expires_at} FROM {p}idempotency WHERE id = ?";
    remove_answers: Sql = "
        UPDATE (
            SELECT id FROM {p}idempotency FORCE INDEX ({b}idempotency_kept)
            WHERE body_state = 'kept' AND claimed_at < {now} - INTERVAL ? MICROSECOND
            ORDER BY claimed_at LIMIT ?) old
        STRAIGHT_JOIN {p}idempotency record FORCE INDEX (PRIMARY) ON record.id = old.id
        SET record.headers = NULL, record.body = NULL, record.body_state = 'expired'";
    remove_records: Sql = "
        DELETE record FROM (
            SELECT id, epoch FROM {p}idempotency FORCE INDEX ({b}idempotency_at)
            WHERE claimed_at < {now} - INTERVAL ? MICROSECOND
              AND (state IN ('completed', 'released') OR (state = 'issued' AND {expired})
                   OR (state = 'in_flight' AND NOT parks AND {expired}))
            ORDER BY claimed_at LIMIT ?) old
        STRAIGHT_JOIN {p}idempotency record FORCE INDEX (PRIMARY) ON record.id = old.id AND record.epoch = old.epoch
            AND (record.state IN ('completed', 'released') OR {expired})";

    // The barrier.
    barrier_enter: Sql = "INSERT INTO {p}barrier (id) VALUES (?)";
    barrier_verdict: Sql = "SELECT verdict FROM {p}barrier WHERE id = ?";
    barrier_lock: Sql = "SELECT verdict FROM {p}barrier FORCE INDEX (PRIMARY) WHERE id = ? FOR UPDATE NOWAIT";
    barrier_tombstone: Sql = "INSERT IGNORE INTO {p}barrier (id, verdict) VALUES (?, 'rolled_back')";
    barrier_removed: Sql = "SELECT {ms:removed_before} FROM {p}barrier_removed WHERE slot = 1";
    remove_barriers: Sql = "
        DELETE barrier FROM (
            SELECT id FROM {p}barrier FORCE INDEX ({b}barrier_at)
            WHERE created_at < {now} - INTERVAL ? MICROSECOND ORDER BY created_at LIMIT ?) old
        STRAIGHT_JOIN {p}barrier barrier FORCE INDEX (PRIMARY) ON barrier.id = old.id";
    barriers_removed: Sql = "
        INSERT INTO {p}barrier_removed (slot, removed_before) VALUES (1, {now} - INTERVAL ? MICROSECOND)
        ON DUPLICATE KEY UPDATE removed_before = GREATEST(removed_before, VALUES(removed_before))";

    remove_enqueued_ids: Sql = "
        DELETE enqueued FROM (
            SELECT message_id FROM {p}enqueued_id FORCE INDEX ({b}enqueued_id_at)
            WHERE enqueued_at < {now} - INTERVAL ? MICROSECOND ORDER BY enqueued_at LIMIT ?) old
        STRAIGHT_JOIN {p}enqueued_id enqueued FORCE INDEX (PRIMARY) ON enqueued.message_id = old.message_id";
    remove_retries: Sql = "
        DELETE delivery FROM (
            SELECT d.consumer_group, d.message_id, d.topic FROM {p}delivery d
            WHERE d.next_attempt_at < {now} - INTERVAL ? MICROSECOND OR EXISTS (
                SELECT 1 FROM {p}inbox i WHERE i.consumer_group = d.consumer_group AND i.message_id = d.message_id)
            LIMIT ?) old
        STRAIGHT_JOIN {p}delivery delivery FORCE INDEX (PRIMARY)
            ON delivery.consumer_group = old.consumer_group AND delivery.message_id = old.message_id
                AND delivery.topic = old.topic";
    remove_done_letters: Sql = "
        DELETE letter FROM (
            SELECT id FROM {p}dead_letter FORCE INDEX ({b}dead_letter_done)
            WHERE done_at < {now} - INTERVAL ? MICROSECOND
                AND (restored_at IS NULL OR FROM_UNIXTIME(restored_at / 1000) < NOW(6) - INTERVAL ? MICROSECOND)
            ORDER BY done_at LIMIT ?) old
        STRAIGHT_JOIN {p}dead_letter letter FORCE INDEX (PRIMARY) ON letter.id = old.id AND letter.status = 'done'";
    forget_sequences: Sql = "
        DELETE known FROM (
            SELECT seen.consumer_group, seen.topic, seen.`key` FROM {p}sequence seen FORCE INDEX (PRIMARY)
            WHERE seen.since < {now} - INTERVAL ? MICROSECOND AND NOT EXISTS (
                SELECT 1 FROM {p}dead_letter letter FORCE INDEX ({b}dead_letter_open)
                WHERE letter.is_open = 1 AND letter.consumer_group = seen.consumer_group
                  AND letter.topic = seen.topic AND letter.`key` = seen.`key`)
            LIMIT ?) old
        STRAIGHT_JOIN {p}sequence known FORCE INDEX (PRIMARY)
            ON known.consumer_group = old.consumer_group AND known.topic = old.topic AND known.`key` = old.`key`";

    // The schema.
    schema_version: Sql = "SELECT COALESCE(MAX(version), 0) FROM {p}schema WHERE applied_at IS NOT NULL";
    schema_begun: Sql = "SELECT COUNT(*) FROM {p}schema WHERE version = ?";
    schema_begin: Sql = "INSERT INTO {p}schema (version) VALUES (?)";
    schema_abandon: Sql = "DELETE FROM {p}schema WHERE version = ? AND applied_at IS NULL";
    schema_record: Sql = "UPDATE {p}schema SET applied_at = {now} WHERE version = ?";
}

#[cfg(test)]
mod tests {
    use landfall_core::TablePrefix;

    use super::*;

    #[test]
    fn only_the_prefix_is_pasted_into_statements() {
        let statements = Statements::new(&TablePrefix::new("billing.shop_").unwrap());
        for statement in [&statements.next, &statements.park, &statements.outbox_details, &statements.enqueue_8] {
            let text = statement.as_str();
            assert!(text.contains("billing.shop_outbox") || text.contains("billing.shop_dead_letter"), "{text}");
            assert!(!text.contains(['{', '}', '@']), "{text}");
        }
    }
}
