-- Messages that wait for the verdict on a local transaction elsewhere, and verdicts that arrived before their message:
-- those have no fingerprint yet. A committed one was enqueued in the transaction that made it so.
--
-- One partition per day, so that a day in which everything is decided and expired is dropped as a whole. The day is
-- part of the primary key and depends on the id alone: the day of a UUIDv7, and 1970-01-01 for any other id.
CREATE TABLE {p}half_message (
    id              uuid        NOT NULL,
    day             date        NOT NULL,
    state           text        NOT NULL CHECK (state IN ('prepared', 'committed', 'rolled_back', 'parked')),
    fingerprint     bytea,
    topic           text,
    key             text,
    sequence        bigint,
    kind            text,
    mode            text,
    headers         jsonb,
    created_at      timestamptz,
    business_type   text        NOT NULL DEFAULT '',
    business_id     text        NOT NULL DEFAULT '',
    check_back      text        NOT NULL DEFAULT '{}',
    check_after_ms  bigint      NOT NULL DEFAULT 0,
    prepared_at     timestamptz NOT NULL DEFAULT date_trunc('milliseconds', clock_timestamp()),
    checks          integer     NOT NULL DEFAULT 0,
    -- Only of a prepared one: when its next check-back is due, or when a claimed one is due again.
    next_check_at   timestamptz,
    last_answer     text,
    decided_at      timestamptz,
    decided_by      text,
    contradicted_at timestamptz,
    contradicted_by text,
    acknowledged_at timestamptz,
    acknowledged_by text,
    payload         bytea,
    PRIMARY KEY (id, day)
) PARTITION BY RANGE (day);
CREATE INDEX {b}half_message_due ON {p}half_message (next_check_at) WHERE state = 'prepared';
CREATE INDEX {b}half_message_parked ON {p}half_message (prepared_at) WHERE state = 'parked';
CREATE INDEX {b}half_message_decided ON {p}half_message (decided_at) WHERE decided_at IS NOT NULL;
CREATE INDEX {b}half_message_contradicted ON {p}half_message (contradicted_at) WHERE contradicted_at IS NOT NULL;
CREATE INDEX {b}half_message_early ON {p}half_message (decided_at) WHERE fingerprint IS NULL;

-- Ids that are not UUIDv7, and days without a partition. Rows in these are deleted one by one.
CREATE TABLE {p}half_message_other PARTITION OF {p}half_message FOR VALUES FROM ('1970-01-01') TO ('1970-01-02');
CREATE TABLE {p}half_message_default PARTITION OF {p}half_message DEFAULT;

-- Creates the partitions of today (in UTC) and of the days after it. One that cannot be created now is left for the next
-- call: meanwhile its rows go into the default partition, and are then left there. PostgreSQL reads that one under a
-- lock for each new partition, so a large one must first be emptied by retention.
CREATE FUNCTION {p}half_message_days(ahead integer) RETURNS void
LANGUAGE plpgsql VOLATILE
SET lock_timeout = '20ms'
AS $$
DECLARE
    today date := (now() AT TIME ZONE 'UTC')::date;
    day   date;
    name  text;
BEGIN
    FOR day IN SELECT today + n FROM generate_series(0, ahead) n LOOP
        name := '{p}half_message_' || to_char(day, 'YYYYMMDD');
        CONTINUE WHEN to_regclass(name) IS NOT NULL
            OR pg_relation_size('{p}half_message_default'::regclass) > 8 * 1024 * 1024;
        BEGIN
            EXECUTE format('CREATE TABLE %s PARTITION OF {p}half_message FOR VALUES FROM (%L) TO (%L)',
                name, day, day + 1);
        EXCEPTION
            WHEN duplicate_table OR unique_violation OR check_violation OR lock_not_available OR deadlock_detected
            THEN NULL;
        END;
    END LOOP;
END
$$;

-- Whether a partition contains rows that must stay. Every condition has an index.
CREATE FUNCTION {p}half_message_day_is_used(leaf regclass, until timestamptz) RETURNS boolean
LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET jit = off
AS $$
DECLARE
    used boolean;
