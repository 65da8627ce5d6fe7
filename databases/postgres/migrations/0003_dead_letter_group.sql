-- What people said about dead letters with one fingerprint. Times are milliseconds since 1970. A group without a row is
-- open. `resolved_at` is that of the last time: a letter that fails later makes the group regressed.
CREATE TABLE {p}dead_letter_group (
    fingerprint text   NOT NULL PRIMARY KEY,
    state       text   NOT NULL DEFAULT 'open'
        CHECK (state IN ('open', 'acknowledged', 'muted', 'resolved', 'regressed')),
    muted_until bigint,
    resolved_at bigint,
    note        text   NOT NULL DEFAULT ''
);
