-- In the business database, one row per half message. The local transaction inserts it:
-- `INSERT INTO {p}barrier (id) VALUES ('…')`. If the row is missing, a check-back inserts it as rolled back, so that a
-- late local transaction fails.
CREATE TABLE {p}barrier (
    id         uuid        PRIMARY KEY,
    verdict    text        NOT NULL DEFAULT 'committed' CHECK (verdict IN ('committed', 'rolled_back')),
    created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX {b}barrier_at ON {p}barrier (created_at);

-- Rows from before this time were removed, so that a missing row has no meaning for an older half message.
CREATE TABLE {p}barrier_removed (
    slot           integer     PRIMARY KEY CHECK (slot = 1),
    removed_before timestamptz NOT NULL
);
