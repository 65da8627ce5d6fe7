-- Truncates a partition if every row in it is settled, and returns whether it did. Writers use another partition by
-- then, except for one that drew its id long ago. Its row is never lost, and no session waits for long: the check comes
-- first, a lock is requested for at most 20 ms, and one scan under the lock finds rows that were inserted since.
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
