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
    insert_enqueued_ids: Sql = "
        INSERT INTO {p}enqueued_id (message_id, fingerprint)
        SELECT message_id, fingerprint FROM unnest($1::uuid[], $2::bytea[]) WITH ORDINALITY
            AS given (message_id, fingerprint, ordinal)
        ORDER BY ordinal
        ON CONFLICT DO NOTHING RETURNING message_id";
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
    probe: Sql = "
        SELECT last_value - CASE WHEN is_called THEN 0 ELSE 1 END AS top, pg_current_snapshot()::text AS now,
               {p}outbox_is_troubled() AS blocked, (SELECT token FROM {p}outbox_alive) AS token
        FROM {p}outbox_id_seq";
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
    full_partitions: Sql = "SELECT {p}outbox_parts_to_empty($1)";
    empty_partition: Sql = "SELECT {p}outbox_empty($1, $2)";
    empty_progress: Sql = "SELECT {p}outbox_progress_empty()";
    claim: Sql = "SELECT * FROM {p}outbox_claim($1)";
    remove_claimed: Sql = "SELECT {p}outbox_leave($1, $2, $3)";
    record_action: Sql = "
        INSERT INTO {p}audit (actor, action, message_id, detail) VALUES ($1, $2, $3, $4) RETURNING id";
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
    hide_sent: Sql = "SELECT {p}outbox_hide_sent(make_interval(secs => $1), $2)";
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
              AND (restored_at IS NULL OR
                   to_timestamp(restored_at / 1000.0) < clock_timestamp() - make_interval(secs => $1))
            ORDER BY last_attempt LIMIT $2 FOR UPDATE SKIP LOCKED))";
    forget_sequences: Sql = "
        DELETE FROM {p}sequence WHERE ctid = ANY (ARRAY(
            SELECT known.ctid FROM {p}sequence known
            WHERE known.since < clock_timestamp() - make_interval(secs => $1)
              AND NOT EXISTS (SELECT 1 FROM {p}dead_letter letter
                              WHERE letter.consumer_group = known.consumer_group AND letter.topic = known.topic
                                AND letter.key = known.key AND letter.status <> 'done')
            LIMIT $2 FOR UPDATE SKIP LOCKED))";
    // Half messages. The nine columns of a message come first in `half_insert` and `half_complete`. A row's day
    // is computed from the days since 1970.
    half_insert: Sql = "
        INSERT INTO {p}half_message (id, topic, key, sequence, kind, mode, headers, payload, created_at, fingerprint,
            business_type, business_id, check_back, check_after_ms, day, state, next_check_at)
        SELECT id, topic, key, sequence, kind, mode, headers::jsonb, payload, created_at, fingerprint, business_type,
            business_id, check_back, check_after_ms, DATE '1970-01-01' + days, 'prepared',
            clock_timestamp() + check_after_ms * interval '1 millisecond'
        FROM unnest($1::uuid[], $2::text[], $3::text[], $4::bigint[], $5::text[], $6::text[], $7::text[], $8::bytea[],
            $9::timestamptz[], $10::bytea[], $11::text[], $12::text[], $13::text[], $14::bigint[], $15::integer[])
            AS given (id, topic, key, sequence, kind, mode, headers, payload, created_at, fingerprint, business_type,
                business_id, check_back, check_after_ms, days)
        ON CONFLICT DO NOTHING
        RETURNING id";
    half_complete: Sql = "
        WITH completed AS (
            UPDATE {p}half_message SET topic = $2, key = $3, sequence = $4, kind = $5, mode = $6,
                headers = $7::text::jsonb, payload = $8, created_at = $9, fingerprint = $10, business_type = $11,
                business_id = $12, check_back = $13, check_after_ms = $14
            WHERE id = $1 AND day = DATE '1970-01-01' + $15 AND fingerprint IS NULL
            RETURNING id, topic, key, sequence, kind, mode, headers, payload, created_at, state
        ), queued AS (
            INSERT INTO {p}outbox (message_id, topic, key, sequence, kind, mode, headers, payload, created_at)
            SELECT id, topic, key, sequence, kind, mode, headers, payload, created_at FROM completed
            WHERE state = 'committed'
        )
        SELECT count(*) FROM completed";
    half_insert_early: Sql = "
        WITH inserted AS (
            INSERT INTO {p}half_message (id, day, state, decided_by, decided_at)
            VALUES ($1, DATE '1970-01-01' + $2, $3, $4, clock_timestamp())
            ON CONFLICT DO NOTHING RETURNING id
        ), audited AS (
            INSERT INTO {p}audit (actor, action, message_id, detail) SELECT $4, $5, id, $6 FROM inserted
        )
        SELECT count(*) FROM inserted";
    half_stored: Sql = "SELECT state, fingerprint FROM {p}half_message WHERE id = $1 AND day = DATE '1970-01-01' + $2";
    half_decide: Sql = "SELECT {p}half_message_decide($1, $2, $3, $4, $5)";
    half_contradict: Sql = "
        WITH contradicted AS (
            UPDATE {p}half_message SET contradicted_at = clock_timestamp(), contradicted_by = $3
            WHERE id = $1 AND day = DATE '1970-01-01' + $2 AND contradicted_at IS NULL
            RETURNING id
        ), audited AS (
            INSERT INTO {p}audit (actor, action, message_id, detail) SELECT $3, $4, id, $5 FROM contradicted
        )
        SELECT count(*) FROM contradicted";
    half_acknowledge: Sql = "
        WITH acknowledged AS (
            UPDATE {p}half_message SET acknowledged_at = clock_timestamp(), acknowledged_by = $3
            WHERE id = $1 AND day = DATE '1970-01-01' + $2 AND contradicted_at IS NOT NULL AND acknowledged_at IS NULL
            RETURNING id
        ), audited AS (
            INSERT INTO {p}audit (actor, action, message_id) SELECT $3, $4, id FROM acknowledged
        )
        SELECT count(*) FROM acknowledged";
    half_claim: Sql = "SELECT * FROM {p}half_message_claim($1, make_interval(secs => $2))";
    half_record_check: Sql = "
        WITH checked AS (
            UPDATE {p}half_message SET checks = checks + 1, last_answer = $4, state = $5,
                next_check_at = clock_timestamp() + make_interval(secs => $6)
            WHERE id = $1 AND day = DATE '1970-01-01' + $2 AND state = 'prepared' AND checks = $3
            RETURNING id, state
        ), audited AS (
            INSERT INTO {p}audit (actor, action, message_id, detail)
            SELECT $7, $8, id, $4 FROM checked WHERE state = 'parked'
        )
        SELECT count(*) FROM checked";
    half_messages: Sql = "
        SELECT h.id::text AS id, h.state, h.topic, h.key, h.kind, h.business_type, h.business_id, h.check_back,
            floor(extract(epoch FROM h.prepared_at) * 1000)::bigint AS prepared_at,
            floor(extract(epoch FROM h.decided_at) * 1000)::bigint AS decided_at, h.decided_by,
            h.checks::bigint AS checks, floor(extract(epoch FROM h.next_check_at) * 1000)::bigint AS next_check_at,
            h.last_answer, floor(extract(epoch FROM h.contradicted_at) * 1000)::bigint AS contradicted_at,
            h.contradicted_by, floor(extract(epoch FROM h.acknowledged_at) * 1000)::bigint AS acknowledged_at,
            h.acknowledged_by
        FROM {p}half_message h WHERE true";
    half_old: Sql = "
        SELECT h.id::text AS id, h.state, h.topic, h.key, h.kind, h.business_type, h.business_id, h.check_back,
            floor(extract(epoch FROM h.prepared_at) * 1000)::bigint AS prepared_at,
            floor(extract(epoch FROM h.decided_at) * 1000)::bigint AS decided_at, h.decided_by,
            h.checks::bigint AS checks, NULL::bigint AS next_check_at,
            h.last_answer, floor(extract(epoch FROM h.contradicted_at) * 1000)::bigint AS contradicted_at,
            h.contradicted_by, floor(extract(epoch FROM h.acknowledged_at) * 1000)::bigint AS acknowledged_at,
            h.acknowledged_by, h.sequence, h.mode, h.headers::text AS headers, h.payload
        FROM {p}half_message h
        WHERE h.decided_at < clock_timestamp() - make_interval(secs => $1)
          AND (h.contradicted_at IS NULL OR h.acknowledged_at IS NOT NULL)
        ORDER BY h.decided_at LIMIT $2";
    remove_these_half: Sql = "
        WITH removed AS (
            DELETE FROM {p}half_message WHERE id = ANY($1) AND decided_at IS NOT NULL
                AND (contradicted_at IS NULL OR acknowledged_at IS NOT NULL)
            RETURNING 1)
        SELECT count(*) FROM removed";
    half_stats: Sql = "
        SELECT prepared.count, parked.count,
            (SELECT count(*) FROM {p}half_message WHERE contradicted_at IS NOT NULL AND acknowledged_at IS NULL),
            (SELECT count(*) FROM {p}half_message WHERE fingerprint IS NULL AND state = 'committed'),
            floor(greatest(coalesce(extract(epoch FROM clock_timestamp() - least(prepared.oldest, parked.oldest)), 0),
                0))::bigint
        FROM (SELECT count(*), min(prepared_at) AS oldest FROM {p}half_message WHERE state = 'prepared') prepared,
             (SELECT count(*), min(prepared_at) AS oldest FROM {p}half_message WHERE state = 'parked') parked";
    half_days: Sql = "SELECT {p}half_message_days($1)";
    half_old_days: Sql = "SELECT unnest({p}half_message_old_days(make_interval(secs => $1)))::text";
    half_drop_day: Sql = "
        SELECT {p}half_message_drop_day($1::text::regclass, clock_timestamp() - make_interval(secs => $2))";
    remove_half_messages: Sql = "SELECT {p}half_message_delete(make_interval(secs => $1), $2)";

    // The barrier. A question waits for a local transaction that inserts the row.
    barrier_enter: Sql = "INSERT INTO {p}barrier (id) VALUES ($1)";
    barrier_verdict: Sql = "SELECT verdict FROM {p}barrier WHERE id = $1";
    barrier_tombstone: Sql = "
        INSERT INTO {p}barrier (id, verdict) VALUES ($1, 'rolled_back') ON CONFLICT DO NOTHING";
    barrier_removed: Sql = "SELECT removed_before FROM {p}barrier_removed WHERE slot = 1";
    longest_transaction: Sql = "
        SELECT max(extract(epoch FROM clock_timestamp() - xact_start))::float8 FROM pg_stat_activity
        WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() AND datname = current_database()";
    remove_barriers: Sql = "
        WITH old AS (
            SELECT id FROM {p}barrier WHERE created_at < now() - make_interval(secs => $1)
            ORDER BY created_at LIMIT $2 FOR UPDATE SKIP LOCKED
        ), removed AS (
            DELETE FROM {p}barrier WHERE id IN (SELECT id FROM old) RETURNING id
        ), marked AS (
            INSERT INTO {p}barrier_removed AS known (slot, removed_before)
            SELECT 1, now() - make_interval(secs => $1) WHERE EXISTS (SELECT 1 FROM removed)
            ON CONFLICT (slot) DO UPDATE SET removed_before = greatest(known.removed_before, excluded.removed_before)
        )
        SELECT count(*) FROM removed";

    // Idempotency records. Before the fence: the epoch. A missing answer in a committed row means that its transaction
    // forgot to store one.
    record_insert: Sql = "
        INSERT INTO {p}idempotency (id, kind, scope, business_type, key, state, fingerprint, epoch, parks, expires_at,
            ttl_ms, ceiling_at)
        VALUES ($1, $2, $3, $4, $5, 'in_flight', $6, floor(extract(epoch FROM clock_timestamp()) * 1000), $7,
            clock_timestamp() + make_interval(secs => $8), ceil($8 * 1000),
            clock_timestamp() + make_interval(secs => $9))
        ON CONFLICT DO NOTHING RETURNING epoch";
    record_take_over: Sql = "
        UPDATE {p}idempotency lease
        SET state = 'in_flight', fingerprint = $4, epoch = lease.epoch + 1, parks = $5, claimed_at = clock_timestamp(),
            updated_at = clock_timestamp(), expires_at = clock_timestamp() + make_interval(secs => $6),
            ttl_ms = ceil($6 * 1000), ceiling_at = clock_timestamp() + make_interval(secs => $7),
            status = NULL, headers = NULL, body = NULL, body_state = NULL, reason = NULL
        WHERE id = $1 AND epoch = $2 AND state = $3
          AND (state = 'released' OR (state = 'issued' AND NOT {expired})
               OR (state = 'in_flight' AND NOT parks AND {expired}))
        RETURNING epoch";
    record_stored: Sql = "
        SELECT state, epoch, fingerprint, parks::integer::bigint AS parks,
            CASE WHEN {expired} THEN 0
                 ELSE greatest(1, ceil(extract(epoch FROM expires_at - clock_timestamp()) * 1000)) END::bigint
                AS remaining,
            status::bigint AS status, headers, body, body_state
        FROM {p}idempotency lease WHERE id = $1";
    record_renew: Sql = "
        UPDATE {p}idempotency
        SET expires_at = least(clock_timestamp() + make_interval(secs => $3), ceiling_at), ttl_ms = ceil($3 * 1000)
        WHERE id = $1 AND epoch = $2 AND state = 'in_flight' AND ceiling_at > clock_timestamp()
        RETURNING greatest(1, ceil(extract(epoch FROM expires_at - clock_timestamp()) * 1000))::bigint";
    record_complete: Sql = "
        UPDATE {p}idempotency SET state = 'completed', status = $3, headers = $4, body = $5, body_state = $6,
            updated_at = clock_timestamp(), reason = NULL
        WHERE id = $1 AND epoch = $2 AND state IN ('in_flight', 'uncertain')";
    record_release: Sql = "
        UPDATE {p}idempotency SET state = 'released', updated_at = clock_timestamp(), reason = NULL
        WHERE id = $1 AND epoch = $2 AND state IN ('in_flight', 'uncertain')";
    record_unknown: Sql = "
        UPDATE {p}idempotency SET state = CASE WHEN parks THEN 'uncertain' ELSE 'in_flight' END,
            expires_at = clock_timestamp(), updated_at = clock_timestamp(), reason = $3
        WHERE id = $1 AND epoch = $2 AND state IN ('in_flight', 'uncertain')";
    record_answer: Sql = "
        UPDATE {p}idempotency SET state = 'completed', status = $2, headers = $3, body = $4, body_state = $5,
            updated_at = clock_timestamp()
        WHERE id = $1 AND state = 'in_flight'";
    record_resolve: Sql = "
        WITH resolved AS (
            UPDATE {p}idempotency lease
            SET state = $2, epoch = lease.epoch + 1, status = $3, headers = $4, body = $5, body_state = $6,
                updated_at = clock_timestamp(), reason = 'resolved by ' || $7::text
            WHERE id = $1 AND (state = 'uncertain' OR (state = 'in_flight' AND parks AND {expired}))
            RETURNING business_type || '/' || key || ' (scope ' || scope || ')' AS name
        ), audited AS (
            INSERT INTO {p}audit (actor, action, message_id, detail)
            SELECT $7::text, $8::text, $9::uuid, name FROM resolved
        )
        SELECT count(*) FROM resolved";
    records: Sql = "
        SELECT encode(r.id, 'hex') AS id, r.kind, r.scope, r.business_type, r.key, r.state, r.epoch, r.parks,
            floor(extract(epoch FROM r.claimed_at) * 1000)::bigint AS claimed_at,
            floor(extract(epoch FROM r.updated_at) * 1000)::bigint AS updated_at,
            CASE WHEN r.state IN ('issued', 'in_flight')
                 THEN floor(extract(epoch FROM r.expires_at) * 1000)::bigint END AS expires_at,
            r.status, r.body_state, r.body_bytes, r.reason
        FROM (SELECT id, kind, scope, business_type, key, state AS stored_state, epoch,
                  CASE WHEN state = 'in_flight' AND parks AND {expired} THEN 'uncertain' ELSE state END AS state,
                  parks::integer::bigint AS parks, claimed_at, updated_at, expires_at, status::bigint AS status,
                  body_state, octet_length(body)::bigint AS body_bytes, reason
              FROM {p}idempotency lease) r
        WHERE true";
    record_stats: Sql = "
        SELECT count(*) FILTER (WHERE NOT is_uncertain AND is_live), count(*) FILTER (WHERE is_uncertain),
            greatest(0, coalesce(floor(extract(epoch FROM
                clock_timestamp() - min(claimed_at) FILTER (WHERE is_uncertain))), 0))::bigint
        FROM (SELECT claimed_at, NOT {expired} AS is_live,
                  state = 'uncertain' OR (parks AND {expired}) AS is_uncertain
              FROM {p}idempotency lease
              WHERE state IN ('in_flight', 'uncertain') AND kind <> 'window') open";
    token_issue: Sql = "
        INSERT INTO {p}idempotency (id, kind, scope, business_type, key, state, epoch, expires_at, ttl_ms, ceiling_at)
        VALUES ($1, $2, $3, $4, $5, 'issued', floor(extract(epoch FROM clock_timestamp()) * 1000),
            clock_timestamp() + make_interval(secs => $6), ceil($6 * 1000), clock_timestamp())
        RETURNING floor(extract(epoch FROM expires_at) * 1000)::bigint";
    remove_answers: Sql = "
        UPDATE {p}idempotency SET headers = NULL, body = NULL, body_state = 'expired' WHERE id = ANY (ARRAY(
            SELECT id FROM {p}idempotency
            WHERE body_state = 'kept' AND claimed_at < clock_timestamp() - make_interval(secs => $1)
            ORDER BY claimed_at LIMIT $2 FOR UPDATE SKIP LOCKED))";
    remove_records: Sql = "
        DELETE FROM {p}idempotency WHERE id = ANY (ARRAY(
            SELECT id FROM {p}idempotency lease
            WHERE claimed_at < clock_timestamp() - make_interval(secs => $1)
              AND (state IN ('completed', 'released') OR (state = 'issued' AND {expired})
                   OR (state = 'in_flight' AND NOT parks AND {expired}))
            ORDER BY claimed_at LIMIT $2 FOR UPDATE SKIP LOCKED))";

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
    keep_forever: Sql = "UPDATE {p}inbox SET handled_at = 'infinity' WHERE consumer_group = $1 AND message_id = $2";
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
        WITH letter AS (
            INSERT INTO {p}dead_letter (
                consumer_group, message_id, topic, key, sequence, kind, mode, headers, payload, created_at,
                original_partition, original_offset, status, error_code, error, attempts)
            VALUES ($1, $2, $3, $4, $5, $6, $7, $8::text::jsonb, $9, $10, $11, $12, 'waiting', $13, $14, 0)
            ON CONFLICT (consumer_group, message_id, topic, coalesce(key, '')) WHERE consumer_group <> '' DO NOTHING
            RETURNING id, message_id, consumer_group, error
        )
        INSERT INTO {p}audit (actor, action, dead_letter_id, message_id, detail)
        SELECT 'consumer:' || consumer_group, 'queue', id, message_id, error FROM letter";
    park: Sql = "
        WITH letter AS (
            INSERT INTO {p}dead_letter (
                consumer_group, message_id, topic, key, sequence, kind, mode, headers, payload, created_at,
                original_partition, original_offset, status, error_code, error, attempts, holds_key, retry_at,
                fingerprint, causes)
            VALUES ($1, $2, $3, $4, $5, $6, $7, $8::text::jsonb, $9, $10, $11, $12,
                CASE WHEN $17::float8 IS NULL THEN 'parked' ELSE 'delayed' END, $13, $14, $15, $16,
                clock_timestamp() + make_interval(secs => $17), $18, $19)
            ON CONFLICT (consumer_group, message_id, topic, coalesce(key, '')) WHERE consumer_group <> '' DO UPDATE
            SET status = excluded.status, due = NULL, error_code = excluded.error_code, error = excluded.error,
                attempts = excluded.attempts, holds_key = excluded.holds_key, last_attempt = now(),
                retry_at = excluded.retry_at, discarded = false, fingerprint = excluded.fingerprint,
                causes = excluded.causes
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
                retry_at = clock_timestamp() + make_interval(secs => $5), fingerprint = $7, causes = $8
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
    // The primary key begins with the group. There are few of them, so each is looked up in turn.
    admitted_by: Sql = "
        WITH RECURSIVE known (name) AS (
            SELECT min(consumer_group) FROM {p}inbox
            UNION ALL
            SELECT (SELECT min(i.consumer_group) FROM {p}inbox i WHERE i.consumer_group > known.name)
            FROM known WHERE known.name IS NOT NULL)
        SELECT i.consumer_group, (extract(epoch FROM i.handled_at) * 1000)::bigint
        FROM known JOIN {p}inbox i ON i.consumer_group = known.name AND i.message_id = $1
        ORDER BY i.handled_at, i.consumer_group";

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

    // Dead letters. A filter is appended to the first three.
    find: Sql = "
        SELECT id, message_id, consumer_group, topic, key, sequence, kind,
               CASE WHEN discarded THEN 'discarded' WHEN ignored AND status = 'parked' THEN 'ignored' ELSE status END
                   AS status,
               error_code, error, attempts, fingerprint, causes, redrives, original_partition,
               original_offset, first_seen, last_attempt, headers::text,
               {p}payload_shown(payload, payload_text) AS payload, original_payload, retry_at
        FROM {p}dead_letter";
    // As `find`, without the payloads, which a list does not show.
    list_letters: Sql = "
        SELECT id, message_id, consumer_group, topic, key, sequence, kind,
               CASE WHEN discarded THEN 'discarded' WHEN ignored AND status = 'parked' THEN 'ignored' ELSE status END
                   AS status,
               error_code, error, attempts, fingerprint, causes, redrives, original_partition,
               original_offset, first_seen, last_attempt, headers::text,
               ''::bytea AS payload, NULL::bytea AS original_payload, retry_at
        FROM {p}dead_letter";
    find_ids: Sql = "SELECT id, consumer_group = '' FROM {p}dead_letter";
    lock_parked: Sql = "
        SELECT id, consumer_group = '' FROM {p}dead_letter
        WHERE id = ANY ($1) AND status = 'parked' AND NOT ignored ORDER BY id FOR UPDATE";
    redrive_consumer: Sql = "
        WITH letter AS (
            UPDATE {p}dead_letter SET status = 'redriving', due = id, redrives = redrives + 1, redrive_id = NULL
            WHERE id = ANY ($1)
            RETURNING id, message_id
        )
        INSERT INTO {p}audit (actor, action, dead_letter_id, message_id, detail)
        SELECT $2, 'redrive', id, message_id, $3 FROM letter ORDER BY id";
    // A letter that the relay parks again has another error, whose fingerprint is then computed.
    redrive_relay: Sql = "
        WITH letter AS (
            UPDATE {p}dead_letter
            SET status = 'done', redrives = redrives + 1, redrive_id = NULL, fingerprint = NULL, causes = NULL,
                last_attempt = now()
            WHERE id = ANY ($1) RETURNING *
        ), restored AS (
            INSERT INTO {p}outbox_waiting (
                id, message_id, topic, key, sequence, kind, mode, headers, payload, payload_text, created_at, shard,
                next_attempt_at)
            SELECT outbox_id, message_id, topic, key, sequence, kind, mode, headers, payload, payload_text, created_at,
                {p}shard_of(key, outbox_id), clock_timestamp()
            FROM letter
        )
        INSERT INTO {p}audit (actor, action, dead_letter_id, message_id, detail)
        SELECT $2, 'redrive', id, message_id, $3 FROM letter ORDER BY id";
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
        SELECT CASE WHEN discarded THEN 'discarded' WHEN ignored AND status = 'parked' THEN 'ignored' ELSE status END,
               count(*)
        FROM {p}dead_letter GROUP BY 1";
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
