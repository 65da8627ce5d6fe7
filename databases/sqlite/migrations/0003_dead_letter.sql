-- The fingerprint groups letters with the same cause. It is null while it is not computed: in letters of the relay and of
-- earlier versions. `causes` is a JSON array of texts. An ignored letter is stored as a parked one that no redrive
-- touches. `redrive_id` is the job of its latest redrive, null for a redrive by hand.
ALTER TABLE {p}dead_letter ADD COLUMN fingerprint TEXT;
ALTER TABLE {p}dead_letter ADD COLUMN causes TEXT;
ALTER TABLE {p}dead_letter ADD COLUMN ignored INTEGER NOT NULL DEFAULT 0;
ALTER TABLE {p}dead_letter ADD COLUMN redrive_id TEXT;
CREATE INDEX {p}dead_letter_fingerprint ON {p}dead_letter (fingerprint, status);
