-- Rows of the outbox that no relay has settled. The first condition quickly excludes rows visible in every shard's s1.
CREATE OR REPLACE VIEW {p}outbox_unsettled AS
    SELECT o.* FROM {p}outbox o JOIN {p}outbox_place place ON place.shard = {p}shard_of(o.key, o.id)
    WHERE o.xid >= (SELECT min(pg_snapshot_xmin(s1)) FROM {p}outbox_place)
      AND NOT {p}outbox_is_settled(o.xid, o.id, place.s1, place.s2, place.last_id, place.done);

CREATE OR REPLACE VIEW {p}outbox_status AS
    SELECT o.id, o.message_id, o.topic, o.key,
        CASE WHEN {p}outbox_is_blocked(o.topic, o.key) THEN 'waiting' ELSE 'pending' END AS state,
        0 AS attempts, NULL::timestamptz AS next_attempt_at, NULL::text AS last_error, o.created_at,
        NULL::timestamptz AS sent_at, o.sequence, o.kind, o.mode, o.headers,
        {p}payload_shown(o.payload, o.payload_text) AS payload
    FROM {p}outbox_unsettled o
    UNION ALL
    SELECT w.id, w.message_id, w.topic, w.key,
        CASE WHEN w.attempts > 0 THEN 'retrying'
             WHEN EXISTS (SELECT 1 FROM {p}outbox_waiting earlier
                          WHERE earlier.topic = w.topic AND earlier.key = w.key AND earlier.id < w.id)
               OR EXISTS (SELECT 1 FROM {p}held_key held
                          WHERE held.consumer_group = '' AND held.topic = w.topic AND held.key = w.key)
             THEN 'waiting' ELSE 'pending' END,
        w.attempts, CASE WHEN w.attempts > 0 THEN w.next_attempt_at END, w.last_error, w.created_at,
        NULL, w.sequence, w.kind, w.mode, w.headers, {p}payload_shown(w.payload, w.payload_text)
    FROM {p}outbox_waiting w
    UNION ALL
    SELECT letter.outbox_id, letter.message_id, letter.topic, letter.key, 'parked',
        letter.attempts, NULL, letter.error_code || ': ' || letter.error, letter.created_at,
        NULL, letter.sequence, letter.kind, letter.mode, letter.headers,
        {p}payload_shown(letter.payload, letter.payload_text)
    FROM {p}dead_letter letter WHERE letter.consumer_group = '' AND letter.status = 'parked'
    UNION ALL
    SELECT o.id, o.message_id, o.topic, o.key, 'sent', 0, NULL, NULL, o.created_at,
        -- It was sent by then; the exact time is not recorded.
        place.at, o.sequence, o.kind, o.mode, o.headers, {p}payload_shown(o.payload, o.payload_text)
    FROM {p}outbox o JOIN {p}outbox_place place ON place.shard = {p}shard_of(o.key, o.id)
    WHERE {p}outbox_is_settled(o.xid, o.id, place.s1, place.s2, place.last_id, place.done)
      AND NOT EXISTS (SELECT 1 FROM {p}outbox_waiting w WHERE w.id = o.id)
      AND NOT EXISTS (SELECT 1 FROM {p}outbox_sent sent WHERE sent.id = o.id AND sent.message_id = o.message_id)
      AND NOT EXISTS (SELECT 1 FROM {p}dead_letter letter
                      WHERE letter.consumer_group = '' AND letter.outbox_id = o.id AND letter.status = 'parked')
    UNION ALL
    SELECT sent.id, sent.message_id, sent.topic, sent.key, 'sent', 0, NULL, NULL, sent.created_at,
        sent.sent_at, sent.sequence, sent.kind, sent.mode, sent.headers, sent.payload
    FROM {p}outbox_sent sent;
