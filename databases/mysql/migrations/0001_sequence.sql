-- The sequence that a group has reached per entity, for consumers that check sequences. Null while the entity's first
-- message is being handled.
CREATE TABLE {new} {p}sequence (
    consumer_group VARCHAR(250) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    topic          VARCHAR(250) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    `key`          VARCHAR(513) NOT NULL,
    reached        BIGINT,
    since          DATETIME(6)  NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    -- No index on `since`: every message would write to it, for one read per hour.
    PRIMARY KEY (consumer_group, topic, `key`)
) {table};
