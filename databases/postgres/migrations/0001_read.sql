-- The relay's hot path. It consists of functions because their plans must not depend on statistics. The outbox is empty
-- at one moment and has a million rows at the next: a plan cached for the first (a sequential scan, a sort) would read
-- all rows for every batch, and a wrong estimate would make PostgreSQL compile (jit) a query that takes half a
-- millisecond. Functions that only read are STABLE: all of their statements see the caller's snapshot.

-- The progress of each shard: the newest row that names it, which is among the last few. Materialized, so that it is
-- looked up once and not for each row compared with it.
CREATE VIEW {p}outbox_place AS
    WITH place AS MATERIALIZED (
        SELECT shard::smallint AS shard, newest.*
        FROM generate_series(0, 15) shard CROSS JOIN LATERAL (
            SELECT n, s1, s2, last_id, done, top_id, at FROM {p}outbox_progress
            WHERE shards @> ARRAY[shard::smallint]
            ORDER BY n DESC LIMIT 1
        ) newest
    )
    SELECT * FROM place;

-- The server's incarnation. The table is unlogged, so the token is lost in a crash and on a standby that takes over.
-- What a relay remembers about transactions is valid for one incarnation: a crash loses progress that was not flushed,
-- and transaction ids that no log record mentions are assigned again.
CREATE UNLOGGED TABLE {p}outbox_alive (
    one   boolean PRIMARY KEY DEFAULT true CHECK (one),
    token uuid    NOT NULL DEFAULT gen_random_uuid()
);
CREATE FUNCTION {p}outbox_life() RETURNS uuid LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF NOT EXISTS (SELECT 1 FROM {p}outbox_alive) THEN
        INSERT INTO {p}outbox_alive DEFAULT VALUES ON CONFLICT DO NOTHING;
    END IF;
    RETURN (SELECT token FROM {p}outbox_alive);
END
$$;

-- Whether any key may be blocked. It is false nearly always, and then no single key is checked.
CREATE FUNCTION {p}outbox_is_troubled() RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT EXISTS (SELECT 1 FROM {p}outbox_waiting)
        OR EXISTS (SELECT 1 FROM {p}held_key WHERE consumer_group = '')
$$;

CREATE FUNCTION {p}outbox_is_blocked(topic text, key text) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT $2 IS NOT NULL AND (
        EXISTS (SELECT 1 FROM {p}outbox_waiting w WHERE w.topic = $1 AND w.key = $2)
        OR EXISTS (SELECT 1 FROM {p}held_key held WHERE held.consumer_group = '' AND held.topic = $1 AND held.key = $2))
$$;

