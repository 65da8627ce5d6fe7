-- Requests to run the handler of a dead letter in a transaction that is rolled back, and their results. Times are
-- milliseconds since 1970. A claim expires, so that a consumer that crashed does not keep a letter; `claim` fences its
-- late result.
CREATE TABLE {p}rehearsal (
    id             TEXT    NOT NULL,
    dead_letter_id INTEGER NOT NULL,
    consumer_group TEXT    NOT NULL,
    requested_at   INTEGER NOT NULL,
    claim          INTEGER NOT NULL DEFAULT 0,
    claimed_until  INTEGER NOT NULL DEFAULT 0,
    outcome        TEXT CHECK (outcome IN ('succeeds', 'duplicate', 'stale', 'blocked', 'fails')),
    error_code     TEXT,
    error          TEXT,
    fingerprint    TEXT,
    PRIMARY KEY (id, dead_letter_id)
);
CREATE INDEX {p}rehearsal_open ON {p}rehearsal (consumer_group, requested_at) WHERE outcome IS NULL;
