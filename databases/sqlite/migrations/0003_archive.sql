-- When a letter came back from the archive, in milliseconds since 1970; its retention begins again.
ALTER TABLE {p}dead_letter ADD COLUMN restored_at INTEGER;
-- Finds the history of a letter.
CREATE INDEX {p}audit_dead_letter ON {p}audit (dead_letter_id) WHERE dead_letter_id IS NOT NULL;
