-- A discarded letter is stored as a done one that never took effect. An edited letter keeps its first payload.
ALTER TABLE {p}dead_letter ADD COLUMN discarded boolean NOT NULL DEFAULT false, ADD COLUMN original_payload bytea;
