-- Requests to run the handler of a dead letter in a transaction that is rolled back, and their results. Times are
-- milliseconds since 1970. A claim expires, so that a consumer that crashed does not keep a letter; `claim` fences its
-- late result.
CREATE TABLE {new} {p}rehearsal (
    id             CHAR(36)     CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    dead_letter_id BIGINT       NOT NULL,
    consumer_group VARCHAR(250) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    requested_at   BIGINT       NOT NULL,
    claim          BIGINT       NOT NULL DEFAULT 0,
    claimed_until  BIGINT       NOT NULL DEFAULT 0,
    outcome        VARCHAR(16)  CHARACTER SET ascii COLLATE ascii_bin,
    error_code     VARCHAR(64),
    error          TEXT,
    fingerprint    VARCHAR(40)  CHARACTER SET ascii COLLATE ascii_bin,
    PRIMARY KEY (id, dead_letter_id),
    CONSTRAINT {b}rehearsal_outcome_is_valid
        CHECK (outcome IN ('succeeds', 'duplicate', 'stale', 'blocked', 'fails')),
    KEY {b}rehearsal_open (consumer_group, outcome, requested_at)
) {table};
