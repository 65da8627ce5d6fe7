-- The fingerprint groups letters with the same cause. It is null while it is not computed: in letters of the relay and of
-- earlier versions. `causes` is a JSON array of texts. An ignored letter is stored as a parked one that no redrive
-- touches. `redrive_id` is the job of its latest redrive, null for a redrive by hand.
ALTER TABLE {p}dead_letter
    ADD COLUMN fingerprint VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin,
    ADD COLUMN causes TEXT,
    ADD COLUMN ignored BOOLEAN NOT NULL DEFAULT FALSE,
    ADD COLUMN redrive_id CHAR(36) CHARACTER SET ascii COLLATE ascii_bin,
    ADD KEY {b}dead_letter_fingerprint (fingerprint, status);
