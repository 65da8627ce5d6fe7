-- The sequence that a group has reached per entity, for consumers that check sequences.
CREATE TABLE {p}sequence (
    consumer_group TEXT    NOT NULL,
    topic          TEXT    NOT NULL,
    key            TEXT    NOT NULL,
    reached        INTEGER,
    since          INTEGER NOT NULL DEFAULT ({now}),
    PRIMARY KEY (consumer_group, topic, key)
) WITHOUT ROWID;
-- No index on `since`: every message would write to it, for one read per hour.