BEGIN
    EXECUTE format(
        'SELECT EXISTS (SELECT 1 FROM %1$s WHERE state = ''prepared'')
             OR EXISTS (SELECT 1 FROM %1$s WHERE state = ''parked'')
             OR EXISTS (SELECT 1 FROM %1$s WHERE decided_at >= $1)
             OR EXISTS (SELECT 1 FROM %1$s WHERE contradicted_at IS NOT NULL AND acknowledged_at IS NULL)', leaf)
    INTO used USING until;
    RETURN used;
END
$$;

-- Drops a partition unless a row in it must stay, and returns how many rows that removed. Writers wait for at most 20 ms
-- while the lock is requested, and then for the checks, which read indexes only.
CREATE FUNCTION {p}half_message_drop_day(leaf regclass, until timestamptz) RETURNS bigint
LANGUAGE plpgsql VOLATILE
SET lock_timeout = '20ms'
AS $$
DECLARE
    removed bigint;
BEGIN
    IF {p}half_message_day_is_used(leaf, until) THEN
        RETURN 0;
    END IF;
    EXECUTE format('SELECT count(*) FROM %s', leaf) INTO removed;
    LOCK TABLE ONLY {p}half_message IN ACCESS EXCLUSIVE MODE;
    EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', leaf);
    IF {p}half_message_day_is_used(leaf, until) THEN
        RAISE lock_not_available USING MESSAGE = 'another session wrote into the partition';
    END IF;
    EXECUTE format('DROP TABLE %s', leaf);
    RETURN removed;
EXCEPTION
    -- It is in use; a later call drops it.
    WHEN lock_not_available OR deadlock_detected OR undefined_table THEN RETURN 0;
END
$$;

-- Returns the partitions of whole days that may have expired, the oldest first.
CREATE FUNCTION {p}half_message_old_days(age interval) RETURNS regclass[] LANGUAGE sql STABLE AS $$
    SELECT coalesce(array_agg(child.oid::regclass ORDER BY child.relname), '{}')
    FROM pg_inherits JOIN pg_class child ON child.oid = inhrelid
    WHERE inhparent = '{p}half_message'::regclass AND right(child.relname, 9) ~ '^_[0-9]{8}$'
      AND right(child.relname, 8) < to_char((now() - age) AT TIME ZONE 'UTC', 'YYYYMMDD')
$$;

-- Deletes up to `at_most` rows that were decided longer ago than `age`, and returns how many. With an age of a day or
-- more, rows stay until their partition can be dropped, except where an undecided row keeps it.
CREATE FUNCTION {p}half_message_delete(age interval, at_most bigint) RETURNS bigint
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET jit = off
AS $$
DECLARE
    until   timestamptz := clock_timestamp() - age;
    removed bigint;
BEGIN
    DELETE FROM {p}half_message half USING (
        SELECT id, day FROM {p}half_message
        WHERE decided_at < until AND (contradicted_at IS NULL OR acknowledged_at IS NOT NULL)
          AND (age < interval '1 day' OR day < (until AT TIME ZONE 'UTC')::date - 1
               OR tableoid = '{p}half_message_default'::regclass)
        ORDER BY decided_at LIMIT at_most FOR UPDATE SKIP LOCKED
    ) old
    WHERE half.id = old.id AND half.day = old.day;
    GET DIAGNOSTICS removed = ROW_COUNT;
    RETURN removed;
END
$$;

-- Decides about those of the messages that are prepared or parked, in the given order, and returns their ids.
--
-- The plan for any id locks every partition and then opens one. PostgreSQL considers that too expensive, and would plan
-- the statement again for every call, which takes longer than running it.
CREATE FUNCTION {p}half_message_decide(
    messages uuid[], days_since_1970 integer[], verdicts text[], deciders text[], audit_actions text[]
) RETURNS SETOF uuid
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    FOR n IN 1 .. cardinality(messages) LOOP
        RETURN QUERY
        WITH decided AS (
            UPDATE {p}half_message
            SET state = verdicts[n], decided_by = deciders[n], decided_at = clock_timestamp(), next_check_at = NULL
            WHERE id = messages[n] AND day = DATE '1970-01-01' + days_since_1970[n] AND state IN ('prepared', 'parked')
            RETURNING id, topic, key, sequence, kind, mode, headers, payload, created_at, state
        ), queued AS (
            INSERT INTO {p}outbox (message_id, topic, key, sequence, kind, mode, headers, payload, created_at)
            SELECT id, topic, key, sequence, kind, mode, headers, payload, created_at FROM decided
            WHERE state = 'committed'
        ), audited AS (
            INSERT INTO {p}audit (actor, action, message_id) SELECT deciders[n], audit_actions[n], id FROM decided
        )
        SELECT id FROM decided;
    END LOOP;
END
$$;

-- Claims the check-backs that are due, the longest due first. The settings keep a plan that was made for an empty table
-- from reading every row of a full one.
CREATE FUNCTION {p}half_message_claim(at_most bigint, lease interval) RETURNS TABLE (
    message_id uuid, topic text, key text, sequence bigint, kind text, mode text, headers text, payload bytea,
    created_at timestamptz, business_type text, business_id text, check_back text, check_after_ms bigint,
    prepared_at bigint, checks bigint)
LANGUAGE sql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
    WITH due AS (
        SELECT half.id, half.day, half.next_check_at AS due_at FROM {p}half_message half
        WHERE half.state = 'prepared' AND half.next_check_at <= now()
        ORDER BY half.next_check_at LIMIT at_most FOR UPDATE SKIP LOCKED
    ), claimed AS (
        UPDATE {p}half_message half SET next_check_at = clock_timestamp() + lease
        FROM due WHERE half.id = due.id AND half.day = due.day AND half.state = 'prepared'
        RETURNING half.*, due.due_at
    )
    SELECT id, topic, key, sequence, kind, mode, headers::text, payload, created_at, business_type, business_id,
        check_back, check_after_ms, floor(extract(epoch FROM prepared_at) * 1000)::bigint, checks::bigint
    FROM claimed ORDER BY due_at
$$;

SELECT {p}half_message_days(3);

-- For operators: `SELECT * FROM {p}half_message_status WHERE state = 'parked'`.
CREATE VIEW {p}half_message_status AS
    SELECT id AS message_id, state, topic, key, kind, business_type, business_id, check_back, prepared_at, checks,
        next_check_at, last_answer, decided_at, decided_by, contradicted_at, contradicted_by, acknowledged_at,
        acknowledged_by, octet_length(payload)::bigint AS payload_bytes
    FROM {p}half_message;
