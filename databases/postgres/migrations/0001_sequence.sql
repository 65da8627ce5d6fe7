-- How far a group has come with an entity, for consumers that check numbers; null while its first message is at work.
CREATE TABLE {p}sequence (
    consumer_group text        NOT NULL,
    topic          text        NOT NULL,
    key            text        NOT NULL,
    reached        bigint,
    since          timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (consumer_group, topic, key)
) WITH (fillfactor = 80);
-- No index on `since`: every message would write to it, for the sake of a look once an hour.
