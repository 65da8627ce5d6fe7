-- {p} is the prefix. Times are milliseconds since 1970 in UTC; message ids are text, so that people can read them.

-- One row is one message that waits to be published. `INSERT INTO … (topic, key, payload)` is enough; the rest has defaults.
-- The default id is a UUIDv7, made only of functions that every SQLite has.
CREATE TABLE {p}outbox (
    id              INTEGER PRIMARY KEY AUTOINCREMENT,
    message_id      TEXT    NOT NULL DEFAULT (
        substr(printf('%012x', CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)), 1, 8) || '-' ||
        substr(printf('%012x', CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)), 9, 4) || '-7' ||
        substr(lower(hex(randomblob(2))), 2) || '-' ||
        substr('89ab', 1 + (abs(random()) % 4), 1) || substr(lower(hex(randomblob(2))), 2) || '-' ||
        lower(hex(randomblob(6)))),
    topic           TEXT    NOT NULL,
    key             TEXT,
    sequence        INTEGER,
    kind            TEXT    NOT NULL DEFAULT 'message',
    mode            TEXT    NOT NULL DEFAULT 'effectively-once',
    headers         TEXT    NOT NULL DEFAULT '{}',
    payload         BLOB    NOT NULL,
    created_at      INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)),
    attempts        INTEGER NOT NULL DEFAULT 0,
    next_attempt_at INTEGER,
    last_error      TEXT,
    CONSTRAINT {p}outbox_topic_is_valid CHECK (
        length(topic) BETWEEN 1 AND 249 AND topic NOT GLOB '*[^A-Za-z0-9._-]*' AND topic NOT IN ('.', '..')),
    CONSTRAINT {p}outbox_key_is_valid  CHECK (length(CAST(key AS BLOB)) BETWEEN 1 AND 512),
    CONSTRAINT {p}outbox_mode_is_valid CHECK (mode IN ('at-most-once', 'at-least-once', 'effectively-once'))
);

CREATE INDEX {p}outbox_retrying ON {p}outbox (topic, key) WHERE next_attempt_at IS NOT NULL;

CREATE TABLE {p}outbox_published (
    shard INTEGER PRIMARY KEY,
    count INTEGER NOT NULL DEFAULT 0
);
INSERT INTO {p}outbox_published (shard) VALUES (0);

-- Free when holder is null. The epoch grows each time a lease changes hands, and every transition compares it.
CREATE TABLE {p}lease (
    name       TEXT    PRIMARY KEY,
    holder     TEXT,
    epoch      INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
) WITHOUT ROWID;

-- An id stands here from the moment its group took charge of it: its effect happened, or it is a dead letter.
CREATE TABLE {p}inbox (
    consumer_group TEXT    NOT NULL,
    message_id     TEXT    NOT NULL,
    handled_at     INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)),
    PRIMARY KEY (consumer_group, message_id)
) WITHOUT ROWID;

-- consumer_group is empty for what the relay could not publish; outbox_id is then its place in the outbox.
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
    payload            BLOB    NOT NULL,
    created_at         INTEGER NOT NULL,
    outbox_id          INTEGER,
    status             TEXT    NOT NULL CHECK (status IN ('parked', 'waiting', 'redriving', 'done')),
    error_code         TEXT    NOT NULL,
    error              TEXT    NOT NULL,
    attempts           INTEGER NOT NULL,
    redrives           INTEGER NOT NULL DEFAULT 0,
    original_partition INTEGER,
    original_offset    INTEGER,
    first_seen         INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)),
    last_attempt       INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)),
    UNIQUE (consumer_group, message_id)
);
CREATE INDEX {p}dead_letter_open ON {p}dead_letter (consumer_group, topic, key, id) WHERE status <> 'done';
CREATE INDEX {p}dead_letter_message ON {p}dead_letter (message_id);

-- A key that waits behind a dead letter.
CREATE TABLE {p}held_key (
    consumer_group TEXT    NOT NULL,
    topic          TEXT    NOT NULL,
    key            TEXT    NOT NULL,
    since          INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)),
    PRIMARY KEY (consumer_group, topic, key)
) WITHOUT ROWID;

CREATE TABLE {p}audit (
    id             INTEGER PRIMARY KEY AUTOINCREMENT,
    at             INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)),
    actor          TEXT    NOT NULL,
    action         TEXT    NOT NULL,
    dead_letter_id INTEGER NOT NULL,
    message_id     TEXT    NOT NULL,
    detail         TEXT    NOT NULL DEFAULT ''
);
