-- Ids that senders gave to messages, so that a retry is enqueued once. The fingerprint tells a retry from another message
-- under the same id. A message that was written with SQL or the library has no row here.
CREATE TABLE {p}enqueued_id (
    message_id  uuid        PRIMARY KEY,
    fingerprint bytea       NOT NULL,
    enqueued_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX {b}enqueued_id_at ON {p}enqueued_id (enqueued_at);
