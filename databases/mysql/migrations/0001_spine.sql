-- {p} is the prefix with its database, {b} the prefix without it. {new} is empty, or IF NOT EXISTS when an interrupted
-- migration is resumed: DDL commits implicitly in MySQL. Requires MariaDB 10.6 or MySQL 8.0.17, and InnoDB.
--
-- Times are in UTC in every session's time zone. Text is compared byte by byte and with trailing spaces: the collation
-- for this has a different name on each server, in a comment that only that server reads. A column is one character
-- longer than its check allows, so that in a session that is not strict a longer text is refused, not cut.

-- One row is one message to be published. `INSERT INTO … (topic, `key`, payload_text)` is enough (migration 2 adds that
-- column); the other columns have defaults. The default id is a UUIDv7: 48 bits of milliseconds, then random bits.
CREATE TABLE {new} {p}outbox (
    id              BIGINT       NOT NULL AUTO_INCREMENT PRIMARY KEY,
    message_id      BINARY(16)   NOT NULL DEFAULT (UNHEX(CONCAT(
        LPAD(HEX(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000), 12, '0'),
        '7', SUBSTR(SHA2(CONCAT(UUID(), RAND()), 256), 1, 3),
        ELT(1 + FLOOR(RAND() * 4), '8', '9', 'A', 'B'), SUBSTR(SHA2(CONCAT(UUID(), RAND()), 256), 1, 15)))),
    topic           VARCHAR(250) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    `key`           VARCHAR(513),
    sequence        BIGINT,
    kind            VARCHAR(256) NOT NULL DEFAULT 'message',
    mode            VARCHAR(17)  NOT NULL DEFAULT 'effectively-once',
    headers         LONGTEXT     NOT NULL DEFAULT ('{}'),
    created_at      DATETIME(6)  NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    attempts        INT          NOT NULL DEFAULT 0,
    next_attempt_at DATETIME(6),
    last_error      TEXT,
    payload         LONGBLOB     NOT NULL,
    -- The slice of the key space that one relay leases. Messages without a key have no order and are distributed.
    shard           TINYINT      GENERATED ALWAYS AS (CRC32(COALESCE(`key`, message_id)) & 15) STORED,
    CONSTRAINT {b}outbox_topic_is_valid CHECK (
        topic NOT REGEXP '[^A-Za-z0-9._-]' AND OCTET_LENGTH(topic) BETWEEN 1 AND 249 AND topic NOT IN ('.', '..')),
    CONSTRAINT {b}outbox_key_is_valid CHECK (OCTET_LENGTH(`key`) BETWEEN 1 AND 512),
    CONSTRAINT {b}outbox_kind_is_valid CHECK (OCTET_LENGTH(kind) BETWEEN 1 AND 255),
    CONSTRAINT {b}outbox_mode_is_valid CHECK (mode IN ('at-most-once', 'at-least-once', 'effectively-once')),
    CONSTRAINT {b}outbox_headers_are_json CHECK (JSON_VALID(headers)),
    -- Every batch of the relay looks up the messages that block their keys.
    KEY {b}outbox_retrying (next_attempt_at)
) {table};

CREATE TABLE {new} {p}outbox_published (
    shard TINYINT NOT NULL PRIMARY KEY,
    count BIGINT  NOT NULL DEFAULT 0
) {table};
INSERT IGNORE INTO {p}outbox_published (shard)
    VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9), (10), (11), (12), (13), (14), (15);

-- Updated to make sure that rows just read are on disk: the server shows a commit to others before it is flushed, and
-- the next acknowledged commit proves everything before it. Any row will do.
CREATE TABLE {new} {p}flush (
    slot  TINYINT NOT NULL PRIMARY KEY,
    times BIGINT  NOT NULL
) {table};

-- Sent messages, kept for a while if `keep_sent` is set. A row is as it was in the outbox.
CREATE TABLE {new} {p}outbox_sent (
    id         BIGINT       NOT NULL PRIMARY KEY,
    message_id BINARY(16)   NOT NULL,
    topic      VARCHAR(250) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    `key`      VARCHAR(513),
    sequence   BIGINT,
    kind       VARCHAR(256) NOT NULL,
    mode       VARCHAR(17)  NOT NULL,
    headers    LONGTEXT     NOT NULL,
    created_at DATETIME(6)  NOT NULL,
    attempts   INT          NOT NULL,
    last_error TEXT,
    payload    LONGBLOB     NOT NULL,
    sent_at    DATETIME(6)  NOT NULL,
    KEY {b}outbox_sent_at (sent_at),
    KEY {b}outbox_sent_message (message_id)
) {table};

-- A lease is free if its holder is null. Its epoch grows with each new holder, and every transition compares it.
CREATE TABLE {new} {p}lease (
    name       VARCHAR(255) NOT NULL PRIMARY KEY,
    holder     VARCHAR(255),
    epoch      BIGINT       NOT NULL,
    expires_at DATETIME(6)  NOT NULL
) {table};

-- Contains an id once its group is responsible for it: its effect happened, or it is a dead letter.
CREATE TABLE {new} {p}inbox (
    consumer_group VARCHAR(250) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    message_id     BINARY(16)   NOT NULL,
    handled_at     DATETIME(6)  NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    PRIMARY KEY (consumer_group, message_id),
    KEY {b}inbox_handled (handled_at)
) {table};

