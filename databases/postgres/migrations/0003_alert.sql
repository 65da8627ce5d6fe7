-- Alerts. Times are milliseconds since 1970. The id follows from rule and labels. A row in the state `rule` is the mute of
-- a whole rule, and its value says whether the rule has run. A change compares the version.
CREATE TABLE {p}alert (
    id              text   PRIMARY KEY,
    rule            text   NOT NULL,
    labels          text   NOT NULL,
    -- The label of this name, of alerts about errors.
    fingerprint     text,
    state           text   NOT NULL CHECK (state IN ('pending', 'firing', 'resolved', 'rule')),
    value           bigint NOT NULL,
    threshold       bigint NOT NULL,
    summary         text   NOT NULL,
    sample          bigint,
    pending_since   bigint,
    firing_since    bigint,
    resolved_at     bigint,
    muted_until     bigint,
    notified_at     bigint,
    notified_value  bigint NOT NULL DEFAULT 0,
    notified_sample bigint,
    version         bigint NOT NULL,
    updated_at      bigint NOT NULL
);
CREATE INDEX {b}alert_state ON {p}alert (state, updated_at);
CREATE INDEX {b}alert_fingerprint ON {p}alert (rule, fingerprint);

-- Notices to deliver, written with the change of their alert. `delivery` is the id under which notices of a channel are
-- sent together; it is set before the first attempt and never changes. `version` is that of the alert's change.
CREATE TABLE {p}alert_notice (
    id           text   PRIMARY KEY,
    alert_id     text   NOT NULL,
    version      bigint NOT NULL,
    channel      text   NOT NULL,
    body         text   NOT NULL,
    state        text   NOT NULL CHECK (state IN ('waiting', 'delivered', 'given_up')),
    delivery     text,
    attempts     bigint NOT NULL DEFAULT 0,
    next_at      bigint NOT NULL,
    -- Until when the channel accepts nothing.
    hold_until   bigint,
    attempted_at bigint,
    created_at   bigint NOT NULL,
    settled_at   bigint,
    error        text
);
CREATE INDEX {b}alert_notice_channel ON {p}alert_notice (channel, state, next_at);
CREATE INDEX {b}alert_notice_attempted ON {p}alert_notice (channel, attempted_at);
CREATE INDEX {b}alert_notice_delivery ON {p}alert_notice (delivery);
CREATE INDEX {b}alert_notice_alert ON {p}alert_notice (alert_id, channel, state);
CREATE INDEX {b}alert_notice_settled ON {p}alert_notice (settled_at);

-- Alerts count the letters that were recorded in a time.
CREATE INDEX {b}dead_letter_first_seen ON {p}dead_letter (first_seen);
