-- Messages that wait for the verdict on a local transaction elsewhere, and verdicts that arrived before their message:
-- those have no message yet. A committed one was enqueued in the transaction that made it so.
CREATE TABLE {new} {p}half_message (
    id              BINARY(16)   NOT NULL PRIMARY KEY,
    state           VARCHAR(16)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    has_message     BOOLEAN      NOT NULL,
    fingerprint     BINARY(32),
    topic           VARCHAR(250) CHARACTER SET ascii COLLATE ascii_bin,
    `key`           VARCHAR(513),
    sequence        BIGINT,
    kind            VARCHAR(256),
    mode            VARCHAR(17),
    headers         LONGTEXT,
    created_at      DATETIME(6),
    business_type   VARCHAR(250) NOT NULL DEFAULT '',
    business_id     VARCHAR(250) NOT NULL DEFAULT '',
    check_back      TEXT         NOT NULL DEFAULT ('{}'),
    check_after_ms  BIGINT       NOT NULL DEFAULT 0,
    prepared_at     DATETIME(3)  NOT NULL DEFAULT (UTC_TIMESTAMP(3)),
    checks          INT          NOT NULL DEFAULT 0,
    -- Only of a prepared one: when its next check-back is due, or when a claimed one is due again.
    next_check_at   DATETIME(6),
    last_answer     TEXT,
    decided_at      DATETIME(6),
    decided_by      VARCHAR(300),
    contradicted_at DATETIME(6),
    contradicted_by VARCHAR(300),
    acknowledged_at DATETIME(6),
    acknowledged_by VARCHAR(300),
    payload         LONGBLOB,
    CONSTRAINT {b}half_message_state_is_valid CHECK (state IN ('prepared', 'committed', 'rolled_back', 'parked')),
    KEY {b}half_message_due (next_check_at),
    KEY {b}half_message_state (state, has_message, prepared_at),
    KEY {b}half_message_decided (decided_at),
    KEY {b}half_message_contradicted (contradicted_at)
) {table};

-- For operators: `SELECT * FROM {p}half_message_status WHERE state = 'parked'`.
CREATE OR REPLACE SQL SECURITY INVOKER VIEW {p}half_message_status AS
    SELECT {uuid:h.id} AS message_id, h.state, h.topic, h.`key`, h.kind, h.business_type, h.business_id, h.check_back,
           h.prepared_at, h.checks, h.next_check_at, h.last_answer, h.decided_at, h.decided_by, h.contradicted_at,
           h.contradicted_by, h.acknowledged_at, h.acknowledged_by, OCTET_LENGTH(h.payload) AS payload_bytes
    FROM {p}half_message h;
