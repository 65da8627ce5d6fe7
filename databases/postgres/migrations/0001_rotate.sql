-- Rotation: a partition of the outbox in which every row is settled is truncated.

-- Returns the partitions to check: those with rows that new ids do not go into.
CREATE FUNCTION {p}outbox_full_parts() RETURNS integer[] LANGUAGE sql STABLE AS $$
    SELECT coalesce(array_agg(part), '{}')
    FROM generate_series(0, 3) part, {p}outbox_id_seq sequence
    WHERE part <> ((sequence.last_value >> 16) & 3)
      AND pg_relation_size(('{p}outbox_' || part)::regclass) > 0
$$;

-- Whether every row of a partition is settled. The newest row is settled last, so checking it first avoids nearly all
-- useless scans. Shards with equal progress are checked together, and a row's shard is computed only if the row is not
-- settled under that progress.
CREATE FUNCTION {p}outbox_part_is_settled(leaf regclass) RETURNS boolean
LANGUAGE plpgsql STABLE
SET enable_seqscan = on SET jit = off
AS $$
DECLARE
    place     record;
    unsettled boolean;
BEGIN
    EXECUTE format(
        'SELECT EXISTS (
            SELECT 1 FROM (SELECT * FROM %s ORDER BY id DESC LIMIT 1) o
            JOIN {p}outbox_place place ON place.shard = {p}shard_of(o.key, o.id)
            WHERE NOT {p}outbox_is_settled(o.xid, o.id, place.s1, place.s2, place.last_id, place.done))', leaf)
    INTO unsettled;
    IF unsettled THEN
        RETURN false;
    END IF;
    FOR place IN
        SELECT array_agg(shard) AS shards, s1::text::pg_snapshot AS s1, s2::text::pg_snapshot AS s2, last_id, done
        FROM {p}outbox_place GROUP BY s1::text, s2::text, last_id, done
    LOOP
        EXECUTE format(
            'SELECT EXISTS (
                SELECT 1 FROM %s o
                WHERE NOT {p}outbox_is_settled(o.xid, o.id, $1, $2, $3, $4)
                  AND {p}shard_of(o.key, o.id) = ANY ($5))', leaf)
        INTO unsettled USING place.s1, place.s2, place.last_id, place.done, place.shards;
        IF unsettled THEN
            RETURN false;
        END IF;
    END LOOP;
    RETURN true;
END
$$;
CREATE FUNCTION {p}outbox_part_has_grown(leaf regclass, since pg_snapshot) RETURNS boolean
LANGUAGE plpgsql STABLE
SET enable_seqscan = on SET jit = off
AS $$
DECLARE
    has_grown boolean;
BEGIN
    EXECUTE format('SELECT EXISTS (SELECT 1 FROM %s WHERE NOT pg_visible_in_snapshot(xid, $1))', leaf)
    INTO has_grown USING since;
    RETURN has_grown;
END
$$;

-- Truncates a partition if every row in it is settled, and returns whether it did. Writers use another partition by
-- then, except for one that drew its id long ago. Its row is never lost, and no session waits for long: the check comes
-- first, a lock is requested for at most 20 ms, and one scan under the lock finds rows that were inserted since.
CREATE FUNCTION {p}outbox_empty(part integer, keep boolean) RETURNS boolean
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
            SELECT o.id, o.message_id, o.topic, o.key, o.sequence, o.kind, o.mode, o.headers, o.payload, o.created_at
            FROM %1$s o
            WHERE NOT EXISTS (SELECT 1 FROM {p}outbox_waiting w WHERE w.id = o.id)
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
    RETURN true;
END
$$;

-- Truncates the older partition of the progress table after copying the rows that are still valid.
CREATE FUNCTION {p}outbox_progress_empty() RETURNS boolean
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET jit = off SET lock_timeout = '20ms'
AS $$
DECLARE
    part   bigint := (SELECT 1 - ((last_value >> 12) & 1) FROM {p}outbox_progress_n_seq);
    leaf   regclass := '{p}outbox_progress_' || part;
    newest bigint;
