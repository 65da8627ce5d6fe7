-- Ids that senders gave to messages, so that a retry is enqueued once. The fingerprint tells a retry from another message
-- under the same id. A message that was written with SQL or the library has no row here.
CREATE TABLE {new} {p}enqueued_id (
    message_id  BINARY(16)  NOT NULL PRIMARY KEY,
    fingerprint BINARY(32)  NOT NULL,
    enqueued_at DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    KEY {b}enqueued_id_at (enqueued_at)
) {table};
