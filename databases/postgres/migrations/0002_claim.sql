-- Relays without order: any number of them claim rows that no other session has locked. The last column is true for
-- rows of the waiting table and false for rows of the outbox.
CREATE OR REPLACE FUNCTION {p}outbox_claim(at_most bigint) RETURNS TABLE (
    id bigint, shard smallint, attempts integer, message_id uuid, topic text, key text, sequence bigint, kind text,
    mode text, headers text, payload bytea, created_at timestamptz, waits boolean
) LANGUAGE plpgsql VOLATILE ROWS 500
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    claimed bigint;
BEGIN
    RETURN QUERY
        SELECT w.id, w.shard, w.attempts, w.message_id, w.topic, w.key, w.sequence, w.kind, w.mode, w.headers::text,
            {p}payload_of(w.payload, w.payload_text), w.created_at, true
        FROM {p}outbox_waiting w
        WHERE w.next_attempt_at IS NULL OR w.next_attempt_at <= statement_timestamp()
        ORDER BY w.id LIMIT at_most FOR UPDATE SKIP LOCKED;
    GET DIAGNOSTICS claimed = ROW_COUNT;
    RETURN QUERY
        SELECT o.id, {p}shard_of(o.key, o.id), 0, o.message_id, o.topic, o.key, o.sequence, o.kind, o.mode,
            o.headers::text, {p}payload_of(o.payload, o.payload_text), o.created_at, false
        FROM {p}outbox o JOIN {p}outbox_place place ON place.shard = {p}shard_of(o.key, o.id)
        WHERE NOT {p}outbox_is_settled(o.xid, o.id, place.s1, place.s2, place.last_id, place.done)
        ORDER BY o.id LIMIT at_most - claimed FOR UPDATE OF o SKIP LOCKED;
END
$$;

-- Deletes claimed rows from the outbox; those in `sent` were published.
CREATE OR REPLACE FUNCTION {p}outbox_leave(ids bigint[], sent bigint[], keep boolean) RETURNS void
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    IF keep THEN
        PERFORM {p}outbox_sent_day();
    END IF;
    WITH gone AS (
        DELETE FROM {p}outbox o WHERE o.id = ANY (ids) RETURNING o.*
    ), kept AS (
        INSERT INTO {p}outbox_sent (id, message_id, topic, key, sequence, kind, mode, headers, payload, created_at)
        SELECT gone.id, gone.message_id, gone.topic, gone.key, gone.sequence, gone.kind, gone.mode, gone.headers,
            {p}payload_shown(gone.payload, gone.payload_text), gone.created_at
        FROM gone WHERE keep AND gone.id = ANY (sent)
    )
    INSERT INTO {p}outbox_progress (shards, published)
    SELECT '{}', count(*) FROM gone WHERE gone.id = ANY (sent) HAVING count(*) > 0;
END
$$;
