-- {p} is the prefix with its schema, {b} the prefix without it. Requires PostgreSQL 14 or newer.

-- UUIDv7 for SQL writers: 48 bits of milliseconds, then the random bits of a version 4 with the version set to 7.
CREATE FUNCTION {p}uuid7() RETURNS uuid LANGUAGE sql VOLATILE PARALLEL SAFE AS $$
    SELECT encode(
        set_bit(set_bit(
            overlay(uuid_send(gen_random_uuid())
                    PLACING substring(int8send((extract(epoch FROM clock_timestamp()) * 1000)::bigint) FROM 3)
                    FROM 1 FOR 6),
            52, 1), 53, 1),
        'hex')::uuid
$$;

-- The shard of a row: the slice of the key space that one relay leases. Messages without a key have no order and are
-- distributed. Not a column of the outbox: computing one took a third as long as the whole insert, and only readers
-- need it.
CREATE FUNCTION {p}shard_of(key text, id bigint) RETURNS smallint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT (coalesce(hashtext($1)::bigint, $2) & 15)::smallint
$$;

-- One row is one message. `INSERT INTO … (topic, key, payload_text)` is enough (migration 2 adds that column); the other
-- columns have defaults. There are no constraints: PostgreSQL parses their text for every statement, and two short ones
-- took as long as the rest of the insert. The relay parks a row that cannot be a message (such as a topic with a blank) with an error that says why.
--
-- Rows are never updated and never deleted. The relay's progress, below, records which rows were sent, and a partition
-- is truncated once every row in it is settled. The partitions are a ring: each takes 65,536 consecutive ids. Nothing
-- is created or dropped at run time.
CREATE TABLE {p}outbox (
    -- The writer's transaction id. It tells at any later time which rows a snapshot saw. It precedes the id because
    -- columns get their values in this order: readers rely on a transaction having its transaction id before it draws
    -- row ids. For the same reason writers cannot choose ids.
    xid        xid8        NOT NULL DEFAULT pg_current_xact_id(),
    id         bigint      GENERATED ALWAYS AS IDENTITY,
    message_id uuid        NOT NULL DEFAULT {p}uuid7(),
    topic      text        NOT NULL,
    key        text,
    sequence   bigint,
    kind       text        NOT NULL DEFAULT 'message',
    mode       text        NOT NULL DEFAULT 'effectively-once',
    headers    jsonb       NOT NULL DEFAULT '{}',
    payload    bytea       NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp()
) PARTITION BY LIST (((id >> 16) & 3));
-- No vacuum for mere inserts: the partition is truncated soon, and a running vacuum would prevent that.
CREATE TABLE {p}outbox_0 PARTITION OF {p}outbox FOR VALUES IN (0)
    WITH (vacuum_truncate = off, autovacuum_vacuum_insert_threshold = -1, toast.autovacuum_vacuum_insert_threshold = -1);
CREATE TABLE {p}outbox_1 PARTITION OF {p}outbox FOR VALUES IN (1)
    WITH (vacuum_truncate = off, autovacuum_vacuum_insert_threshold = -1, toast.autovacuum_vacuum_insert_threshold = -1);
CREATE TABLE {p}outbox_2 PARTITION OF {p}outbox FOR VALUES IN (2)
    WITH (vacuum_truncate = off, autovacuum_vacuum_insert_threshold = -1, toast.autovacuum_vacuum_insert_threshold = -1);
CREATE TABLE {p}outbox_3 PARTITION OF {p}outbox FOR VALUES IN (3)
    WITH (vacuum_truncate = off, autovacuum_vacuum_insert_threshold = -1, toast.autovacuum_vacuum_insert_threshold = -1);
-- An id belongs to one partition, so unique in each is unique in all.
CREATE UNIQUE INDEX {b}outbox_0_id ON {p}outbox_0 (id);
CREATE UNIQUE INDEX {b}outbox_1_id ON {p}outbox_1 (id);
CREATE UNIQUE INDEX {b}outbox_2_id ON {p}outbox_2 (id);
CREATE UNIQUE INDEX {b}outbox_3_id ON {p}outbox_3 (id);

