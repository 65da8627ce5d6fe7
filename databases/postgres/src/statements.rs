//! Every statement of the adapter, built once per instance: `{p}` is the validated table prefix.
//!
//! Values always travel as parameters. A statement that locks several rows locks them in a stated order.

use landfall_sql_toolkit::statements;

use crate::outbox::settle_call::SettleArguments;

pub(crate) use landfall_sql_toolkit::{Sql, fill_prefix};

/// Whether a lease has expired. Its holder writes now + `ttl_ms`, and a clock that is set back makes that moment more
/// distant. An expiry further away than twice `ttl_ms` was written under a wrong clock and counts as expired. Rows of
/// schema version 1 have no `ttl_ms`; for them the longest configurable lease is assumed.
const EXPIRED: &str = "(lease.expires_at <= clock_timestamp() OR {misdated})";
const MISDATED: &str =
    "lease.expires_at > clock_timestamp() + 2 * coalesce(lease.ttl_ms, 3600000) * interval '1 millisecond'";

fn expand_words(template: &str) -> String {
    template.replace("{expired}", EXPIRED).replace("{misdated}", MISDATED)
}

statements! {
    expand = expand_words;

    // The outbox. One message is the usual case; arrays would cost it a fifth of the inserts per second.
    enqueue_one: Sql = "
        INSERT INTO {p}outbox (message_id, topic, key, sequence, kind, mode, headers, payload, created_at)
        VALUES ($1, $2, $3, $4, $5, $6, $7::text::jsonb, $8, $9)";
    // Ids are drawn in the order of the arrays.
    enqueue: Sql = "
        INSERT INTO {p}outbox (message_id, topic, key, sequence, kind, mode, headers, payload, created_at)
        SELECT message_id, topic, key, sequence, kind, mode, headers::jsonb, payload, created_at
        FROM unnest($1::uuid[], $2::text[], $3::text[], $4::bigint[], $5::text[], $6::text[], $7::text[],
                    $8::bytea[], $9::timestamptz[]) WITH ORDINALITY
            AS given (message_id, topic, key, sequence, kind, mode, headers, payload, created_at, ordinal)
        ORDER BY ordinal";
    // Ids of senders that retry.
    insert_enqueued_id: Sql = "
        INSERT INTO {p}enqueued_id (message_id, fingerprint) VALUES ($1, $2) ON CONFLICT DO NOTHING";
    enqueued_fingerprint: Sql = "SELECT fingerprint FROM {p}enqueued_id WHERE message_id = $1";
    // The progress of every shard; shards with equal progress share a row.
    progress: Sql = "
        SELECT array_agg(shard) AS shards, n, s1::text AS s1, s2::text AS s2, last_id, done
        FROM {p}outbox_place WHERE shard = ANY ($1) GROUP BY n, s1::text, s2::text, last_id, done";
    incarnation: Sql = "SELECT {p}outbox_life()";
    is_foreign: Sql = "SELECT {p}outbox_is_foreign()";
    rewrite_foreign: Sql = "SELECT {p}outbox_rebase()";
    window_open: Sql = "
        SELECT found.*, given.at
        FROM jsonb_to_recordset($1::text::jsonb) AS given (at integer, shards smallint[], s1 text)
        CROSS JOIN LATERAL {p}outbox_next(
            given.shards, given.s1::pg_snapshot, $2, $3, $4, $5::text[]::xid8[]) AS found";
    watermark: Sql = "SELECT id, xid::text AS xid FROM {p}outbox_mark()";
    window_range: Sql = "SELECT * FROM {p}outbox_walk($1, $2::text::pg_snapshot, $3::text::pg_snapshot, $4, $5, $6)";
    window_next_id: Sql = "SELECT {p}outbox_jump($1, $2::text::pg_snapshot, $3::text::pg_snapshot, $4)";
    window_ids: Sql = "SELECT * FROM {p}outbox_pick($1)";
    due: Sql = "SELECT * FROM {p}outbox_due($1, $2)";
    locate: Sql = "
        SELECT id, {p}shard_of(key, id) AS shard, xid::text::bigint AS xid FROM {p}outbox
        WHERE id = ANY ($1) AND {p}shard_of(key, id) = ANY ($2)
        UNION ALL SELECT id, shard, NULL FROM {p}outbox_waiting WHERE id = ANY ($1) AND shard = ANY ($2)";
    settle: Sql = &format!(
        "SELECT verdict, changed, numbers FROM {{p}}outbox_settle({})", SettleArguments::notation());
    still_held: Sql = "
        SELECT lease.name FROM unnest($1::text[], $2::text[], $3::bigint[]) AS given (name, holder, epoch)
        JOIN {p}lease_holder lease USING (name, holder, epoch)";
    full_partitions: Sql = "SELECT {p}outbox_full_parts()";
    empty_partition: Sql = "SELECT {p}outbox_empty($1, $2)";
    empty_progress: Sql = "SELECT {p}outbox_progress_empty()";
    claim: Sql = "SELECT * FROM {p}outbox_claim($1)";
    remove_claimed: Sql = "SELECT {p}outbox_leave($1, $2, $3)";
    retry_by_hand: Sql = "
        WITH due AS (
            UPDATE {p}outbox_waiting SET next_attempt_at = clock_timestamp()
            WHERE id = ANY ($1) AND attempts > 0 AND next_attempt_at > clock_timestamp()
            RETURNING id, message_id
        ), audited AS (
            INSERT INTO {p}audit (actor, action, message_id) SELECT $2, 'retry', message_id FROM due ORDER BY id
        )
        SELECT id FROM due ORDER BY id";
    park_by_hand: Sql = "
        WITH gone AS (
            DELETE FROM {p}outbox_waiting WHERE id = ANY ($1) AND attempts > 0 RETURNING *
        ), letter AS (
            INSERT INTO {p}dead_letter AS letter (
                message_id, topic, key, sequence, kind, mode, headers, payload, payload_text, created_at, outbox_id,
                status, error_code, error, attempts)
            SELECT message_id, topic, key, sequence, kind, mode, headers, payload, payload_text, created_at, id,
                'parked', $2, $3, attempts
            FROM gone ORDER BY id
            ON CONFLICT (outbox_id) WHERE consumer_group = '' DO UPDATE
            SET message_id = excluded.message_id, topic = excluded.topic, key = excluded.key,
                sequence = excluded.sequence, kind = excluded.kind, mode = excluded.mode,
                headers = excluded.headers, payload = excluded.payload, payload_text = excluded.payload_text,
                status = 'parked',
                error_code = excluded.error_code, error = excluded.error, holds_key = true,
                attempts = letter.attempts + excluded.attempts, last_attempt = now()
            RETURNING letter.id, letter.message_id, letter.topic, letter.key, letter.error, letter.outbox_id
        ), held AS (
            INSERT INTO {p}held_key AS held (consumer_group, topic, key)
            SELECT DISTINCT '', topic, key FROM letter WHERE key IS NOT NULL ORDER BY 2, 3
            ON CONFLICT (consumer_group, topic, key) DO UPDATE SET since = held.since
        ), audited AS (
            INSERT INTO {p}audit (actor, action, dead_letter_id, message_id, detail)
            SELECT $4, 'park', id, message_id, error FROM letter ORDER BY outbox_id
        )
        SELECT outbox_id FROM letter ORDER BY outbox_id";
    // A row that was not copied yet is as old as its creation, as it is for `remove_sent`.
    old_sent: Sql = "
        SELECT id, message_id, topic, key, state, attempts, next_attempt_at, last_error, created_at, sent_at,
               octet_length(payload)::bigint AS payload_bytes, sequence, kind, mode, headers::text, payload
        FROM {p}outbox_status status
        WHERE state = 'sent' AND clock_timestamp() - make_interval(secs => $1) >
              CASE WHEN EXISTS (SELECT 1 FROM {p}outbox_sent sent WHERE sent.id = status.id)
                   THEN sent_at ELSE created_at END
        LIMIT $2";
    remove_these_sent: Sql = "SELECT {p}outbox_remove_these_sent($1)";
    remove_sent: Sql = "SELECT {p}outbox_remove_sent(make_interval(secs => $1), $2)";
    forget_handled: Sql = "
        DELETE FROM {p}inbox WHERE ctid = ANY (ARRAY(
            SELECT inbox.ctid FROM {p}inbox inbox
            WHERE inbox.handled_at < clock_timestamp() - make_interval(secs => $1)
              AND NOT EXISTS (SELECT 1 FROM {p}dead_letter letter
                              WHERE letter.message_id = inbox.message_id
                                AND letter.consumer_group = inbox.consumer_group AND letter.status <> 'done')
            LIMIT $2 FOR UPDATE SKIP LOCKED))";
    remove_enqueued_ids: Sql = "
        DELETE FROM {p}enqueued_id WHERE message_id = ANY (ARRAY(
            SELECT message_id FROM {p}enqueued_id
            WHERE enqueued_at < clock_timestamp() - make_interval(secs => $1)
            ORDER BY enqueued_at LIMIT $2 FOR UPDATE SKIP LOCKED))";
    remove_retries: Sql = "
        DELETE FROM {p}delivery WHERE ctid = ANY (ARRAY(
            SELECT d.ctid FROM {p}delivery d
            WHERE d.next_attempt_at < clock_timestamp() - make_interval(secs => $1) OR EXISTS (
                SELECT 1 FROM {p}inbox i WHERE i.consumer_group = d.consumer_group AND i.message_id = d.message_id)
            LIMIT $2 FOR UPDATE SKIP LOCKED))";
    remove_done_letters: Sql = "
        DELETE FROM {p}dead_letter WHERE id = ANY (ARRAY(
            SELECT id FROM {p}dead_letter
            WHERE status = 'done' AND last_attempt < clock_timestamp() - make_interval(secs => $1)
            ORDER BY last_attempt LIMIT $2 FOR UPDATE SKIP LOCKED))";
    forget_sequences: Sql = "
        DELETE FROM {p}sequence WHERE ctid = ANY (ARRAY(
            SELECT known.ctid FROM {p}sequence known
            WHERE known.since < clock_timestamp() - make_interval(secs => $1)
              AND NOT EXISTS (SELECT 1 FROM {p}dead_letter letter
                              WHERE letter.consumer_group = known.consumer_group AND letter.topic = known.topic
                                AND letter.key = known.key AND letter.status <> 'done')
            LIMIT $2 FOR UPDATE SKIP LOCKED))";
    outbox_stats: Sql = "
        SELECT unsettled.rows + waiting.fresh AS pending, waiting.failed AS retrying,
               greatest(coalesce(extract(epoch FROM clock_timestamp() - least(unsettled.oldest, waiting.oldest)), 0),
                        0)::float8 AS oldest_seconds,
               (SELECT count(*) FROM {p}dead_letter WHERE consumer_group = '' AND status = 'parked') AS parked,
               (SELECT coalesce(sum(published), 0)::bigint FROM {p}outbox_progress) AS published
        FROM (SELECT count(*) AS rows, min(created_at) AS oldest FROM {p}outbox_unsettled) unsettled,
             (SELECT count(*) FILTER (WHERE attempts = 0) AS fresh, count(*) FILTER (WHERE attempts > 0) AS failed,
                     min(created_at) AS oldest FROM {p}outbox_waiting) waiting";
    outbox_list: Sql = "
        SELECT id, message_id, topic, key, state, attempts, next_attempt_at, last_error, created_at, sent_at,
               octet_length(payload)::bigint AS payload_bytes
        FROM {p}outbox_status WHERE true";
    outbox_show: Sql = "
        SELECT id, message_id, topic, key, state, attempts, next_attempt_at, last_error, created_at, sent_at,
               octet_length(payload)::bigint AS payload_bytes, sequence, kind, mode, headers::text, payload
        FROM {p}outbox_status WHERE message_id = $1 ORDER BY id";

    // Leases. A lease that another holder has is not locked, so that attempts to acquire it do not slow the holder
    // down.
    lease_acquire: Sql = "
        WITH misdated AS (
            SELECT holder FROM {p}lease lease WHERE name = $1 AND holder IS NOT NULL AND {misdated}
        )
        INSERT INTO {p}lease AS lease (name, holder, epoch, expires_at, ttl_ms)
        SELECT $1, $2, 1, clock_timestamp() + make_interval(secs => $3), ceil($3 * 1000)
        WHERE NOT EXISTS (SELECT 1 FROM {p}lease lease WHERE name = $1 AND holder <> $2 AND NOT {expired})
        ON CONFLICT (name) DO UPDATE
        SET holder = excluded.holder,
            epoch = CASE WHEN lease.holder = excluded.holder AND NOT {expired} THEN lease.epoch
                         ELSE lease.epoch + 1 END,
            expires_at = clock_timestamp() + make_interval(secs => $3),
            ttl_ms = excluded.ttl_ms
        WHERE lease.holder IS NULL OR lease.holder = excluded.holder OR {expired}
        RETURNING epoch, (SELECT holder FROM misdated) AS misdated";
    lease_renew: Sql = "
        WITH mine AS (
            SELECT lease.name
            FROM unnest($1::text[], $2::text[], $3::bigint[]) AS given (name, holder, epoch)
            JOIN {p}lease lease USING (name, holder, epoch)
            ORDER BY lease.name
            FOR NO KEY UPDATE OF lease
        )
        UPDATE {p}lease lease
        SET expires_at = clock_timestamp() + make_interval(secs => $4), ttl_ms = ceil($4 * 1000)
        FROM mine WHERE lease.name = mine.name
        RETURNING lease.name";
    lease_release: Sql = "
        WITH mine AS (
            SELECT lease.name
            FROM unnest($1::text[], $2::text[], $3::bigint[]) AS given (name, holder, epoch)
            JOIN {p}lease lease USING (name, holder, epoch)
            ORDER BY lease.name
            FOR NO KEY UPDATE OF lease
        )
        UPDATE {p}lease lease SET holder = NULL FROM mine WHERE lease.name = mine.name";
    lease_held: Sql = r#"
        SELECT name FROM {p}lease lease
        WHERE holder IS NOT NULL AND NOT {expired} AND starts_with(name, $1)
        ORDER BY name COLLATE "C""#;
    lease_lapsed: Sql = r#"
        SELECT DISTINCT holder COLLATE "C" FROM {p}lease lease
        WHERE holder IS NOT NULL AND {expired} AND starts_with(name, $1)
        ORDER BY 1"#;

    // The inbox. The id is inserted before the held key is locked, so that two deliveries of one message cannot
    // deadlock; the second part depends on the first for that.
    admit: Sql = "
        WITH taken AS (
            INSERT INTO {p}inbox (consumer_group, message_id) VALUES ($1, $2) ON CONFLICT DO NOTHING RETURNING 1
        ), held AS (
            SELECT 1 FROM {p}held_key held
            WHERE held.consumer_group = $1 AND held.topic = $3 AND held.key = $4 AND EXISTS (SELECT 1 FROM taken)
            FOR UPDATE OF held
        )
        SELECT EXISTS (SELECT 1 FROM taken), EXISTS (SELECT 1 FROM held)";
    // The ids are sorted, and are inserted in that order.
    admit_batch: Sql = "
        INSERT INTO {p}inbox (consumer_group, message_id)
        SELECT $1, message_id FROM unnest($2::uuid[]) WITH ORDINALITY AS given (message_id, ordinal) ORDER BY ordinal
        ON CONFLICT DO NOTHING RETURNING message_id";
    handled: Sql = "SELECT message_id FROM {p}inbox WHERE consumer_group = $1 AND message_id = ANY ($2)";
    lock_held_keys: Sql = "
        SELECT held.topic, held.key FROM {p}held_key held
        JOIN unnest($2::text[], $3::text[]) AS given (topic, key) ON held.topic = given.topic AND held.key = given.key
        WHERE held.consumer_group = $1 ORDER BY held.topic, held.key FOR UPDATE OF held";
    lock_held_key: Sql = "
        SELECT 1 FROM {p}held_key WHERE consumer_group = $1 AND topic = $2 AND key = $3 FOR UPDATE";
    // After a dead letter of the key is done, the next one becomes due if it was waiting; without one, the key is free.
    // Runs after `lock_held_key`, as a separate statement that sees what was committed during the wait.
    hand_over_key: Sql = "
        WITH head AS (
            SELECT id FROM {p}dead_letter
            WHERE consumer_group = $1 AND topic = $2 AND key = $3 AND status <> 'done' AND holds_key
            ORDER BY id LIMIT 1
        ), handed_over AS (
            UPDATE {p}dead_letter SET due = id WHERE id = (SELECT id FROM head) AND status = 'waiting'
        )
        DELETE FROM {p}held_key
        WHERE consumer_group = $1 AND topic = $2 AND key = $3 AND NOT EXISTS (SELECT 1 FROM head)";
    queue_behind: Sql = "
        INSERT INTO {p}dead_letter (
            consumer_group, message_id, topic, key, sequence, kind, mode, headers, payload, created_at,
            original_partition, original_offset, status, error_code, error, attempts)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8::text::jsonb, $9, $10, $11, $12, 'waiting', $13, $14, 0)
        ON CONFLICT (consumer_group, message_id, topic, coalesce(key, '')) WHERE consumer_group <> '' DO NOTHING";
    park: Sql = "
        WITH letter AS (
            INSERT INTO {p}dead_letter (
                consumer_group, message_id, topic, key, sequence, kind, mode, headers, payload, created_at,
                original_partition, original_offset, status, error_code, error, attempts, holds_key, retry_at)
            VALUES ($1, $2, $3, $4, $5, $6, $7, $8::text::jsonb, $9, $10, $11, $12,
                CASE WHEN $17::float8 IS NULL THEN 'parked' ELSE 'delayed' END, $13, $14, $15, $16,
                clock_timestamp() + make_interval(secs => $17))
            ON CONFLICT (consumer_group, message_id, topic, coalesce(key, '')) WHERE consumer_group <> '' DO UPDATE
            SET status = excluded.status, due = NULL, error_code = excluded.error_code, error = excluded.error,
                attempts = excluded.attempts, holds_key = excluded.holds_key, last_attempt = now(),
                retry_at = excluded.retry_at, discarded = false
            RETURNING id, message_id, consumer_group, topic, key, error, holds_key, status
        ), held AS (
            INSERT INTO {p}held_key AS held (consumer_group, topic, key)
            SELECT consumer_group, topic, key FROM letter WHERE key IS NOT NULL AND holds_key
            ON CONFLICT (consumer_group, topic, key) DO UPDATE SET since = held.since
        ), audited AS (
            INSERT INTO {p}audit (actor, action, dead_letter_id, message_id, detail)
            SELECT 'consumer:' || consumer_group, CASE status WHEN 'parked' THEN 'park' ELSE 'delay' END, id,
                message_id,
                error
            FROM letter
        )
        SELECT id FROM letter";
    // Found by their time: dead letters that are not due yet are not read, however many there are.
    next_delayed: Sql = "
        SELECT id, attempts, message_id, topic, key, sequence, kind, mode, headers::text, payload, created_at, redrives,
               original_partition, original_offset
        FROM {p}dead_letter letter
        WHERE consumer_group = $1 AND status = 'delayed' AND retry_at <= clock_timestamp() AND id <> ALL ($2)
          AND (key IS NULL OR NOT EXISTS (
            SELECT 1 FROM {p}dead_letter earlier
            WHERE earlier.consumer_group = letter.consumer_group AND earlier.topic = letter.topic
              AND earlier.key = letter.key AND earlier.id < letter.id AND earlier.status <> 'done'
              AND earlier.holds_key))
        ORDER BY retry_at LIMIT 1
        FOR UPDATE OF letter SKIP LOCKED";
    next_redriven: Sql = "
        SELECT id, attempts, message_id, topic, key, sequence, kind, mode, headers::text, payload, created_at, redrives,
               original_partition, original_offset
        FROM {p}dead_letter letter
        WHERE consumer_group = $1 AND due IS NOT NULL AND status IN ('redriving', 'waiting') AND id <> ALL ($2)
          AND (key IS NULL OR NOT EXISTS (
            SELECT 1 FROM {p}dead_letter earlier
            WHERE earlier.consumer_group = letter.consumer_group AND earlier.topic = letter.topic
              AND earlier.key = letter.key AND earlier.id < letter.id AND earlier.status <> 'done'
              AND earlier.holds_key))
        ORDER BY due LIMIT 1
        FOR UPDATE OF letter SKIP LOCKED";
    complete_redriven: Sql = "
        WITH letter AS (
            UPDATE {p}dead_letter SET status = 'done', due = NULL, retry_at = NULL, last_attempt = now()
            WHERE id = $1 AND status IN ('redriving', 'waiting', 'delayed')
            RETURNING id, message_id, consumer_group
        ), audited AS (
            INSERT INTO {p}audit (actor, action, dead_letter_id, message_id)
            SELECT 'consumer:' || consumer_group, 'effect', id, message_id FROM letter
        )
        SELECT consumer_group FROM letter";
    park_redriven: Sql = "
        WITH letter AS (
            UPDATE {p}dead_letter
            SET status = CASE WHEN $5::float8 IS NULL THEN 'parked' ELSE 'delayed' END, due = NULL, attempts = $4,
                error_code = $2, error = $3, last_attempt = now(), holds_key = holds_key AND $6,
                retry_at = clock_timestamp() + make_interval(secs => $5)
            WHERE id = $1 AND status IN ('redriving', 'waiting', 'delayed')
            RETURNING id, message_id, consumer_group, topic, key, error, holds_key, status
        ), held AS (
            INSERT INTO {p}held_key AS held (consumer_group, topic, key)
            SELECT consumer_group, topic, key FROM letter WHERE key IS NOT NULL AND holds_key
            ON CONFLICT (consumer_group, topic, key) DO UPDATE SET since = held.since
        ), audited AS (
            INSERT INTO {p}audit (actor, action, dead_letter_id, message_id, detail)
            SELECT 'consumer:' || consumer_group, CASE status WHEN 'parked' THEN 'park' ELSE 'delay' END, id,
                message_id,
                error
            FROM letter
        )
        SELECT consumer_group FROM letter";

    // Deliveries that failed and are attempted again. A filter is appended to `retrying`.
    record_retry: Sql = "
        INSERT INTO {p}delivery (consumer_group, topic, message_id, key, attempts, error_code, error, next_attempt_at)
        VALUES ($1, $2, $3, $4, $5, $6, $7, clock_timestamp() + make_interval(secs => $8))
        ON CONFLICT (consumer_group, message_id, topic) DO UPDATE
        SET attempts = excluded.attempts, error_code = excluded.error_code, error = excluded.error,
            last_attempt_at = clock_timestamp(), next_attempt_at = excluded.next_attempt_at";
    clear_retry: Sql = "DELETE FROM {p}delivery WHERE consumer_group = $1 AND topic = $2 AND message_id = $3";
    retrying: Sql = "
        SELECT d.message_id::text, d.topic, d.consumer_group, d.key, d.attempts::bigint, d.error_code, d.error,
               (extract(epoch FROM d.first_failed_at) * 1000)::bigint,
               (extract(epoch FROM d.last_attempt_at) * 1000)::bigint,
               (extract(epoch FROM d.next_attempt_at) * 1000)::bigint
        FROM {p}delivery d WHERE NOT EXISTS (
            SELECT 1 FROM {p}inbox i WHERE i.consumer_group = d.consumer_group AND i.message_id = d.message_id)";
    retrying_counts: Sql = "
        SELECT d.topic, d.consumer_group, count(*) FROM {p}delivery d WHERE NOT EXISTS (
            SELECT 1 FROM {p}inbox i WHERE i.consumer_group = d.consumer_group AND i.message_id = d.message_id)
        GROUP BY d.topic, d.consumer_group";

    // The sequence that each entity has reached. The row is inserted before it is read, so that there is one to lock.
    reached: Sql = "
        INSERT INTO {p}sequence AS known (consumer_group, topic, key)
        SELECT $1, topic, key FROM unnest($2::text[], $3::text[]) WITH ORDINALITY AS given (topic, key, ordinal)
        ORDER BY ordinal
        ON CONFLICT (consumer_group, topic, key) DO UPDATE SET reached = known.reached RETURNING topic, key, reached";
    reach: Sql = "
        UPDATE {p}sequence known SET reached = given.reached, since = now()
        FROM unnest($2::text[], $3::text[], $4::bigint[]) AS given (topic, key, reached)
        WHERE known.consumer_group = $1 AND known.topic = given.topic AND known.key = given.key";

    // Dead letters. A filter is appended to the first two.
    find: Sql = "
        SELECT id, message_id, consumer_group, topic, key, sequence, kind,
               CASE WHEN discarded THEN 'discarded' ELSE status END AS status, error_code, error, attempts,
               redrives, original_partition, original_offset, first_seen, last_attempt, headers::text,
               {p}payload_shown(payload, payload_text) AS payload, original_payload, retry_at
        FROM {p}dead_letter WHERE true";
    find_ids: Sql = "SELECT id, consumer_group = '' FROM {p}dead_letter WHERE true";
    redrive_consumer: Sql = "
        WITH letter AS (
            UPDATE {p}dead_letter SET status = 'redriving', due = id, redrives = redrives + 1 WHERE id = ANY ($1)
            RETURNING id, message_id
        )
        INSERT INTO {p}audit (actor, action, dead_letter_id, message_id)
        SELECT $2, 'redrive', id, message_id FROM letter ORDER BY id";
    redrive_relay: Sql = "
        WITH letter AS (
            UPDATE {p}dead_letter SET status = 'done', redrives = redrives + 1, last_attempt = now()
            WHERE id = ANY ($1) RETURNING *
        ), restored AS (
            INSERT INTO {p}outbox_waiting (
                id, message_id, topic, key, sequence, kind, mode, headers, payload, payload_text, created_at, shard,
                next_attempt_at)
            SELECT outbox_id, message_id, topic, key, sequence, kind, mode, headers, payload, payload_text, created_at,
                {p}shard_of(key, outbox_id), clock_timestamp()
            FROM letter
        )
        INSERT INTO {p}audit (actor, action, dead_letter_id, message_id)
        SELECT $2, 'redrive', id, message_id FROM letter ORDER BY id";
    lock_relay_keys: Sql = "
        SELECT 1 FROM {p}held_key
        WHERE consumer_group = '' AND (topic, key) IN (SELECT topic, key FROM {p}dead_letter WHERE id = ANY ($1))
        ORDER BY topic, key FOR UPDATE";
    // Another dead letter of the key that is still parked keeps it held. Runs after `lock_relay_keys`.
    release_relay_keys: Sql = "
        DELETE FROM {p}held_key held
        WHERE held.consumer_group = ''
          AND (held.topic, held.key) IN (SELECT topic, key FROM {p}dead_letter WHERE id = ANY ($1))
          AND NOT EXISTS (
            SELECT 1 FROM {p}dead_letter letter
            WHERE letter.consumer_group = '' AND letter.topic = held.topic AND letter.key = held.key
              AND letter.status <> 'done' AND letter.holds_key)";
    dead_letter_stats: Sql = "
        SELECT CASE WHEN discarded THEN 'discarded' ELSE status END, count(*) FROM {p}dead_letter GROUP BY 1";
    open_letters: Sql = "
        SELECT topic, consumer_group, status, count(*) FROM {p}dead_letter WHERE status <> 'done'
        GROUP BY topic, consumer_group, status ORDER BY topic, consumer_group";
    discard: Sql = "
        WITH letter AS (
            UPDATE {p}dead_letter
            SET status = 'done', discarded = true, due = NULL, retry_at = NULL, last_attempt = now()
            WHERE id = ANY ($1) RETURNING id, message_id
        )
        INSERT INTO {p}audit (actor, action, dead_letter_id, message_id, detail)
        SELECT $2, 'discard', id, message_id, $3 FROM letter ORDER BY id";
    keys_of: Sql = "
        SELECT DISTINCT consumer_group, topic, key FROM {p}dead_letter
        WHERE id = ANY ($1) AND key IS NOT NULL AND holds_key ORDER BY 1, 2, 3";
    // A relay that is about to set successors aside must be done first, or nothing would make them due again.
    lock_shards: Sql = "
        SELECT 1 FROM {p}lease_holder WHERE starts_with(name, 'outbox/') ORDER BY name FOR NO KEY UPDATE";
    promote_successors: Sql = "
        SELECT {p}outbox_promote(array_agg(topic), array_agg(key)) FROM {p}dead_letter
        WHERE id = ANY ($1) AND key IS NOT NULL";
    edit: Sql = "
        WITH letter AS (
            UPDATE {p}dead_letter
            SET original_payload = coalesce(original_payload, {p}payload_shown(payload, payload_text)), payload = $2,
                payload_text = NULL
            WHERE id = $1 AND status = 'parked' RETURNING id, message_id
        )
        INSERT INTO {p}audit (actor, action, dead_letter_id, message_id, detail)
        SELECT $3, 'edit', id, message_id, $4 FROM letter";
    parked_age_p95: Sql = "
        SELECT greatest(extract(epoch FROM clock_timestamp() - first_seen) * 1000000, 0)::bigint
        FROM {p}dead_letter WHERE status = 'parked' ORDER BY first_seen LIMIT 1
        OFFSET (SELECT count(*) / 20 FROM {p}dead_letter WHERE status = 'parked')";

    // The schema.
    schema_name: Sql = "{p}schema";
    schema_version: Sql = "SELECT coalesce(max(version), 0) FROM {p}schema";
    schema_record: Sql = "INSERT INTO {p}schema (version) VALUES ($1)";
}