BEGIN
    IF pg_relation_size(leaf) = 0 THEN
        RETURN false;
    END IF;
    -- Prevents settlements meanwhile.
    PERFORM 1 FROM {p}lease_holder WHERE starts_with(name, 'outbox/') ORDER BY name FOR NO KEY UPDATE;
    EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', leaf);
    WITH carried AS (
        INSERT INTO {p}outbox_progress (shards, s1, s2, last_id, done, top_id)
        SELECT array_agg(shard), s1::text::pg_snapshot, s2::text::pg_snapshot, last_id, done, top_id
        FROM {p}outbox_place
        WHERE ((n >> 12) & 1) = part
        GROUP BY s1::text, s2::text, last_id, done, top_id
        RETURNING n
    )
    SELECT max(n) INTO newest FROM carried;
    INSERT INTO {p}outbox_progress (shards, published)
    SELECT '{}', sum(published) FROM {p}outbox_progress WHERE ((n >> 12) & 1) = part AND published > 0
    HAVING sum(published) > 0
    RETURNING greatest(newest, n) INTO newest;
    IF ((newest >> 12) & 1) = part THEN
        RAISE lock_not_available USING MESSAGE = 'the ring of partitions has just advanced';
    END IF;
    EXECUTE format('TRUNCATE %s', leaf);
    RETURN true;
END
$$;

-- Creates the partition for messages sent today (in UTC).
CREATE FUNCTION {p}outbox_sent_day() RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    day  date := (now() AT TIME ZONE 'UTC')::date;
    name text := '{p}outbox_sent_' || to_char(day, 'YYYYMMDD');
BEGIN
    IF to_regclass(name) IS NULL THEN
        EXECUTE format('CREATE TABLE %s PARTITION OF {p}outbox_sent FOR VALUES FROM (%L) TO (%L)',
            name, day::text || ' 00:00:00+00', (day + 1)::text || ' 00:00:00+00');
    END IF;
EXCEPTION
    WHEN duplicate_table OR unique_violation THEN NULL;
END
$$;

-- Removes up to `at_most` sent messages older than `age` and returns how many. A day that is old enough is dropped as a
-- whole.
CREATE FUNCTION {p}outbox_remove_sent(age interval, at_most bigint) RETURNS bigint
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
    DELETE FROM {p}outbox_sent sent USING (
        SELECT id, message_id, sent_at FROM {p}outbox_sent WHERE sent_at < until LIMIT greatest(0, at_most - removed)
    ) old
    WHERE sent.id = old.id AND sent.message_id = old.message_id AND sent.sent_at = old.sent_at AND sent.sent_at < until;
    GET DIAGNOSTICS part = ROW_COUNT;
    removed := removed + part;
    -- Rows still in the outbox are removed with their partition, unless that would be too late.
    DELETE FROM {p}outbox WHERE id = ANY (ARRAY(
        SELECT status.id FROM {p}outbox_status status
        WHERE status.state = 'sent' AND status.created_at < until
          AND NOT EXISTS (SELECT 1 FROM {p}outbox_sent sent WHERE sent.id = status.id)
        LIMIT greatest(0, at_most - removed)));
    GET DIAGNOSTICS part = ROW_COUNT;
    RETURN removed + part;
END
$$;

-- Removes sent messages by their rows, and days without any rows left. Rows that were not sent stay.
CREATE FUNCTION {p}outbox_remove_these_sent(ids bigint[]) RETURNS bigint
LANGUAGE plpgsql VOLATILE
SET lock_timeout = '1s'
AS $$
DECLARE
    sent     bigint[] := ARRAY(SELECT status.id FROM {p}outbox_status status
                               WHERE status.state = 'sent' AND status.id = ANY (ids));
    day      record;
    is_empty boolean;
BEGIN
    DELETE FROM {p}outbox_sent WHERE id = ANY (sent);
    DELETE FROM {p}outbox WHERE id = ANY (sent);
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