-- The waiting table: messages that failed, were redriven, or wait behind such a message of their topic and key. The ids
-- are those of the outbox. Of each key that is not held, at least the first has a time for its next attempt.
CREATE TABLE {p}outbox_waiting (
    id              bigint      PRIMARY KEY,
    message_id      uuid        NOT NULL,
    topic           text        NOT NULL,
    key             text,
    sequence        bigint,
    kind            text        NOT NULL,
    mode            text        NOT NULL,
    headers         jsonb       NOT NULL,
    payload         bytea       NOT NULL,
    created_at      timestamptz NOT NULL,
    shard           smallint    NOT NULL,
    attempts        integer     NOT NULL DEFAULT 0,
    next_attempt_at timestamptz,
    last_error      text
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
CREATE INDEX {b}outbox_waiting_key ON {p}outbox_waiting (topic, key, id);
CREATE INDEX {b}outbox_waiting_due ON {p}outbox_waiting (next_attempt_at) WHERE next_attempt_at IS NOT NULL;

-- The relays' progress. For each shard, the row with the highest n is valid: settled are the rows visible in s1, the
-- rows visible in s2 with ids up to last_id, and the rows in done. Rows are only inserted: a row that is updated all
-- the time becomes a long chain of versions during a long transaction. The partitions are a ring like those of the
-- outbox. Before one is truncated, its valid rows and the sum of `published` are copied.
CREATE TABLE {p}outbox_progress (
    n         bigint      GENERATED ALWAYS AS IDENTITY,
    shards    smallint[]  NOT NULL,
    s1        pg_snapshot,
    s2        pg_snapshot,
    last_id   bigint,
    done      bigint[]    NOT NULL DEFAULT '{}',
    published bigint      NOT NULL DEFAULT 0,
    -- The highest id drawn by then. After a restore into another cluster it distinguishes old rows from new ones.
    top_id    bigint,
    at        timestamptz NOT NULL DEFAULT clock_timestamp()
) PARTITION BY LIST (((n >> 12) & 1));
CREATE TABLE {p}outbox_progress_0 PARTITION OF {p}outbox_progress FOR VALUES IN (0);
CREATE TABLE {p}outbox_progress_1 PARTITION OF {p}outbox_progress FOR VALUES IN (1);
CREATE INDEX {b}outbox_progress_n ON {p}outbox_progress (n);
-- At first nothing is settled: no transaction is visible in this snapshot.
INSERT INTO {p}outbox_progress (shards, s1) SELECT array_agg(n::smallint), '3:3:' FROM generate_series(0, 15) n;

-- Enqueues a message with a JSON payload from SQL, and returns its id.
CREATE FUNCTION {p}publish(topic text, key text, payload jsonb, kind text DEFAULT 'message', headers jsonb DEFAULT '{}')
RETURNS uuid LANGUAGE sql BEGIN ATOMIC
    INSERT INTO {p}outbox (topic, key, payload, kind, headers)
    VALUES ($1, $2, convert_to($3::text, 'UTF8'), $4, $5)
    RETURNING message_id;
END;

-- A lease is free if its holder is null. Its epoch grows with each new holder, and every transition compares it.
CREATE TABLE {p}lease (
    name       text        PRIMARY KEY,
    holder     text,
    epoch      bigint      NOT NULL,
    expires_at timestamptz NOT NULL
) WITH (fillfactor = 50);

-- The holder of each lease again, without the expiry that changes every second. Settling locks a row of this table: a
-- row that rarely changes stays cheap to find during long transactions.
CREATE TABLE {p}lease_holder (
    name   text   PRIMARY KEY,
    holder text,
    epoch  bigint NOT NULL
) WITH (fillfactor = 50);
CREATE FUNCTION {p}lease_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO {p}lease_holder AS held (name, holder, epoch) VALUES (NEW.name, NEW.holder, NEW.epoch)
    ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, epoch = excluded.epoch
    WHERE held.holder IS DISTINCT FROM excluded.holder OR held.epoch <> excluded.epoch;
    RETURN NULL;
END
$$;
CREATE TRIGGER {b}lease_changed AFTER INSERT OR UPDATE OF holder, epoch ON {p}lease
    FOR EACH ROW EXECUTE FUNCTION {p}lease_changed();

-- Contains an id once its group is responsible for it: its effect happened, or it is a dead letter.
CREATE TABLE {p}inbox (
    consumer_group text        NOT NULL,
    message_id     uuid        NOT NULL,
    handled_at     timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (consumer_group, message_id)
);
-- Finds expired rows without reading all. Rows arrive in order of time, so the index needs a few bytes for many pages.
CREATE INDEX {b}inbox_handled ON {p}inbox USING brin (handled_at) WITH (autosummarize = on);

-- consumer_group is empty for messages that the relay could not publish; outbox_id is then their id in the outbox.
CREATE TABLE {p}dead_letter (
    id                 bigint      GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    consumer_group     text        NOT NULL DEFAULT '',
    message_id         uuid        NOT NULL,
    topic              text        NOT NULL,
    key                text,
    sequence           bigint,
    kind               text        NOT NULL,
    mode               text        NOT NULL,
    headers            jsonb       NOT NULL,
    payload            bytea       NOT NULL,
    created_at         timestamptz NOT NULL,
    outbox_id          bigint,
    status             text        NOT NULL CHECK (status IN ('parked', 'delayed', 'waiting', 'redriving', 'done')),
    error_code         text        NOT NULL,
    error              text        NOT NULL,
    attempts           integer     NOT NULL,
    redrives           integer     NOT NULL DEFAULT 0,
    -- Whether its key waits for it. False for a message that the relay is configured to skip.
    holds_key          boolean     NOT NULL DEFAULT true,
    original_partition integer,
    original_offset    bigint,
    first_seen         timestamptz NOT NULL DEFAULT now(),
    last_attempt       timestamptz NOT NULL DEFAULT now(),
    -- Its id while it is the next of its key to be handled, otherwise null: a consumer that asks for work must not read
    -- a hundred thousand messages that wait behind one parked dead letter.
    due                bigint,
    -- The time from which a delayed message is retried automatically.
    retry_at           timestamptz
);
-- A message is one dead letter of its group, however often it is delivered. Its identity includes topic and key because
-- a key is held for each of them: a dead letter for two keys would release only one.
CREATE UNIQUE INDEX {b}dead_letter_of_group ON {p}dead_letter (consumer_group, message_id, topic, coalesce(key, ''))
    WHERE consumer_group <> '';
-- For the relay a dead letter is a row of the outbox: one id may have been enqueued twice, and each row is counted.
CREATE UNIQUE INDEX {b}dead_letter_of_relay ON {p}dead_letter (outbox_id) WHERE consumer_group = '';
CREATE INDEX {b}dead_letter_open ON {p}dead_letter (consumer_group, topic, key, id) WHERE status <> 'done';
CREATE INDEX {b}dead_letter_due ON {p}dead_letter (consumer_group, due) WHERE due IS NOT NULL;
CREATE INDEX {b}dead_letter_delayed ON {p}dead_letter (consumer_group, retry_at) WHERE status = 'delayed';
CREATE INDEX {b}dead_letter_message ON {p}dead_letter (message_id);
CREATE INDEX {b}dead_letter_done ON {p}dead_letter (last_attempt) WHERE status = 'done';

-- A key that waits behind a dead letter. The row exists to be locked: live traffic and redrives synchronise on it.
-- Adding a message behind it locks it too (DO UPDATE, never DO NOTHING), so that it is not deleted in between.
CREATE TABLE {p}held_key (
    consumer_group text        NOT NULL,
    topic          text        NOT NULL,
    key            text        NOT NULL,
    since          timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (consumer_group, topic, key)
);

CREATE TABLE {p}audit (
    id             bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at             timestamptz NOT NULL DEFAULT clock_timestamp(),
    actor          text        NOT NULL,
    action         text        NOT NULL,
    dead_letter_id bigint,
    message_id     uuid        NOT NULL,
    detail         text        NOT NULL DEFAULT ''
);
