-- Records of work that is done once, with its stored answer; also one-time tokens and time windows. The id is a hash of
-- kind, scope, business type and key.
CREATE TABLE {p}idempotency (
    id            bytea       PRIMARY KEY CHECK (octet_length(id) = 32),
    kind          text        NOT NULL CHECK (kind IN ('record', 'token', 'window')),
    scope         text        NOT NULL,
    business_type text        NOT NULL,
    key           text        NOT NULL,
    state         text        NOT NULL CHECK (state IN ('issued', 'in_flight', 'completed', 'released', 'uncertain')),
    fingerprint   bytea,
    -- The fencing number of the last attempt. It begins with the time, so that a removed and repeated key gets a higher one.
    epoch         bigint      NOT NULL,
    -- Whether an attempt with an unknown outcome waits for a person.
    parks         boolean     NOT NULL DEFAULT false,
    claimed_at    timestamptz(3) NOT NULL DEFAULT clock_timestamp(),
    updated_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- Of an attempt's lease, or of an issued token.
    expires_at    timestamptz NOT NULL,
    ttl_ms        bigint      NOT NULL,
    -- No renewal extends the lease beyond this.
    ceiling_at    timestamptz NOT NULL,
    status        integer,
    headers       text,
    body_state    text        CHECK (body_state IN ('kept', 'not_kept', 'expired')),
    reason        text,
    body          bytea
);
CREATE INDEX {b}idempotency_at ON {p}idempotency (claimed_at, id);
CREATE INDEX {b}idempotency_kept ON {p}idempotency (claimed_at) WHERE body_state = 'kept';
CREATE INDEX {b}idempotency_open ON {p}idempotency (claimed_at)
    WHERE state IN ('in_flight', 'uncertain') AND kind <> 'window';
