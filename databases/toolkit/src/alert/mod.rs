//! Alerts, on any server: the state of an alert is a row of `alert`, what is to be delivered a row of `alert_notice`.
//!
//! Both are written in one transaction. An alert changes only if its version is the one that was read. An attempt to
//! deliver counts up `attempts`, and its outcome is stored only under that count. So a daemon that was paused past its
//! lease neither makes a second notice nor ends an attempt of its successor.

mod deliver;
mod observe;
mod record;
mod view;

pub use deliver::{claim, settle};
pub use observe::letters;
pub use record::{mute, record, remove};
pub use view::{alerts, notices, open};

use landfall_core::{Alert, MessageId, Result, Timestamp};

use crate::portable::{Cells, Column};

/// Values per list in a statement.
const CHUNK: usize = 250;

/// The columns that [`read_alert`] reads.
const ALERT: &str =
    "id, rule, labels, state, value, threshold, summary, sample, pending_since, firing_since, resolved_at,
    muted_until, notified_at, notified_value, notified_sample, version, updated_at";
const ALERT_COLUMNS: &[Column] = {
    use Column::{Number, Text};
    &[
        Text, Text, Text, Text, Number, Number, Text, Number, Number, Number, Number, Number, Number, Number, Number,
        Number, Number,
    ]
};

fn read_alert(mut row: Cells) -> Result<Alert> {
    let time = |number: Option<i64>| number.map(Timestamp::from_millis);
    Ok(Alert {
        id: row.text()?.parse::<MessageId>()?,
        rule: row.text()?,
        labels: serde_json::from_str(&row.text()?).unwrap_or_default(),
        state: row.text()?.parse()?,
        value: row.count()?,
        threshold: row.count()?,
        summary: row.text()?,
        sample: row.number_or_null()?,
        pending_since: time(row.number_or_null()?),
        firing_since: time(row.number_or_null()?),
        resolved_at: time(row.number_or_null()?),
        muted_until: time(row.number_or_null()?),
        notified_at: time(row.number_or_null()?),
        notified_value: row.count()?,
        notified_sample: row.number_or_null()?,
        version: row.number()?,
        updated_at: Timestamp::from_millis(row.number()?),
    })
}
