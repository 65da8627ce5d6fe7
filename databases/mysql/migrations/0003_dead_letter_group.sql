-- What people said about dead letters with one fingerprint. Times are milliseconds since 1970. A group without a row is
-- open. `resolved_at` is that of the last time: a letter that fails later makes the group regressed.
CREATE TABLE {new} {p}dead_letter_group (
    fingerprint VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
    state       VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT 'open',
    muted_until BIGINT,
    resolved_at BIGINT,
    note        TEXT NOT NULL DEFAULT (''),
    CONSTRAINT {b}dead_letter_group_state_is_valid
        CHECK (state IN ('open', 'acknowledged', 'muted', 'resolved', 'regressed'))
) {table};
