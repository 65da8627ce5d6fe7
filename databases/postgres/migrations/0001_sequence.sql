-- The sequence that a group has reached per entity, for consumers that check sequences. Null while the entity's first
-- message is being handled.
CREATE TABLE {p}sequence (
    consumer_group text        NOT NULL,
    topic          text        NOT NULL,
    key            text        NOT NULL,
    reached        bigint,
    since          timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (consumer_group, topic, key)
) WITH (fillfactor = 80);
-- No index on `since`: every message would write to it, for one read per hour.
