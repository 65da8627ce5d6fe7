-- A discarded letter is stored as a done one that never took effect. An edited letter keeps its first payload.
ALTER TABLE {p}dead_letter ADD COLUMN discarded INTEGER NOT NULL DEFAULT 0;
ALTER TABLE {p}dead_letter ADD COLUMN original_payload BLOB;
