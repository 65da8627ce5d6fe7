-- Deliveries that failed and are attempted again, for operators: `SELECT * FROM {p}delivery_status`. A row that a crash
-- left behind is hidden once its message is in the inbox.
CREATE TABLE {p}delivery (
    consumer_group  text        NOT NULL,
    topic           text        NOT NULL,
    message_id      uuid        NOT NULL,
    key             text,
    attempts        integer     NOT NULL,
    error_code      text        NOT NULL,
    error           text        NOT NULL,
    first_failed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    last_attempt_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    next_attempt_at timestamptz NOT NULL,
    PRIMARY KEY (consumer_group, message_id, topic)
);
CREATE VIEW {p}delivery_status AS
    SELECT d.message_id, d.topic, d.consumer_group, d.key, d.attempts, d.error_code, d.error, d.first_failed_at,
        d.last_attempt_at, d.next_attempt_at
    FROM {p}delivery d WHERE NOT EXISTS (
        SELECT 1 FROM {p}inbox i WHERE i.consumer_group = d.consumer_group AND i.message_id = d.message_id);
