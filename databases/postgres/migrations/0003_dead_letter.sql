-- The fingerprint groups letters with the same cause. It is null while it is not computed: in letters of the relay and of
-- earlier versions. `causes` is a JSON array of texts. An ignored letter is stored as a parked one that no redrive
-- touches. `redrive_id` is the job of its latest redrive, null for a redrive by hand.
ALTER TABLE {p}dead_letter
    ADD COLUMN fingerprint text,
    ADD COLUMN causes text,
    ADD COLUMN ignored boolean NOT NULL DEFAULT false,
    ADD COLUMN redrive_id text;
CREATE INDEX {b}dead_letter_fingerprint ON {p}dead_letter (fingerprint, status);
CREATE INDEX {b}dead_letter_trace ON {p}dead_letter (substr(headers ->> 'traceparent', 4, 32))
    WHERE headers ->> 'traceparent' IS NOT NULL;
