-- Nothing in a partition of the outbox is deleted: retention hides sent rows, and truncation removes them. So there are
-- no dead rows, whatever is kept and for however long. (Relays without order delete the rows they claim.)

-- Sent rows of partitions that retention or an operator removed. Emptied together with their partition.
CREATE TABLE {p}outbox_removed (id bigint PRIMARY KEY);

-- Sent messages that are still in their partition.
CREATE VIEW {p}outbox_unrotated AS
    SELECT o.*, place.at
    FROM {p}outbox o JOIN {p}outbox_place place ON place.shard = {p}shard_of(o.key, o.id)
    WHERE {p}outbox_is_settled(o.xid, o.id, place.s1, place.s2, place.last_id, place.done)
      AND NOT EXISTS (SELECT 1 FROM {p}outbox_removed removed WHERE removed.id = o.id)
      AND NOT EXISTS (SELECT 1 FROM {p}outbox_waiting w WHERE w.id = o.id)
      AND NOT EXISTS (SELECT 1 FROM {p}outbox_sent sent WHERE sent.id = o.id AND sent.message_id = o.message_id)
      AND NOT EXISTS (SELECT 1 FROM {p}dead_letter letter
                      WHERE letter.consumer_group = '' AND letter.outbox_id = o.id AND letter.status = 'parked');

-- Keys whose messages wait: one of them failed, was redriven, or is parked and holds its key.
CREATE VIEW {p}outbox_blocked_key AS
    SELECT w.topic, w.key FROM {p}outbox_waiting w WHERE w.key IS NOT NULL
    UNION ALL
    SELECT held.topic, held.key FROM {p}held_key held WHERE held.consumer_group = '';

-- Every message and its state. The state is a constant in every part of the union, so that a query for one state does
-- not evaluate the others, and blocked keys are read once and not for every row.
CREATE OR REPLACE VIEW {p}outbox_status AS
    SELECT o.id, o.message_id, o.topic, o.key, 'pending' AS state,
        0 AS attempts, NULL::timestamptz AS next_attempt_at, NULL::text AS last_error, o.created_at,
        NULL::timestamptz AS sent_at, o.sequence, o.kind, o.mode, o.headers,
        {p}payload_shown(o.payload, o.payload_text) AS payload
    FROM {p}outbox_unsettled o
    WHERE o.key IS NULL OR (o.topic, o.key) NOT IN (SELECT blocked.topic, blocked.key FROM {p}outbox_blocked_key blocked)
    UNION ALL
    SELECT o.id, o.message_id, o.topic, o.key, 'waiting', 0, NULL, NULL, o.created_at,
        NULL, o.sequence, o.kind, o.mode, o.headers, {p}payload_shown(o.payload, o.payload_text)
    FROM {p}outbox_unsettled o
    WHERE (o.topic, o.key) IN (SELECT blocked.topic, blocked.key FROM {p}outbox_blocked_key blocked)
    UNION ALL
    SELECT w.id, w.message_id, w.topic, w.key, 'retrying', w.attempts, w.next_attempt_at, w.last_error, w.created_at,
        NULL, w.sequence, w.kind, w.mode, w.headers, {p}payload_shown(w.payload, w.payload_text)
    FROM {p}outbox_waiting w WHERE w.attempts > 0
    UNION ALL
    SELECT w.id, w.message_id, w.topic, w.key, 'waiting', w.attempts, NULL, w.last_error, w.created_at,
        NULL, w.sequence, w.kind, w.mode, w.headers, {p}payload_shown(w.payload, w.payload_text)
    FROM {p}outbox_waiting w
    WHERE w.attempts <= 0 AND (
        EXISTS (SELECT 1 FROM {p}outbox_waiting earlier
                WHERE earlier.topic = w.topic AND earlier.key = w.key AND earlier.id < w.id)
        OR EXISTS (SELECT 1 FROM {p}held_key held
                   WHERE held.consumer_group = '' AND held.topic = w.topic AND held.key = w.key))
    UNION ALL
    SELECT w.id, w.message_id, w.topic, w.key, 'pending', w.attempts, NULL, w.last_error, w.created_at,
        NULL, w.sequence, w.kind, w.mode, w.headers, {p}payload_shown(w.payload, w.payload_text)
    FROM {p}outbox_waiting w
    WHERE w.attempts <= 0
      AND NOT EXISTS (SELECT 1 FROM {p}outbox_waiting earlier
                      WHERE earlier.topic = w.topic AND earlier.key = w.key AND earlier.id < w.id)
      AND NOT EXISTS (SELECT 1 FROM {p}held_key held
                      WHERE held.consumer_group = '' AND held.topic = w.topic AND held.key = w.key)
    UNION ALL
    SELECT letter.outbox_id, letter.message_id, letter.topic, letter.key, 'parked',
        letter.attempts, NULL, letter.error_code || ': ' || letter.error, letter.created_at,
        NULL, letter.sequence, letter.kind, letter.mode, letter.headers,
        {p}payload_shown(letter.payload, letter.payload_text)
    FROM {p}dead_letter letter WHERE letter.consumer_group = '' AND letter.status = 'parked'
    UNION ALL
    SELECT o.id, o.message_id, o.topic, o.key, 'sent', 0, NULL, NULL, o.created_at,
        -- It was sent by then; the exact time is not recorded.
        o.at, o.sequence, o.kind, o.mode, o.headers, {p}payload_shown(o.payload, o.payload_text)
    FROM {p}outbox_unrotated o
    UNION ALL
    SELECT sent.id, sent.message_id, sent.topic, sent.key, 'sent', 0, NULL, NULL, sent.created_at,
        sent.sent_at, sent.sequence, sent.kind, sent.mode, sent.headers, sent.payload
    FROM {p}outbox_sent sent;

