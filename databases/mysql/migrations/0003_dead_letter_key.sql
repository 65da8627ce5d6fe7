-- Keys that redrive jobs leave alone, and keys that are exempt from the automatic block. Times are milliseconds since 1970.
CREATE TABLE {new} {p}dead_letter_key (
    topic    VARCHAR(250) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    `key`    VARCHAR(513) NOT NULL,
    rule     VARCHAR(16)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    until_ms BIGINT,
    reason   TEXT         NOT NULL,
    actor    VARCHAR(300) NOT NULL,
    since_ms BIGINT       NOT NULL,
    PRIMARY KEY (topic, `key`),
    CONSTRAINT {b}dead_letter_key_rule_is_valid CHECK (rule IN ('blocked', 'allowed'))
) {table};
