-- Alerts. Times are milliseconds since 1970. The id follows from rule and labels. A row in the state `rule` is the mute of
-- a whole rule, and its value says whether the rule has run. A change compares the version.
CREATE TABLE {p}alert (
    id              TEXT PRIMARY KEY,
    rule            TEXT NOT NULL,
    labels          TEXT NOT NULL,
    -- The label of this name, of alerts about errors.
    fingerprint     TEXT,
    state           TEXT NOT NULL CHECK (state IN ('pending', 'firing', 'resolved', 'rule')),
    value           INTEGER NOT NULL,
    threshold       INTEGER NOT NULL,
    summary         TEXT NOT NULL,
    sample          INTEGER,
    pending_since   INTEGER,
    firing_since    INTEGER,
    resolved_at     INTEGER,
    muted_until     INTEGER,
    notified_at     INTEGER,
    notified_value  INTEGER NOT NULL DEFAULT 0,
    notified_sample INTEGER,
    version         INTEGER NOT NULL,
    updated_at      INTEGER NOT NULL
);
CREATE INDEX {p}alert_state ON {p}alert (state, updated_at);
CREATE INDEX {p}alert_fingerprint ON {p}alert (rule, fingerprint);

-- Notices to deliver, written with the change of their alert. `delivery` is the id under which notices of a channel are
-- sent together; it is set before the first attempt and never changes. `version` is that of the alert's change.
CREATE TABLE {p}alert_notice (
    id           TEXT PRIMARY KEY,
    alert_id     TEXT NOT NULL,
    version      INTEGER NOT NULL,
    channel      TEXT NOT NULL,
    body         TEXT NOT NULL,
    state        TEXT NOT NULL CHECK (state IN ('waiting', 'delivered', 'given_up')),
    delivery     TEXT,
    attempts     INTEGER NOT NULL DEFAULT 0,
    next_at      INTEGER NOT NULL,
    -- Until when the channel accepts nothing.
    hold_until   INTEGER,
    attempted_at INTEGER,
    created_at   INTEGER NOT NULL,
    settled_at   INTEGER,
    error        TEXT
);
CREATE INDEX {p}alert_notice_channel ON {p}alert_notice (channel, state, next_at);
CREATE INDEX {p}alert_notice_attempted ON {p}alert_notice (channel, attempted_at);
CREATE INDEX {p}alert_notice_delivery ON {p}alert_notice (delivery);
CREATE INDEX {p}alert_notice_alert ON {p}alert_notice (alert_id, channel, state);
CREATE INDEX {p}alert_notice_settled ON {p}alert_notice (settled_at);

-- Alerts count the letters that were recorded in a time.
CREATE INDEX {p}dead_letter_first_seen ON {p}dead_letter (first_seen);
