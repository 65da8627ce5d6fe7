-- In the business database, one row per half message. The local transaction inserts it:
-- `INSERT INTO {p}barrier (id) VALUES ('…')`. If the row is missing, a check-back inserts it as rolled back, so that a
-- late local transaction fails.
CREATE TABLE {p}barrier (
    id         TEXT    NOT NULL COLLATE NOCASE PRIMARY KEY,
    verdict    TEXT    NOT NULL DEFAULT 'committed' CHECK (verdict IN ('committed', 'rolled_back')),
    created_at INTEGER NOT NULL DEFAULT ({now}),
    CONSTRAINT {p}barrier_id_is_a_uuid CHECK (
        typeof(id) = 'text' AND length(id) = 36 AND length(replace(id, '-', '')) = 32 AND
        id NOT GLOB '*[^0-9A-Fa-f-]*' AND id LIKE '________-____-____-____-____________')
) WITHOUT ROWID;
CREATE INDEX {p}barrier_at ON {p}barrier (created_at);

-- Rows from before this time were removed, so that a missing row has no meaning for an older half message.
CREATE TABLE {p}barrier_removed (
    slot           INTEGER PRIMARY KEY CHECK (slot = 1),
    removed_before INTEGER NOT NULL
);
