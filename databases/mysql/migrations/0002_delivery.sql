-- Deliveries that failed and are attempted again, for operators: `SELECT * FROM {p}delivery_status`. A row that a crash
-- left behind is hidden once its message is in the inbox.
CREATE TABLE {new} {p}delivery (
    consumer_group  VARCHAR(250) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    topic           VARCHAR(250) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    message_id      BINARY(16)   NOT NULL,
    `key`           VARCHAR(513),
    attempts        INT          NOT NULL,
    error_code      VARCHAR(64)  NOT NULL,
    error           TEXT         NOT NULL,
    first_failed_at DATETIME(6)  NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    last_attempt_at DATETIME(6)  NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    next_attempt_at DATETIME(6)  NOT NULL,
    PRIMARY KEY (consumer_group, message_id, topic)
) {table};
CREATE OR REPLACE SQL SECURITY INVOKER VIEW {p}delivery_status AS
    SELECT {uuid:d.message_id} AS message_id, d.topic, d.consumer_group, d.`key`, d.attempts, d.error_code, d.error,
           d.first_failed_at, d.last_attempt_at, d.next_attempt_at
    FROM {p}delivery d WHERE NOT EXISTS (
        SELECT 1 FROM {p}inbox i WHERE i.consumer_group = d.consumer_group AND i.message_id = d.message_id);
