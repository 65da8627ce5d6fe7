-- Text payloads: exactly one of payload and payload_text is set. SQLite cannot make a column nullable, so the outbox is
-- created again. The rows keep their ids, and new ids continue after them.
DROP VIEW {p}outbox_status;
DROP INDEX {p}outbox_retrying;
ALTER TABLE {p}outbox RENAME TO {p}outbox_1;

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
    payload         BLOB,
    payload_text    TEXT,
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
    CONSTRAINT {p}outbox_created_at_is_in_milliseconds CHECK (typeof(created_at) = 'integer'),
    CONSTRAINT {p}outbox_has_payload_or_payload_text CHECK ((payload IS NULL) <> (payload_text IS NULL)),
    CONSTRAINT {p}outbox_payload_text_is_text CHECK (typeof(payload_text) IN ('null', 'text'))
);
INSERT INTO {p}outbox (id, message_id, topic, key, sequence, kind, mode, headers, created_at, attempts, next_attempt_at,
    last_error, payload)
    SELECT id, message_id, topic, key, sequence, kind, mode, headers, created_at, attempts, next_attempt_at,
    last_error, payload
    FROM {p}outbox_1 ORDER BY id;
DELETE FROM sqlite_sequence WHERE name = '{p}outbox';
INSERT INTO sqlite_sequence (name, seq) SELECT '{p}outbox', seq FROM sqlite_sequence WHERE name = '{p}outbox_1';
DROP TABLE {p}outbox_1;

-- Contains only failed rows, so it costs writers nothing.
CREATE INDEX {p}outbox_retrying ON {p}outbox (topic, key) WHERE next_attempt_at IS NOT NULL;

-- For operators, the state of every message of the outbox: `SELECT * FROM {p}outbox_status WHERE state = 'retrying'`.
CREATE VIEW {p}outbox_status AS
SELECT id, message_id, topic, key, state, attempts,
    strftime('%Y-%m-%dT%H:%M:%fZ', next_attempt_at / 1000.0, 'unixepoch') AS next_attempt_at,
    last_error,
    strftime('%Y-%m-%dT%H:%M:%fZ', created_at / 1000.0, 'unixepoch') AS created_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', sent_at / 1000.0, 'unixepoch') AS sent_at,
    payload_bytes
FROM (
    {outbox_open} UNION ALL
    {outbox_parked} UNION ALL
    {outbox_sent});
