-- Text payloads: exactly one of payload and payload_text is set. The column has the table's character set, utf8mb4.
ALTER TABLE {p}outbox
    ADD COLUMN payload_text LONGTEXT AFTER payload,
    MODIFY COLUMN payload LONGBLOB,
    ADD CONSTRAINT {b}outbox_has_payload_or_payload_text CHECK ((payload IS NULL) <> (payload_text IS NULL));

-- For operators: every message that is unsent, parked, or kept after it was sent, in one of five states.
CREATE OR REPLACE SQL SECURITY INVOKER VIEW {p}outbox_status AS
    SELECT id, {uuid:o.message_id} AS message_id, topic, `key`,
           CASE WHEN attempts > 0 THEN 'retrying'
                WHEN {free} THEN 'pending' ELSE 'waiting' END AS state,
           attempts, next_attempt_at, last_error, created_at, CAST(NULL AS DATETIME(6)) AS sent_at,
           OCTET_LENGTH({payload:o}) AS payload_bytes
    FROM {p}outbox o {blocked}
    UNION ALL
    SELECT outbox_id, {uuid:d.message_id}, topic, `key`, 'parked', attempts, NULL,
           CONCAT(error_code, ': ', error), created_at, NULL, OCTET_LENGTH(payload)
    FROM {p}dead_letter d WHERE is_open = 1 AND consumer_group = ''
    UNION ALL
    SELECT id, {uuid:s.message_id}, topic, `key`, 'sent', attempts, NULL, last_error, created_at, sent_at,
           OCTET_LENGTH(payload)
    FROM {p}outbox_sent s;
