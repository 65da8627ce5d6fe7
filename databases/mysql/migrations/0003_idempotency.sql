-- Records of work that is done once, with its stored answer; also one-time tokens and time windows. The id is a hash of
-- kind, scope, business type and key.
CREATE TABLE {new} {p}idempotency (
    id            BINARY(32)   NOT NULL PRIMARY KEY,
    kind          VARCHAR(16)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    scope         VARCHAR(250) NOT NULL,
    business_type VARCHAR(250) NOT NULL,
    `key`         VARCHAR(255) NOT NULL,
    state         VARCHAR(16)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    fingerprint   BINARY(32),
    -- The fencing number of the last attempt. It begins with the time, so that a removed and repeated key gets a higher one.
    epoch         BIGINT       NOT NULL,
    -- Whether an attempt with an unknown outcome waits for a person.
    parks         BOOLEAN      NOT NULL DEFAULT FALSE,
    claimed_at    DATETIME(3)  NOT NULL DEFAULT (UTC_TIMESTAMP(3)),
    updated_at    DATETIME(6)  NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    -- Of an attempt's lease, or of an issued token.
    expires_at    DATETIME(6)  NOT NULL,
    ttl_ms        BIGINT       NOT NULL,
    -- No renewal extends the lease beyond this.
    ceiling_at    DATETIME(6)  NOT NULL,
    status        INT,
    headers       LONGTEXT,
    body_state    VARCHAR(16)  CHARACTER SET ascii COLLATE ascii_bin,
    reason        TEXT,
    body          LONGBLOB,
    CONSTRAINT {b}idempotency_kind_is_valid CHECK (kind IN ('record', 'token', 'window')),
    CONSTRAINT {b}idempotency_state_is_valid
        CHECK (state IN ('issued', 'in_flight', 'completed', 'released', 'uncertain')),
    KEY {b}idempotency_at (claimed_at, id),
    KEY {b}idempotency_state (state, kind, claimed_at),
    KEY {b}idempotency_kept (body_state, claimed_at)
) {table};
