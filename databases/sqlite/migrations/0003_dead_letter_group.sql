-- What people said about dead letters with one fingerprint. Times are milliseconds since 1970. A group without a row is
-- open. `resolved_at` is that of the last time: a letter that fails later makes the group regressed.
CREATE TABLE {p}dead_letter_group (
    fingerprint TEXT    NOT NULL PRIMARY KEY,
    state       TEXT    NOT NULL DEFAULT 'open'
        CHECK (state IN ('open', 'acknowledged', 'muted', 'resolved', 'regressed')),
    muted_until INTEGER,
    resolved_at INTEGER,
    note        TEXT    NOT NULL DEFAULT ''
) WITHOUT ROWID;
