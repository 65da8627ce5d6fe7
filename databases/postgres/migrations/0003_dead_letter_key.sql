-- Keys that redrive jobs leave alone, and keys that are exempt from the automatic block. Times are milliseconds since 1970.
CREATE TABLE {p}dead_letter_key (
    topic    text   NOT NULL,
    key      text   NOT NULL,
    rule     text   NOT NULL CHECK (rule IN ('blocked', 'allowed')),
    until_ms bigint,
    reason   text   NOT NULL,
    actor    text   NOT NULL,
    since_ms bigint NOT NULL,
    PRIMARY KEY (topic, key)
);
