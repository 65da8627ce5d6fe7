-- Records of work that is done once, with its stored answer; also one-time tokens and time windows. The id is a hash of
-- kind, scope, business type and key.
CREATE TABLE {p}idempotency (
    id            BLOB    NOT NULL PRIMARY KEY CHECK (length(id) = 32),
    kind          TEXT    NOT NULL CHECK (kind IN ('record', 'token', 'window')),
    scope         TEXT    NOT NULL,
    business_type TEXT    NOT NULL,
    key           TEXT    NOT NULL,
    state         TEXT    NOT NULL CHECK (state IN ('issued', 'in_flight', 'completed', 'released', 'uncertain')),
    fingerprint   BLOB,
    -- The fencing number of the last attempt. It begins with the time, so that a removed and repeated key gets a higher one.
    epoch         INTEGER NOT NULL,
    -- Whether an attempt with an unknown outcome waits for a person.
    parks         INTEGER NOT NULL DEFAULT 0,
    claimed_at    INTEGER NOT NULL DEFAULT ({now}),
    updated_at    INTEGER NOT NULL DEFAULT ({now}),
    -- Of an attempt's lease, or of an issued token.
    expires_at    INTEGER NOT NULL,
    ttl_ms        INTEGER NOT NULL,
    -- No renewal extends the lease beyond this.
    ceiling_at    INTEGER NOT NULL,
    status        INTEGER,
    headers       TEXT,
    body_state    TEXT    CHECK (body_state IN ('kept', 'not_kept', 'expired')),
    reason        TEXT,
    body          BLOB
);
CREATE INDEX {p}idempotency_at ON {p}idempotency (claimed_at, id);
CREATE INDEX {p}idempotency_kept ON {p}idempotency (claimed_at) WHERE body_state = 'kept';
CREATE INDEX {p}idempotency_open ON {p}idempotency (claimed_at)
    WHERE state IN ('in_flight', 'uncertain') AND kind <> 'window';
