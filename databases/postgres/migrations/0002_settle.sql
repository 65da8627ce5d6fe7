-- Applies the relay's decisions if every lease is still held under its epoch and no other relay has moved the shards
-- on. Otherwise it changes nothing, and the verdict gives the reason ('lost' or 'stale'). One call is one transaction
-- and one round trip: a relay that is stopped half-way cannot leave the leases locked for its successor.
--
-- `places` is the shards' new progress, [{shards, n, s1, s2, last_id, done, published}], where n is the row it was read
-- from. Ids in `aside`, and the others whose `…_waits` is false, are rows of the window that the caller knows to be
-- unsettled. The rest are waiting messages, and `changed` lists those that still existed.
CREATE OR REPLACE FUNCTION {p}outbox_settle(
    lease_names text[], lease_holders text[], lease_epochs bigint[], life uuid, places jsonb, durable boolean,
    keep boolean,
    aside bigint[], waited bigint[],
    retried bigint[], retry_seconds float8[], retry_errors text[], retry_waits boolean[],
    parked bigint[], park_codes text[], park_errors text[], park_holds boolean[], park_waits boolean[],
    OUT verdict text, OUT live text[], OUT changed bigint[], OUT numbers bigint[]
)
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    place  record;
    number bigint;
    part   bigint[];
    topics text[];
    keys   text[];
    more_topics text[];
    more_keys   text[];
