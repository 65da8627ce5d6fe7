-- Alerts. Times are milliseconds since 1970. The id follows from rule and labels. A row in the state `rule` is the mute of
-- a whole rule, and its value says whether the rule has run. A change compares the version.
CREATE TABLE {new} {p}alert (
    id              CHAR(36)     CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
    rule            VARCHAR(64)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    labels          TEXT         NOT NULL,
    -- The label of this name, of alerts about errors.
    fingerprint     VARCHAR(40)  CHARACTER SET ascii COLLATE ascii_bin,
    state           VARCHAR(16)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    value           BIGINT       NOT NULL,
    threshold       BIGINT       NOT NULL,
    summary         TEXT         NOT NULL,
    sample          BIGINT,
    pending_since   BIGINT,
    firing_since    BIGINT,
    resolved_at     BIGINT,
    muted_until     BIGINT,
    notified_at     BIGINT,
    notified_value  BIGINT       NOT NULL DEFAULT 0,
    notified_sample BIGINT,
    version         BIGINT       NOT NULL,
    updated_at      BIGINT       NOT NULL,
    CONSTRAINT {b}alert_state_is_valid CHECK (state IN ('pending', 'firing', 'resolved', 'rule')),
    KEY {b}alert_state (state, updated_at),
    KEY {b}alert_fingerprint (rule, fingerprint)
) {table};

-- Notices to deliver, written with the change of their alert. `delivery` is the id under which notices of a channel are
-- sent together; it is set before the first attempt and never changes. `version` is that of the alert's change.
CREATE TABLE {new} {p}alert_notice (
    id           CHAR(36)    CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
    alert_id     CHAR(36)    CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    version      BIGINT      NOT NULL,
    channel      VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    body         TEXT        NOT NULL,
    state        VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    delivery     CHAR(36)    CHARACTER SET ascii COLLATE ascii_bin,
    attempts     BIGINT      NOT NULL DEFAULT 0,
    next_at      BIGINT      NOT NULL,
    -- Until when the channel accepts nothing.
    hold_until   BIGINT,
    attempted_at BIGINT,
    created_at   BIGINT      NOT NULL,
    settled_at   BIGINT,
    error        TEXT,
    CONSTRAINT {b}alert_notice_state_is_valid CHECK (state IN ('waiting', 'delivered', 'given_up')),
    KEY {b}alert_notice_channel (channel, state, next_at),
    KEY {b}alert_notice_attempted (channel, attempted_at),
    KEY {b}alert_notice_delivery (delivery),
    KEY {b}alert_notice_alert (alert_id, channel, state),
    KEY {b}alert_notice_settled (settled_at)
) {table};

-- Alerts count the letters that were recorded in a time.
ALTER TABLE {p}dead_letter
    ADD KEY {b}dead_letter_first_seen (first_seen);