-- consumer_group is empty for messages that the relay could not publish; outbox_id is then their id in the outbox.
CREATE TABLE {new} {p}dead_letter (
    id                 BIGINT       NOT NULL AUTO_INCREMENT PRIMARY KEY,
    consumer_group     VARCHAR(250) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '',
    message_id         BINARY(16)   NOT NULL,
    topic              VARCHAR(250) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    `key`              VARCHAR(513),
    sequence           BIGINT,
    kind               VARCHAR(256) NOT NULL,
    mode               VARCHAR(17)  NOT NULL,
    headers            LONGTEXT     NOT NULL,
    created_at         DATETIME(6)  NOT NULL,
    outbox_id          BIGINT,
    status             VARCHAR(10)  NOT NULL,
    error_code         VARCHAR(64)  NOT NULL,
    error              TEXT         NOT NULL,
    attempts           INT          NOT NULL,
    redrives           INT          NOT NULL DEFAULT 0,
    original_partition BIGINT,
    original_offset    BIGINT,
    first_seen         DATETIME(6)  NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    last_attempt       DATETIME(6)  NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    done_at            DATETIME(6),
    -- Whether its key waits for it. False for a message that the relay skipped.
    holds_key          BOOLEAN      NOT NULL DEFAULT TRUE,
    payload            LONGBLOB     NOT NULL,
    -- Its id while it is the next of its key to be handled, otherwise null: a consumer that asks for work must not read
    -- a hundred thousand messages that wait behind one parked dead letter.
    due                BIGINT,
    -- The time from which a delayed message is retried automatically.
    retry_at           DATETIME(6),
    is_open            TINYINT      GENERATED ALWAYS AS (IF(status = 'done', NULL, 1)) STORED,
    one_group          VARCHAR(250) CHARACTER SET ascii COLLATE ascii_bin
                                    GENERATED ALWAYS AS (NULLIF(consumer_group, '')) STORED,
    one_key            VARCHAR(513) GENERATED ALWAYS AS (COALESCE(`key`, '')) STORED,
    CONSTRAINT {b}dead_letter_status_is_valid CHECK (status IN ('parked', 'delayed', 'waiting', 'redriving', 'done')),
    -- A message is one dead letter of its group, however often it is delivered. Its identity includes topic and key
    -- because a key is held for each of them: a dead letter for two keys would release only one.
    UNIQUE KEY {b}dead_letter_of_group (one_group, message_id, topic, one_key),
    -- For the relay a dead letter is a row of the outbox: one id may have been enqueued twice, and each row is counted.
    UNIQUE KEY {b}dead_letter_of_relay (outbox_id),
    KEY {b}dead_letter_open (is_open, consumer_group, topic, `key`, id),
    KEY {b}dead_letter_due (consumer_group, due),
    KEY {b}dead_letter_delayed (consumer_group, retry_at),
    KEY {b}dead_letter_done (done_at),
    KEY {b}dead_letter_message (message_id)
) {table};

-- A key that waits behind a dead letter. The row exists to be locked: live traffic and redrives synchronise on it.
-- Adding a message behind it locks it too, so that it is not deleted in between.
CREATE TABLE {new} {p}held_key (
    consumer_group VARCHAR(250) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    topic          VARCHAR(250) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    `key`          VARCHAR(513) NOT NULL,
    since          DATETIME(6)  NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    PRIMARY KEY (consumer_group, topic, `key`)
) {table};

-- The audit trail: actions on dead letters, and operators' actions on rows of the outbox.
CREATE TABLE {new} {p}audit (
    id             BIGINT       NOT NULL AUTO_INCREMENT PRIMARY KEY,
    at             DATETIME(6)  NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    actor          VARCHAR(300) NOT NULL,
    action         VARCHAR(64)  NOT NULL,
    dead_letter_id BIGINT,
    outbox_id      BIGINT,
    message_id     BINARY(16)   NOT NULL,
    detail         TEXT         NOT NULL DEFAULT ('')
) {table};

-- For operators: every message that is unsent, parked, or kept after it was sent, in one of five states.
CREATE OR REPLACE SQL SECURITY INVOKER VIEW {p}outbox_status AS
    SELECT id, {uuid:o.message_id} AS message_id, topic, `key`,
           CASE WHEN attempts > 0 THEN 'retrying'
                WHEN {free} THEN 'pending' ELSE 'waiting' END AS state,
           attempts, next_attempt_at, last_error, created_at, CAST(NULL AS DATETIME(6)) AS sent_at,
           OCTET_LENGTH(payload) AS payload_bytes
    FROM {p}outbox o {blocked}
    UNION ALL
    SELECT outbox_id, {uuid:d.message_id}, topic, `key`, 'parked', attempts, NULL,
           CONCAT(error_code, ': ', error), created_at, NULL, OCTET_LENGTH(payload)
    FROM {p}dead_letter d WHERE is_open = 1 AND consumer_group = ''
    UNION ALL
    SELECT id, {uuid:s.message_id}, topic, `key`, 'sent', attempts, NULL, last_error, created_at, sent_at,
           OCTET_LENGTH(payload)
    FROM {p}outbox_sent s;
