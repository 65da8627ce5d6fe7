-- Text payloads: a writer sets exactly one of payload and payload_text. As in migration 1 there is no constraint: the
-- relay parks a row with both or neither. The tables that the relay fills have both columns, so that a dead letter shows
-- the row as it was written.
ALTER TABLE {p}outbox ALTER COLUMN payload DROP NOT NULL, ADD COLUMN payload_text text;
ALTER TABLE {p}outbox_waiting ALTER COLUMN payload DROP NOT NULL, ADD COLUMN payload_text text;
ALTER TABLE {p}dead_letter ALTER COLUMN payload DROP NOT NULL, ADD COLUMN payload_text text;

-- The payload to publish: null unless exactly one of the two is set.
CREATE FUNCTION {p}payload_of(payload bytea, payload_text text) RETURNS bytea LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN $1 IS NULL THEN convert_to($2, 'UTF8') WHEN $2 IS NULL THEN $1 END
$$;

-- The payload to show, whatever the row is.
CREATE FUNCTION {p}payload_shown(payload bytea, payload_text text) RETURNS bytea LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT coalesce($1, convert_to($2, 'UTF8'), '')
$$;

-- Fetches the rows of `of_shards` in the window between s1 and s2 with ids above `after` and up to `upto`, in order.
-- The first row is a header: whether any key may be blocked, and the server's incarnation as its message id.
CREATE OR REPLACE FUNCTION {p}outbox_walk(
    of_shards smallint[], s1 pg_snapshot, s2 pg_snapshot, after bigint, upto bigint, at_most bigint
) RETURNS TABLE (
    id bigint, shard smallint, attempts integer, message_id uuid, topic text, key text, sequence bigint, kind text,
    mode text, headers text, payload bytea, created_at timestamptz, blocked boolean
) LANGUAGE plpgsql STABLE ROWS 500
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    troubled boolean := {p}outbox_is_troubled();
    -- The usual case: a single relay has every shard, and none has to be computed.
    all_shards boolean := cardinality(of_shards) = 16;
BEGIN
    blocked := troubled;
    message_id := (SELECT token FROM {p}outbox_alive);
    RETURN NEXT;
    RETURN QUERY
        SELECT o.id, {p}shard_of(o.key, o.id), 0, o.message_id, o.topic, o.key, o.sequence, o.kind, o.mode,
            o.headers::text, {p}payload_of(o.payload, o.payload_text), o.created_at,
            troubled AND {p}outbox_is_blocked(o.topic, o.key)
        FROM {p}outbox o
        WHERE o.id > after AND o.id <= upto AND (all_shards OR {p}shard_of(o.key, o.id) = ANY (of_shards))
          AND NOT pg_visible_in_snapshot(o.xid, s1) AND pg_visible_in_snapshot(o.xid, s2)
        ORDER BY o.id
        LIMIT at_most;
END
$$;

-- Fetches the rows with these ids, which the caller knows to be in its window, after a header as above.
CREATE OR REPLACE FUNCTION {p}outbox_pick(ids bigint[]) RETURNS TABLE (
    id bigint, shard smallint, attempts integer, message_id uuid, topic text, key text, sequence bigint, kind text,
    mode text, headers text, payload bytea, created_at timestamptz, blocked boolean
) LANGUAGE plpgsql STABLE ROWS 500
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    troubled boolean := {p}outbox_is_troubled();
BEGIN
    blocked := troubled;
    message_id := (SELECT token FROM {p}outbox_alive);
    RETURN NEXT;
    RETURN QUERY
        SELECT o.id, {p}shard_of(o.key, o.id), 0, o.message_id, o.topic, o.key, o.sequence, o.kind, o.mode,
            o.headers::text, {p}payload_of(o.payload, o.payload_text), o.created_at,
            troubled AND {p}outbox_is_blocked(o.topic, o.key)
        FROM {p}outbox o WHERE o.id = ANY (ids) ORDER BY o.id;
END
$$;

-- Fetches waiting messages of `of_shards` that are due. Those of a key are in order and end before the first that is
-- not due. No key gets more than its share of the batch.
CREATE OR REPLACE FUNCTION {p}outbox_due(of_shards smallint[], at_most bigint) RETURNS TABLE (
    id bigint, shard smallint, attempts integer, message_id uuid, topic text, key text, sequence bigint, kind text,
    mode text, headers text, payload bytea, created_at timestamptz, blocked boolean
) LANGUAGE plpgsql STABLE ROWS 500
SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    RETURN QUERY
        WITH head AS MATERIALIZED (
            SELECT w.id, w.topic, w.key FROM {p}outbox_waiting w
            WHERE w.next_attempt_at <= statement_timestamp() AND w.shard = ANY (of_shards)
              AND NOT EXISTS (SELECT 1 FROM {p}held_key held
                              WHERE held.consumer_group = '' AND held.topic = w.topic AND held.key = w.key)
            ORDER BY w.next_attempt_at LIMIT at_most
        ), troubled AS MATERIALIZED (
            SELECT DISTINCT head.topic, head.key FROM head WHERE head.key IS NOT NULL
        ), share AS MATERIALIZED (
            SELECT greatest(1, at_most / greatest(1, (SELECT count(*) FROM troubled))) AS rows
        ), due AS MATERIALIZED (
            SELECT head.id FROM head WHERE head.key IS NULL
            UNION ALL
            SELECT run.id FROM troubled CROSS JOIN LATERAL (
                SELECT w.id FROM {p}outbox_waiting w
                WHERE w.topic = troubled.topic AND w.key = troubled.key
                  AND w.id < coalesce(
                    (SELECT min(later.id) FROM {p}outbox_waiting later
                     WHERE later.topic = troubled.topic AND later.key = troubled.key
                       AND later.next_attempt_at > statement_timestamp()), 9223372036854775807)
                ORDER BY w.id LIMIT (SELECT share.rows FROM share)
            ) run
        )
        SELECT w.id, w.shard, w.attempts, w.message_id, w.topic, w.key, w.sequence, w.kind, w.mode, w.headers::text,
            {p}payload_of(w.payload, w.payload_text), w.created_at, false
        FROM {p}outbox_waiting w WHERE w.id IN (SELECT due.id FROM due) ORDER BY w.id LIMIT at_most;
END
$$;