-- Returns the partitions to check: those with rows. The one that new ids go into only if `with_current` is true: its
-- writers wait while it is truncated, so that is for an idle outbox.
CREATE FUNCTION {p}outbox_parts_to_empty(with_current boolean) RETURNS integer[] LANGUAGE sql STABLE AS $$
    SELECT coalesce(array_agg(part), '{}')
    FROM generate_series(0, 3) part, {p}outbox_id_seq sequence
    WHERE (with_current OR part <> ((sequence.last_value >> 16) & 3))
      AND pg_relation_size(('{p}outbox_' || part)::regclass) > 0
$$;

-- Truncates a partition if every row in it is settled, and returns whether it did. A writer that still inserts into it
-- is never lost, and no session waits for long: the check comes first, a lock is requested for at most 20 ms, and one
-- scan under the lock finds rows that were inserted since.
CREATE OR REPLACE FUNCTION {p}outbox_empty(part integer, keep boolean) RETURNS boolean
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET jit = off SET lock_timeout = '20ms'
AS $$
DECLARE
    leaf     regclass := '{p}outbox_' || part;
    seen     pg_snapshot;
    settled  boolean;
BEGIN
    -- One statement sees one snapshot.
    SELECT pg_current_snapshot(), {p}outbox_part_is_settled(leaf) INTO seen, settled;
    IF NOT settled THEN
        RETURN false;
    END IF;
    IF keep THEN
        PERFORM {p}outbox_sent_day();
        EXECUTE format(
            'INSERT INTO {p}outbox_sent (
                id, message_id, topic, key, sequence, kind, mode, headers, payload, created_at)
            SELECT o.id, o.message_id, o.topic, o.key, o.sequence, o.kind, o.mode, o.headers,
                {p}payload_shown(o.payload, o.payload_text), o.created_at
            FROM %1$s o
            WHERE NOT EXISTS (SELECT 1 FROM {p}outbox_removed removed WHERE removed.id = o.id)
              AND NOT EXISTS (SELECT 1 FROM {p}outbox_waiting w WHERE w.id = o.id)
              AND NOT EXISTS (SELECT 1 FROM {p}outbox_sent sent
                              WHERE sent.id = o.id AND sent.message_id = o.message_id)
              AND NOT EXISTS (SELECT 1 FROM {p}dead_letter letter
                              WHERE letter.consumer_group = '''' AND letter.outbox_id = o.id
                                AND letter.status = ''parked'')', leaf);
    END IF;
    -- Readers are not blocked by this lock.
    EXECUTE format('LOCK TABLE %s IN SHARE ROW EXCLUSIVE MODE', leaf);
    IF {p}outbox_part_has_grown(leaf, seen) THEN
        -- An error rolls the copy back.
        RAISE lock_not_available USING MESSAGE = 'another session wrote into the partition';
    END IF;
    EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', leaf);
    EXECUTE format('TRUNCATE %s', leaf);
    DELETE FROM {p}outbox_removed WHERE ((id >> 16) & 3) = part;
    RETURN true;
END
$$;

-- Removes up to `at_most` messages from the archive of sent ones that are older than `age`, and returns how many. A day
-- that is old enough is dropped as a whole.
CREATE OR REPLACE FUNCTION {p}outbox_remove_sent(age interval, at_most bigint) RETURNS bigint
LANGUAGE plpgsql VOLATILE
SET lock_timeout = '1s'
AS $$
DECLARE
    until   timestamptz := clock_timestamp() - age;
    day     record;
    removed bigint := 0;
    part    bigint;
BEGIN
    FOR day IN
        SELECT child.oid::regclass AS name FROM pg_inherits JOIN pg_class child ON child.oid = inhrelid
        WHERE inhparent = '{p}outbox_sent'::regclass
          AND to_date(right(child.relname, 8), 'YYYYMMDD') < (until AT TIME ZONE 'UTC')::date
        ORDER BY child.relname
    LOOP
        EXIT WHEN removed >= at_most;
        EXECUTE format('SELECT count(*) FROM %s', day.name) INTO part;
        EXECUTE format('DROP TABLE %s', day.name);
        removed := removed + part;
    END LOOP;
    -- A row of the archive may still be in its partition, as one that waited and was sent later.
    WITH gone AS (
        DELETE FROM {p}outbox_sent sent USING (
            SELECT id, message_id, sent_at FROM {p}outbox_sent WHERE sent_at < until
            LIMIT greatest(0, at_most - removed)
        ) old
        WHERE sent.id = old.id AND sent.message_id = old.message_id AND sent.sent_at = old.sent_at
          AND sent.sent_at < until
        RETURNING sent.id
    ), hidden AS (
        INSERT INTO {p}outbox_removed (id) SELECT o.id FROM {p}outbox o WHERE o.id IN (SELECT gone.id FROM gone)
        ON CONFLICT DO NOTHING
    )
    SELECT count(*) INTO part FROM gone;
    RETURN removed + part;
END
$$;

-- Removes up to `at_most` sent messages older than `age` that are still in their partition, and returns how many. Only
-- if sent messages are kept: otherwise truncation removes them soon, and this would be work for nothing.
CREATE FUNCTION {p}outbox_hide_sent(age interval, at_most bigint) RETURNS bigint
LANGUAGE plpgsql VOLATILE
SET jit = off
AS $$
DECLARE
    until  timestamptz := clock_timestamp() - age;
    hidden bigint;
BEGIN
    INSERT INTO {p}outbox_removed (id)
    SELECT o.id FROM {p}outbox_unrotated o WHERE o.created_at < until LIMIT at_most
    ON CONFLICT DO NOTHING;
    GET DIAGNOSTICS hidden = ROW_COUNT;
    RETURN hidden;
END
$$;

-- Removes sent messages by their rows, and days without any rows left. Rows that were not sent stay.
CREATE OR REPLACE FUNCTION {p}outbox_remove_these_sent(ids bigint[]) RETURNS bigint
LANGUAGE plpgsql VOLATILE
SET lock_timeout = '1s'
AS $$
DECLARE
    sent     bigint[] := ARRAY(SELECT status.id FROM {p}outbox_status status
                               WHERE status.state = 'sent' AND status.id = ANY (ids));
    day      record;
    is_empty boolean;
BEGIN
    INSERT INTO {p}outbox_removed (id) SELECT o.id FROM {p}outbox o WHERE o.id = ANY (sent) ON CONFLICT DO NOTHING;
    DELETE FROM {p}outbox_sent WHERE id = ANY (sent);
    FOR day IN
        SELECT child.oid::regclass AS name FROM pg_inherits JOIN pg_class child ON child.oid = inhrelid
        WHERE inhparent = '{p}outbox_sent'::regclass
          AND to_date(right(child.relname, 8), 'YYYYMMDD') < (now() AT TIME ZONE 'UTC')::date - 1
    LOOP
        EXECUTE format('SELECT NOT EXISTS (SELECT 1 FROM %s)', day.name) INTO is_empty;
        CONTINUE WHEN NOT is_empty;
        BEGIN
            EXECUTE format('DROP TABLE %s', day.name);
        EXCEPTION
            -- Another session reads it; a later call drops it.
            WHEN lock_not_available THEN NULL;
        END;
    END LOOP;
    RETURN coalesce(array_length(sent, 1), 0);
END
$$;
