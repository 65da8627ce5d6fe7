-- Requests to run the handler of a dead letter in a transaction that is rolled back, and their results. Times are
-- milliseconds since 1970. A claim expires, so that a consumer that crashed does not keep a letter; `claim` fences its
-- late result.
CREATE TABLE {p}rehearsal (
    id             text   NOT NULL,
    dead_letter_id bigint NOT NULL,
    consumer_group text   NOT NULL,
    requested_at   bigint NOT NULL,
    claim          bigint NOT NULL DEFAULT 0,
    claimed_until  bigint NOT NULL DEFAULT 0,
    outcome        text CHECK (outcome IN ('succeeds', 'duplicate', 'stale', 'blocked', 'fails')),
    error_code     text,
    error          text,
    fingerprint    text,
    PRIMARY KEY (id, dead_letter_id)
);
CREATE INDEX {b}rehearsal_open ON {p}rehearsal (consumer_group, requested_at) WHERE outcome IS NULL;
