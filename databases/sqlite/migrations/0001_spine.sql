-- {p} is the prefix and {now} the current time: milliseconds since 1970 in UTC, like every time here.
-- Message ids are readable text. Payloads are the last columns, so that a scan without them reads no overflow pages.

-- One row is one message to be published. `INSERT INTO … (topic, key, payload_text)` is enough; the other columns have
-- defaults. The default id is a UUIDv7, built from functions that every SQLite has.
CREATE TABLE {p}outbox (
    id              INTEGER PRIMARY KEY AUTOINCREMENT,
    message_id      TEXT    NOT NULL DEFAULT (
        substr(printf('%012x', {now}), 1, 8) || '-' || substr(printf('%012x', {now}), 9, 4) || '-7' ||
        substr(lower(hex(randomblob(2))), 2) || '-' ||
        substr('89ab', 1 + (random() & 3), 1) || substr(lower(hex(randomblob(2))), 2) || '-' ||
        lower(hex(randomblob(6)))),
    topic           TEXT    NOT NULL,
    key             TEXT,
    sequence        INTEGER,
    kind            TEXT    NOT NULL DEFAULT 'message',
    mode            TEXT    NOT NULL DEFAULT 'effectively-once',
    headers         TEXT    NOT NULL DEFAULT '{}',
    created_at      INTEGER NOT NULL DEFAULT ({now}),
    attempts        INTEGER NOT NULL DEFAULT 0,
    next_attempt_at INTEGER,
    last_error      TEXT,
    payload         BLOB    NOT NULL,
    CONSTRAINT {p}outbox_message_id_is_a_uuid CHECK (
        typeof(message_id) = 'text' AND length(message_id) = 36 AND length(replace(message_id, '-', '')) = 32 AND
        message_id NOT GLOB '*[^0-9A-Fa-f-]*' AND message_id LIKE '________-____-____-____-____________'),
    CONSTRAINT {p}outbox_topic_is_valid CHECK (
        typeof(topic) = 'text' AND length(topic) BETWEEN 1 AND 249 AND topic NOT GLOB '*[^A-Za-z0-9._-]*' AND
        topic NOT IN ('.', '..')),
    -- No control characters, and no blobs: a blob never equals the text of the same bytes, so its key would have no
    -- order.
    CONSTRAINT {p}outbox_key_is_valid CHECK (
        key IS NULL OR (
            typeof(key) = 'text' AND length(CAST(key AS BLOB)) BETWEEN 1 AND 512 AND
            instr(CAST(key AS BLOB), x'00') = 0 AND
            key NOT GLOB '*[' || char(1) || '-' || char(31) || char(127) || '-' || char(159) || ']*')),
    CONSTRAINT {p}outbox_mode_is_valid CHECK (mode IN ('at-most-once', 'at-least-once', 'effectively-once')),
    CONSTRAINT {p}outbox_created_at_is_in_milliseconds CHECK (typeof(created_at) = 'integer')
);

-- Contains only failed rows, so it costs writers nothing.
CREATE INDEX {p}outbox_retrying ON {p}outbox (topic, key) WHERE next_attempt_at IS NOT NULL;

-- Sent messages, kept for a while if `keep_sent` is set. The transaction that settles a message moves it here.
CREATE TABLE {p}outbox_sent (
    id         INTEGER PRIMARY KEY,
    message_id TEXT    NOT NULL,
    topic      TEXT    NOT NULL,
    key        TEXT,
    sequence   INTEGER,
    kind       TEXT    NOT NULL,
    mode       TEXT    NOT NULL,
    headers    TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    attempts   INTEGER NOT NULL,
    last_error TEXT,
    sent_at    INTEGER NOT NULL DEFAULT ({now}),
    payload    BLOB    NOT NULL
);
CREATE INDEX {p}outbox_sent_at ON {p}outbox_sent (sent_at);
CREATE INDEX {p}outbox_sent_message ON {p}outbox_sent (message_id);

CREATE TABLE {p}outbox_published (
    shard INTEGER PRIMARY KEY,
    count INTEGER NOT NULL DEFAULT 0
);
INSERT INTO {p}outbox_published (shard) VALUES (0);

-- A lease is free if its holder is null. Its epoch grows with each new holder, and every transition compares it.
CREATE TABLE {p}lease (
    name       TEXT    PRIMARY KEY,
    holder     TEXT,
    epoch      INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
) WITHOUT ROWID;

