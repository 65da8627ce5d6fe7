-- How far a group has come with an entity, for consumers that check numbers.
CREATE TABLE {p}sequence (
    consumer_group TEXT    NOT NULL,
    topic          TEXT    NOT NULL,
    key            TEXT    NOT NULL,
    reached        INTEGER,
    since          INTEGER NOT NULL DEFAULT ({now}),
    PRIMARY KEY (consumer_group, topic, key)
) WITHOUT ROWID;
-- No index on `since`: every message would write to it, for the sake of a look once an hour.
