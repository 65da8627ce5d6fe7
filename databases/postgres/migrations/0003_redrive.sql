-- Redrive jobs. Times are milliseconds since 1970. The counts are those of the items, changed in the same transaction;
-- what they lack to `matched` remains. `epoch` is that of the runner which changed the job last: an older one changes
-- nothing more.
CREATE TABLE {p}redrive (
    id          text   PRIMARY KEY,
    state       text   NOT NULL CHECK (state IN ('running', 'paused', 'stopped', 'finished')),
    actor       text   NOT NULL,
    reason      text   NOT NULL,
    selection   text   NOT NULL,
    lane        text   NOT NULL,
    rate_per_s  bigint,
    concurrency bigint NOT NULL,
    ramp        bigint NOT NULL,
    matched     bigint NOT NULL DEFAULT 0,
    succeeded   bigint NOT NULL DEFAULT 0,
    failed      bigint NOT NULL DEFAULT 0,
    skipped     bigint NOT NULL DEFAULT 0,
    missing     bigint NOT NULL DEFAULT 0,
    in_flight   bigint NOT NULL DEFAULT 0,
    epoch       bigint NOT NULL DEFAULT 0,
    stop_reason text,
    created_at  bigint NOT NULL,
    updated_at  bigint NOT NULL
);
CREATE INDEX {b}redrive_active ON {p}redrive (state, in_flight);

-- The letters of a job, as they were selected. A settled item never changes again.
CREATE TABLE {p}redrive_item (
    redrive_id     text   NOT NULL,
    dead_letter_id bigint NOT NULL,
    state          text   NOT NULL
        CHECK (state IN ('waiting', 'dispatched', 'succeeded', 'failed', 'skipped', 'missing')),
    -- Why it was skipped, or the fingerprint of the error that it failed with.
    detail         text,
    -- The letter's error when it was selected.
    fingerprint    text,
    PRIMARY KEY (redrive_id, dead_letter_id)
);
CREATE INDEX {b}redrive_item_state ON {p}redrive_item (redrive_id, state, dead_letter_id);
