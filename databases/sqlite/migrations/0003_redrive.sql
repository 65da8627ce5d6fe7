-- Redrive jobs. Times are milliseconds since 1970. The counts are those of the items, changed in the same transaction;
-- what they lack to `matched` remains. `epoch` is that of the runner which changed the job last: an older one changes
-- nothing more.
CREATE TABLE {p}redrive (
    id          TEXT   PRIMARY KEY,
    state       TEXT   NOT NULL CHECK (state IN ('running', 'paused', 'stopped', 'finished')),
    actor       TEXT   NOT NULL,
    reason      TEXT   NOT NULL,
    selection   TEXT   NOT NULL,
    lane        TEXT   NOT NULL,
    rate_per_s  INTEGER,
    concurrency INTEGER NOT NULL,
    ramp        INTEGER NOT NULL,
    matched     INTEGER NOT NULL DEFAULT 0,
    succeeded   INTEGER NOT NULL DEFAULT 0,
    failed      INTEGER NOT NULL DEFAULT 0,
    skipped     INTEGER NOT NULL DEFAULT 0,
    missing     INTEGER NOT NULL DEFAULT 0,
    in_flight   INTEGER NOT NULL DEFAULT 0,
    epoch       INTEGER NOT NULL DEFAULT 0,
    stop_reason TEXT,
    created_at  INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL
);
CREATE INDEX {p}redrive_active ON {p}redrive (state, in_flight);

-- The letters of a job, as they were selected. A settled item never changes again.
CREATE TABLE {p}redrive_item (
    redrive_id     TEXT   NOT NULL,
    dead_letter_id INTEGER NOT NULL,
    state          TEXT   NOT NULL
        CHECK (state IN ('waiting', 'dispatched', 'succeeded', 'failed', 'skipped', 'missing')),
    -- Why it was skipped, or the fingerprint of the error that it failed with.
    detail         TEXT,
    -- The letter's error when it was selected.
    fingerprint    TEXT,
    PRIMARY KEY (redrive_id, dead_letter_id)
);
CREATE INDEX {p}redrive_item_state ON {p}redrive_item (redrive_id, state, dead_letter_id);
