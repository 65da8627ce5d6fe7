-- In the business database, one row per half message. The local transaction inserts it:
-- `INSERT INTO {p}barrier (id) VALUES ('…')`. If the row is missing, a check-back inserts it as rolled back, so that a
-- late local transaction fails. The id is text, so that every language can write it.
CREATE TABLE {new} {p}barrier (
    id         CHAR(36)    CHARACTER SET ascii COLLATE ascii_general_ci NOT NULL PRIMARY KEY,
    verdict    VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT 'committed',
    created_at DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    CONSTRAINT {b}barrier_id_is_a_uuid CHECK (id LIKE '________-____-____-____-____________'),
    CONSTRAINT {b}barrier_verdict_is_valid CHECK (verdict IN ('committed', 'rolled_back')),
    KEY {b}barrier_at (created_at)
) {table};

-- Rows from before this time were removed, so that a missing row has no meaning for an older half message.
CREATE TABLE {new} {p}barrier_removed (
    slot           TINYINT     NOT NULL PRIMARY KEY,
    removed_before DATETIME(6) NOT NULL
) {table};
