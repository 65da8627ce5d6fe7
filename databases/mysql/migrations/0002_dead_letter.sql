-- A discarded letter is stored as a done one that never took effect. An edited letter keeps its first payload.
ALTER TABLE {p}dead_letter ADD COLUMN discarded BOOLEAN NOT NULL DEFAULT FALSE, ADD COLUMN original_payload LONGBLOB;
