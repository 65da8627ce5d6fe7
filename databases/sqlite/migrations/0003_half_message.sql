-- Messages that wait for the verdict on a local transaction elsewhere, and verdicts that arrived before their message:
-- those have no fingerprint yet. A committed one was enqueued in the transaction that made it so.
CREATE TABLE {p}half_message (
    id              TEXT    NOT NULL PRIMARY KEY,
    state           TEXT    NOT NULL CHECK (state IN ('prepared', 'committed', 'rolled_back', 'parked')),
    fingerprint     BLOB,
    topic           TEXT,
    key             TEXT,
    sequence        INTEGER,
    kind            TEXT,
    mode            TEXT,
    headers         TEXT,
    created_at      INTEGER,
    business_type   TEXT    NOT NULL DEFAULT '',
    business_id     TEXT    NOT NULL DEFAULT '',
    check_back      TEXT    NOT NULL DEFAULT '{}',
    check_after_ms  INTEGER NOT NULL DEFAULT 0,
    prepared_at     INTEGER NOT NULL DEFAULT ({now}),
    checks          INTEGER NOT NULL DEFAULT 0,
    -- Only of a prepared one: when its next check-back is due, or when a claimed one is due again.
    next_check_at   INTEGER,
    last_answer     TEXT,
    decided_at      INTEGER,
    decided_by      TEXT,
    contradicted_at INTEGER,
    contradicted_by TEXT,
    acknowledged_at INTEGER,
    acknowledged_by TEXT,
    payload         BLOB
);
CREATE INDEX {p}half_message_due ON {p}half_message (next_check_at) WHERE state = 'prepared';
CREATE INDEX {p}half_message_parked ON {p}half_message (prepared_at) WHERE state = 'parked';
CREATE INDEX {p}half_message_decided ON {p}half_message (decided_at) WHERE decided_at IS NOT NULL;
CREATE INDEX {p}half_message_contradicted ON {p}half_message (contradicted_at) WHERE contradicted_at IS NOT NULL;
CREATE INDEX {p}half_message_early ON {p}half_message (decided_at) WHERE fingerprint IS NULL;

-- For operators: `SELECT * FROM {p}half_message_status WHERE state = 'parked'`.
CREATE VIEW {p}half_message_status AS
SELECT id AS message_id, state, topic, key, kind, business_type, business_id, check_back,
    strftime('%Y-%m-%dT%H:%M:%fZ', prepared_at / 1000.0, 'unixepoch') AS prepared_at,
    checks,
    strftime('%Y-%m-%dT%H:%M:%fZ', next_check_at / 1000.0, 'unixepoch') AS next_check_at,
    last_answer,
    strftime('%Y-%m-%dT%H:%M:%fZ', decided_at / 1000.0, 'unixepoch') AS decided_at,
    decided_by,
    strftime('%Y-%m-%dT%H:%M:%fZ', contradicted_at / 1000.0, 'unixepoch') AS contradicted_at,
    contradicted_by,
    strftime('%Y-%m-%dT%H:%M:%fZ', acknowledged_at / 1000.0, 'unixepoch') AS acknowledged_at,
    acknowledged_by,
    length(payload) AS payload_bytes
FROM {p}half_message;
