-- Redrive jobs. Times are milliseconds since 1970. The counts are those of the items, changed in the same transaction;
-- what they lack to `matched` remains. `epoch` is that of the runner which changed the job last: an older one changes
-- nothing more.
CREATE TABLE {new} {p}redrive (
    id          CHAR(36)     CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
    state       VARCHAR(16)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    actor       VARCHAR(300) NOT NULL,
    reason      TEXT         NOT NULL,
    selection   LONGTEXT     NOT NULL,
    lane        VARCHAR(16)  NOT NULL,
    rate_per_s  BIGINT,
    concurrency BIGINT       NOT NULL,
    ramp        BIGINT       NOT NULL,
    matched     BIGINT       NOT NULL DEFAULT 0,
    succeeded   BIGINT       NOT NULL DEFAULT 0,
    failed      BIGINT       NOT NULL DEFAULT 0,
    skipped     BIGINT       NOT NULL DEFAULT 0,
    missing     BIGINT       NOT NULL DEFAULT 0,
    in_flight   BIGINT       NOT NULL DEFAULT 0,
    epoch       BIGINT       NOT NULL DEFAULT 0,
    stop_reason TEXT,
    created_at  BIGINT       NOT NULL,
    updated_at  BIGINT       NOT NULL,
    CONSTRAINT {b}redrive_state_is_valid CHECK (state IN ('running', 'paused', 'stopped', 'finished')),
    KEY {b}redrive_active (state, in_flight)
) {table};

-- The letters of a job, as they were selected. A settled item never changes again.
CREATE TABLE {new} {p}redrive_item (
    redrive_id     CHAR(36)    CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    dead_letter_id BIGINT      NOT NULL,
    state          VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    -- Why it was skipped, or the fingerprint of the error that it failed with.
    detail         VARCHAR(64),
    -- The letter's error when it was selected.
    fingerprint    VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin,
    PRIMARY KEY (redrive_id, dead_letter_id),
    CONSTRAINT {b}redrive_item_state_is_valid
        CHECK (state IN ('waiting', 'dispatched', 'succeeded', 'failed', 'skipped', 'missing')),
    KEY {b}redrive_item_state (redrive_id, state, dead_letter_id)
) {table};