-- Contains an id once its group is responsible for it: its effect happened, or it is a dead letter.
CREATE TABLE {p}inbox (
    consumer_group TEXT    NOT NULL,
    message_id     TEXT    NOT NULL,
    handled_at     INTEGER NOT NULL DEFAULT ({now}),
    PRIMARY KEY (consumer_group, message_id)
) WITHOUT ROWID;
-- Finds the oldest rows. Time only grows, so entries are added at its end.
CREATE INDEX {p}inbox_handled ON {p}inbox (handled_at);

-- consumer_group is empty for messages that the relay could not publish; outbox_id is then their id in the outbox.
CREATE TABLE {p}dead_letter (
    id                 INTEGER PRIMARY KEY AUTOINCREMENT,
    consumer_group     TEXT    NOT NULL DEFAULT '',
    message_id         TEXT    NOT NULL,
    topic              TEXT    NOT NULL,
    key                TEXT,
    sequence           INTEGER,
    kind               TEXT    NOT NULL,
    mode               TEXT    NOT NULL,
    headers            TEXT    NOT NULL,
    created_at         INTEGER NOT NULL,
    outbox_id          INTEGER,
    status             TEXT    NOT NULL CHECK (status IN ('parked', 'delayed', 'waiting', 'redriving', 'done')),
    -- 0 for a message that the relay skipped: its key does not wait for it.
    holds_key          INTEGER NOT NULL DEFAULT 1,
    error_code         TEXT    NOT NULL,
    error              TEXT    NOT NULL,
    attempts           INTEGER NOT NULL,
    redrives           INTEGER NOT NULL DEFAULT 0,
    original_partition INTEGER,
    original_offset    INTEGER,
    first_seen         INTEGER NOT NULL DEFAULT ({now}),
    last_attempt       INTEGER NOT NULL DEFAULT ({now}),
    done_at            INTEGER,
    -- The time from which a delayed message is retried automatically.
    retry_at           INTEGER,
    payload            BLOB    NOT NULL
);
-- A message is one dead letter of its group, however often it is delivered. Its identity includes topic and key because
-- a key is held for each of them: a dead letter for two keys would release only one.
CREATE UNIQUE INDEX {p}dead_letter_of_group ON {p}dead_letter (consumer_group, message_id, topic, coalesce(key, ''))
    WHERE consumer_group <> '';
-- For the relay a dead letter is a row of the outbox: one id may have been enqueued twice, and each row is counted.
CREATE UNIQUE INDEX {p}dead_letter_of_relay ON {p}dead_letter (outbox_id) WHERE consumer_group = '';
CREATE INDEX {p}dead_letter_open ON {p}dead_letter (consumer_group, topic, key, id) WHERE status <> 'done';
CREATE INDEX {p}dead_letter_due ON {p}dead_letter (consumer_group, id) WHERE status IN ('redriving', 'waiting');
CREATE INDEX {p}dead_letter_delayed ON {p}dead_letter (consumer_group, retry_at) WHERE status = 'delayed';
CREATE INDEX {p}dead_letter_message ON {p}dead_letter (message_id);
CREATE INDEX {p}dead_letter_done ON {p}dead_letter (done_at) WHERE status = 'done';

-- A key that waits behind a dead letter.
CREATE TABLE {p}held_key (
    consumer_group TEXT    NOT NULL,
    topic          TEXT    NOT NULL,
    key            TEXT    NOT NULL,
    since          INTEGER NOT NULL DEFAULT ({now}),
    PRIMARY KEY (consumer_group, topic, key)
) WITHOUT ROWID;

CREATE TABLE {p}audit (
    id             INTEGER PRIMARY KEY AUTOINCREMENT,
    at             INTEGER NOT NULL DEFAULT ({now}),
    actor          TEXT    NOT NULL,
    action         TEXT    NOT NULL,
    -- Null for an action on a message that is not a dead letter.
    dead_letter_id INTEGER,
    message_id     TEXT    NOT NULL,
    detail         TEXT    NOT NULL DEFAULT ''
);

-- For operators, the state of every message of the outbox: `SELECT * FROM {p}outbox_status WHERE state = 'retrying'`.
CREATE VIEW {p}outbox_status AS
SELECT id, message_id, topic, key, state, attempts,
    strftime('%Y-%m-%dT%H:%M:%fZ', next_attempt_at / 1000.0, 'unixepoch') AS next_attempt_at,
    last_error,
    strftime('%Y-%m-%dT%H:%M:%fZ', created_at / 1000.0, 'unixepoch') AS created_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', sent_at / 1000.0, 'unixepoch') AS sent_at,
    payload_bytes
FROM (
    {outbox_open_1} UNION ALL
    {outbox_parked} UNION ALL
    {outbox_sent});
