-- Keys that redrive jobs leave alone, and keys that are exempt from the automatic block. Times are milliseconds since 1970.
CREATE TABLE {p}dead_letter_key (
    topic    TEXT    NOT NULL,
    key      TEXT    NOT NULL,
    rule     TEXT    NOT NULL CHECK (rule IN ('blocked', 'allowed')),
    until_ms INTEGER,
    reason   TEXT    NOT NULL,
    actor    TEXT    NOT NULL,
    since_ms INTEGER NOT NULL,
    PRIMARY KEY (topic, key)
) WITHOUT ROWID;
