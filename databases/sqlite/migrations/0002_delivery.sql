-- Deliveries that failed and are attempted again, for operators: `SELECT * FROM {p}delivery_status`. A row that a crash
-- left behind is hidden once its message is in the inbox.
CREATE TABLE {p}delivery (
    consumer_group  TEXT    NOT NULL,
    topic           TEXT    NOT NULL,
    message_id      TEXT    NOT NULL,
    key             TEXT,
    attempts        INTEGER NOT NULL,
    error_code      TEXT    NOT NULL,
    error           TEXT    NOT NULL,
    first_failed_at INTEGER NOT NULL DEFAULT ({now}),
    last_attempt_at INTEGER NOT NULL DEFAULT ({now}),
    next_attempt_at INTEGER NOT NULL,
    PRIMARY KEY (consumer_group, message_id, topic)
) WITHOUT ROWID;
CREATE VIEW {p}delivery_status AS
SELECT d.message_id, d.topic, d.consumer_group, d.key, d.attempts, d.error_code, d.error,
    strftime('%Y-%m-%dT%H:%M:%fZ', d.first_failed_at / 1000.0, 'unixepoch') AS first_failed_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', d.last_attempt_at / 1000.0, 'unixepoch') AS last_attempt_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', d.next_attempt_at / 1000.0, 'unixepoch') AS next_attempt_at
FROM {p}delivery d WHERE NOT EXISTS (
    SELECT 1 FROM {p}inbox i WHERE i.consumer_group = d.consumer_group AND i.message_id = d.message_id);
