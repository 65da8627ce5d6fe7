-- Ids that senders gave to messages, so that a retry is enqueued once. The fingerprint tells a retry from another message
-- under the same id. A message that was written with SQL or the library has no row here.
CREATE TABLE {p}enqueued_id (
    message_id  TEXT    PRIMARY KEY,
    fingerprint BLOB    NOT NULL,
    enqueued_at INTEGER NOT NULL DEFAULT ({now})
) WITHOUT ROWID;
CREATE INDEX {p}enqueued_id_at ON {p}enqueued_id (enqueued_at);
