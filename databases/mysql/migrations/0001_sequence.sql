-- How far a group has come with an entity, for consumers that check numbers; null while its first message is at work.
CREATE TABLE {new} {p}sequence (
    consumer_group VARCHAR(250) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    topic          VARCHAR(250) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    `key`          VARCHAR(513) NOT NULL,
    reached        BIGINT,
    since          DATETIME(6)  NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    -- No index on `since`: every message would write to it, for the sake of a look once an hour.
    PRIMARY KEY (consumer_group, topic, `key`)
) {table};