-- Fetches the rows of `of_shards` in the window between s1 and s2 with ids above `after` and up to `upto`, in order.
-- The first row is a header: whether any key may be blocked, and the server's incarnation as its message id.
CREATE FUNCTION {p}outbox_walk(
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
            o.headers::text, o.payload, o.created_at, troubled AND {p}outbox_is_blocked(o.topic, o.key)
        FROM {p}outbox o
        WHERE o.id > after AND o.id <= upto AND (all_shards OR {p}shard_of(o.key, o.id) = ANY (of_shards))
          AND NOT pg_visible_in_snapshot(o.xid, s1) AND pg_visible_in_snapshot(o.xid, s2)
        ORDER BY o.id
        LIMIT at_most;
END
$$;

-- Returns the first id above `after` in the window between s1 and s2.
CREATE FUNCTION {p}outbox_jump(of_shards smallint[], s1 pg_snapshot, s2 pg_snapshot, after bigint) RETURNS bigint
LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    RETURN (
        SELECT o.id FROM {p}outbox o
        WHERE o.id > after AND {p}shard_of(o.key, o.id) = ANY (of_shards)
          AND NOT pg_visible_in_snapshot(o.xid, s1) AND pg_visible_in_snapshot(o.xid, s2)
        ORDER BY o.id LIMIT 1);
END
$$;

-- Fetches the rows with these ids, which the caller knows to be in its window, after a header as above.
CREATE FUNCTION {p}outbox_pick(ids bigint[]) RETURNS TABLE (
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
            o.headers::text, o.payload, o.created_at, troubled AND {p}outbox_is_blocked(o.topic, o.key)
        FROM {p}outbox o WHERE o.id = ANY (ids) ORDER BY o.id;
END
$$;

-- Takes a watermark, an id and a transaction: transactions that get a higher transaction id draw only row ids above it.
-- For that, the id is read before the transaction id is assigned, and in the outbox the column xid precedes the id.
CREATE FUNCTION {p}outbox_mark(OUT id bigint, OUT xid xid8) LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    id := (SELECT last_value - CASE WHEN is_called THEN 0 ELSE 1 END FROM {p}outbox_id_seq);
    -- A transaction that already has its transaction id cannot take a watermark.
    xid := CASE WHEN pg_current_xact_id_if_assigned() IS NULL THEN pg_current_xact_id() END;
END
$$;

-- Opens a window: the rows of `of_shards` that are visible now and not in s1. The first row is a header: the current
-- snapshot, all ids in order if there are at most `ids_most` (otherwise none), whether any key may be blocked, the id
-- that all rows are above, and the highest id drawn. The first `at_most` messages follow.
--
-- A row that is not visible in s1 was written by a transaction that started later, or was in progress then and has
-- ended since. The last watermark before the oldest of these transactions bounds their row ids from below. A
-- transaction that is still in progress, however old, does not extend the read; when it ends, one read goes back to
-- where it started.
CREATE FUNCTION {p}outbox_next(
    of_shards smallint[], s1 pg_snapshot, at_most integer, ids_most integer, mark_ids bigint[], mark_xids xid8[]
)
RETURNS TABLE (
    id bigint, shard smallint, attempts integer, message_id uuid, topic text, key text, sequence bigint, kind text,
    mode text, headers text, payload bytea, created_at timestamptz, blocked boolean,
    s2 text, ids bigint[], is_all boolean, above bigint, top bigint
) LANGUAGE plpgsql STABLE ROWS 500
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    oldest xid8 := coalesce(
        (SELECT min(open.xid) FROM pg_snapshot_xip(s1) AS open (xid)
         WHERE pg_visible_in_snapshot(open.xid, pg_current_snapshot())),
        pg_snapshot_xmax(s1));
    found  bigint[];
BEGIN
    above := coalesce(
        (SELECT max(mark.id) FROM unnest(mark_ids, mark_xids) AS mark (id, xid) WHERE mark.xid < oldest),
        -9223372036854775808);
    SELECT array_agg(o.id ORDER BY o.id) INTO found FROM (
        SELECT o.id FROM {p}outbox o
        WHERE o.id > above AND NOT pg_visible_in_snapshot(o.xid, s1)
          AND {p}shard_of(o.key, o.id) = ANY (of_shards)
        LIMIT ids_most + 1
    ) o;
    top := (SELECT last_value FROM {p}outbox_id_seq);
    blocked := {p}outbox_is_troubled();
    message_id := (SELECT token FROM {p}outbox_alive);
    s2 := pg_current_snapshot()::text;
    is_all := coalesce(cardinality(found), 0) <= ids_most;
    ids := CASE WHEN is_all THEN coalesce(found, '{}') ELSE '{}' END;
    RETURN NEXT;
    IF found IS NULL OR NOT is_all THEN
        RETURN;
    END IF;
    found := found[1:at_most];
    -- Ids close together are read as one range of the index; ids far apart are faster to look up one by one.
    IF found[cardinality(found)] - found[1] < 4 * cardinality(found) + 100 THEN
        RETURN QUERY
            SELECT w.*, NULL::text, NULL::bigint[], NULL::boolean, NULL::bigint, NULL::bigint
            FROM {p}outbox_walk(of_shards, s1, pg_current_snapshot(), found[1] - 1, found[cardinality(found)],
                                at_most) w
            WHERE w.id IS NOT NULL;
    ELSE
        RETURN QUERY
            SELECT w.*, NULL::text, NULL::bigint[], NULL::boolean, NULL::bigint, NULL::bigint
            FROM {p}outbox_pick(found) w
            WHERE w.id IS NOT NULL;
    END IF;
END
$$;

-- Fetches waiting messages of `of_shards` that are due. Those of a key are in order and end before the first that is
-- not due. No key gets more than its share of the batch.
CREATE FUNCTION {p}outbox_due(of_shards smallint[], at_most bigint) RETURNS TABLE (
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
            w.payload, w.created_at, false
        FROM {p}outbox_waiting w WHERE w.id IN (SELECT due.id FROM due) ORDER BY w.id LIMIT at_most;
END
$$;
