-- When a letter came back from the archive, in milliseconds since 1970; its retention begins again.
ALTER TABLE {p}dead_letter ADD COLUMN restored_at BIGINT;
-- Finds the history of a letter.
ALTER TABLE {p}audit ADD KEY {b}audit_dead_letter (dead_letter_id);