BEGIN
    changed := '{}';
    numbers := '{}';
    -- Waits for a takeover in flight and then sees it; a later takeover waits for this transaction. Leases are locked
    -- in order of name everywhere, so that there are no deadlocks.
    SELECT coalesce(array_agg(held.name), '{}') INTO live FROM (
        SELECT lease.name
        FROM unnest(lease_names, lease_holders, lease_epochs) AS given (name, holder, epoch)
        JOIN {p}lease_holder lease USING (name, holder, epoch)
        ORDER BY lease.name
        FOR NO KEY UPDATE OF lease
    ) held;
    IF cardinality(live) < cardinality(lease_names) THEN
        verdict := 'lost';
        RETURN;
    END IF;
    FOR place IN SELECT * FROM jsonb_to_recordset(places) AS given (shards smallint[], n bigint) LOOP
        IF EXISTS (SELECT 1 FROM {p}outbox_progress p WHERE p.n > place.n AND p.shards && place.shards) THEN
            verdict := 'stale';
            RETURN;
        END IF;
    END LOOP;
    IF jsonb_array_length(places) > 0 AND life IS DISTINCT FROM (SELECT token FROM {p}outbox_alive) THEN
        verdict := 'stale';
        RETURN;
    END IF;
    verdict := 'done';
    -- Progress lost in a crash of the server only causes duplicates; nothing else may be lost.
    IF NOT durable THEN
        PERFORM set_config('synchronous_commit', 'off', true);
    END IF;

    FOR place IN
        SELECT * FROM jsonb_to_recordset(places) AS given (
            shards smallint[], s1 text, s2 text, last_id bigint, done bigint[], published bigint)
    LOOP
        INSERT INTO {p}outbox_progress (shards, s1, s2, last_id, done, published, top_id)
        VALUES (place.shards, place.s1::pg_snapshot, place.s2::pg_snapshot, place.last_id, place.done, place.published,
                (SELECT last_value FROM {p}outbox_id_seq))
        RETURNING n INTO number;
        numbers := numbers || number;
    END LOOP;

    IF cardinality(aside) > 0 THEN
        WITH moved AS (
            INSERT INTO {p}outbox_waiting (
                id, message_id, topic, key, sequence, kind, mode, headers, payload, payload_text, created_at, shard)
            SELECT o.id, o.message_id, o.topic, o.key, o.sequence, o.kind, o.mode, o.headers, o.payload,
                o.payload_text, o.created_at,
                {p}shard_of(o.key, o.id)
            FROM {p}outbox o WHERE o.id = ANY (aside)
            RETURNING topic, key
        )
        SELECT array_agg(moved.topic), array_agg(moved.key) INTO topics, keys
        FROM (SELECT DISTINCT moved.topic, moved.key FROM moved) moved;
    END IF;

    IF cardinality(waited) > 0 THEN
        IF keep THEN
            PERFORM {p}outbox_sent_day();
        END IF;
        WITH gone AS (
            DELETE FROM {p}outbox_waiting w WHERE w.id = ANY (waited) RETURNING w.*
        ), kept AS (
            INSERT INTO {p}outbox_sent (
                id, message_id, topic, key, sequence, kind, mode, headers, payload, created_at)
            SELECT gone.id, gone.message_id, gone.topic, gone.key, gone.sequence, gone.kind, gone.mode, gone.headers,
                {p}payload_shown(gone.payload, gone.payload_text), gone.created_at
            FROM gone WHERE keep
        )
        SELECT coalesce(array_agg(gone.id), '{}'), array_agg(gone.topic), array_agg(gone.key)
        INTO part, more_topics, more_keys FROM gone;
        changed := changed || part;
        topics := topics || more_topics;
        keys := keys || more_keys;
        IF cardinality(part) > 0 THEN
            INSERT INTO {p}outbox_progress (shards, published) VALUES ('{}', cardinality(part));
        END IF;
    END IF;

    IF cardinality(retried) > 0 THEN
        INSERT INTO {p}outbox_waiting (
            id, message_id, topic, key, sequence, kind, mode, headers, payload, payload_text, created_at, shard,
            attempts,
            next_attempt_at, last_error)
        SELECT o.id, o.message_id, o.topic, o.key, o.sequence, o.kind, o.mode, o.headers, o.payload, o.payload_text,
            o.created_at,
            {p}shard_of(o.key, o.id), 1, clock_timestamp() + make_interval(secs => given.seconds), given.error
        FROM unnest(retried, retry_seconds, retry_errors, retry_waits) AS given (id, seconds, error, waits)
        JOIN {p}outbox o ON o.id = given.id
        WHERE NOT given.waits;
        WITH failed AS (
            UPDATE {p}outbox_waiting w
            SET attempts = w.attempts + 1,
                next_attempt_at = clock_timestamp() + make_interval(secs => given.seconds),
                last_error = given.error
            FROM unnest(retried, retry_seconds, retry_errors, retry_waits) AS given (id, seconds, error, waits)
            WHERE w.id = given.id AND given.waits
            RETURNING w.id
        )
        SELECT coalesce(array_agg(failed.id), '{}') INTO part FROM failed;
        changed := changed || part;
    END IF;

    IF cardinality(parked) > 0 THEN
        WITH given AS MATERIALIZED (
            SELECT * FROM unnest(parked, park_codes, park_errors, park_holds, park_waits)
                AS given (id, code, error, holds, waits)
        ), left_waiting AS (
            DELETE FROM {p}outbox_waiting w USING given WHERE w.id = given.id AND given.waits
            RETURNING w.*
        ), gone AS (
            SELECT w.id, w.message_id, w.topic, w.key, w.sequence, w.kind, w.mode, w.headers, w.payload,
                w.payload_text, w.created_at,
                w.attempts, true AS waited
            FROM left_waiting w
            UNION ALL
            -- A text too long for a message may be too long for an index. It is cut to an invalid text, so that it is
            -- never sent under another name than it had.
            SELECT o.id, o.message_id,
                CASE WHEN octet_length(o.topic) > 249 THEN left(o.topic, 249) || ' …' ELSE o.topic END,
                CASE WHEN octet_length(o.key) > 512 THEN left(o.key, 120) || E'\n…' ELSE o.key END,
                o.sequence, o.kind, o.mode, o.headers, o.payload, o.payload_text, o.created_at, 0, false
            FROM given JOIN {p}outbox o ON o.id = given.id
            WHERE NOT given.waits
        ), letter AS (
            INSERT INTO {p}dead_letter AS letter (
                message_id, topic, key, sequence, kind, mode, headers, payload, payload_text, created_at, outbox_id,
                status,
                error_code, error, holds_key, attempts)
            SELECT gone.message_id, gone.topic, gone.key, gone.sequence, gone.kind, gone.mode, gone.headers,
                gone.payload, gone.payload_text, gone.created_at, gone.id, 'parked', given.code, given.error,
                given.holds,
                gone.attempts + 1
            FROM gone JOIN given USING (id) ORDER BY gone.id
            ON CONFLICT (outbox_id) WHERE consumer_group = '' DO UPDATE
            SET message_id = excluded.message_id, topic = excluded.topic, key = excluded.key,
                sequence = excluded.sequence, kind = excluded.kind, mode = excluded.mode,
                headers = excluded.headers, payload = excluded.payload, payload_text = excluded.payload_text,
                status = 'parked',
                error_code = excluded.error_code, error = excluded.error, holds_key = excluded.holds_key,
                attempts = letter.attempts + excluded.attempts, last_attempt = now()
            RETURNING letter.id, letter.message_id, letter.topic, letter.key, letter.error, letter.outbox_id
        ), held AS (
            INSERT INTO {p}held_key AS held (consumer_group, topic, key)
            SELECT DISTINCT '', letter.topic, letter.key
            FROM letter JOIN given ON given.id = letter.outbox_id
            WHERE letter.key IS NOT NULL AND given.holds ORDER BY 2, 3
            ON CONFLICT (consumer_group, topic, key) DO UPDATE SET since = held.since
        ), audited AS (
            INSERT INTO {p}audit (actor, action, dead_letter_id, message_id, detail)
            SELECT 'relay', 'park', letter.id, letter.message_id, letter.error FROM letter
        )
        SELECT coalesce(array_agg(letter.outbox_id) FILTER (WHERE gone.waited), '{}'),
            array_agg(letter.topic), array_agg(letter.key)
        INTO part, more_topics, more_keys
        FROM letter JOIN gone ON gone.id = letter.outbox_id;
        changed := changed || part;
        topics := topics || more_topics;
        keys := keys || more_keys;
    END IF;

    PERFORM {p}outbox_promote(topics, keys);
END
$$;
