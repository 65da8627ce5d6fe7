//! The filter of dead letters as conditions.

use landfall_core::{DeadLetterFilter, DeadLetterStatus, GroupState, TextSearch};

use super::{Around, Dialect, Value};

/// Appends a condition for every field of the filter that is set, so that each combination gets its own plan. Returns
/// the template and its values.
pub fn letters(dialect: &Dialect, select: &str, filter: &DeadLetterFilter) -> (String, Vec<Value>) {
    let mut conditions = Conditions { template: format!("{select} WHERE 1 = 1"), values: Vec::new() };
    conditions.add_names(filter);
    conditions.add_status(filter);
    conditions.add_times(filter);
    conditions.add_error(dialect, filter);
    conditions.add_path(dialect, filter);
    conditions.add_group(filter);
    (conditions.template, conditions.values)
}

struct Conditions {
    template: String,
    values: Vec<Value>,
}

impl Conditions {
    fn add(&mut self, condition: &str, value: impl Into<Value>) {
        self.template.push_str(" AND ");
        self.template.push_str(condition);
        self.values.push(value.into());
    }

    fn add_names(&mut self, filter: &DeadLetterFilter) {
        let DeadLetterFilter { id, message_id, group, topic, key, error_code, after, .. } = filter;
        if let Some(id) = id {
            self.add("id = ?", *id);
        }
        if let Some(after) = after {
            self.add("id > ?", *after);
        }
        if let Some(message_id) = message_id {
            self.add("message_id = {uuid}", message_id.to_string());
        }
        let texts = [
            ("consumer_group = ?", group.as_ref().map(|group| group.as_str())),
            ("topic = ?", topic.as_ref().map(|topic| topic.as_str())),
            ("{key} = ?", key.as_ref().map(|key| key.as_str())),
            ("error_code = ?", error_code.as_deref()),
        ];
        for (condition, value) in texts {
            if let Some(value) = value {
                self.add(condition, storable(value));
            }
        }
    }

    fn add_status(&mut self, filter: &DeadLetterFilter) {
        match filter.status {
            // A discarded letter is stored as a done one, so that every query for open letters excludes it, and an
            // ignored one as parked.
            Some(DeadLetterStatus::Discarded) => self.template.push_str(" AND status = 'done' AND discarded"),
            Some(DeadLetterStatus::Done) => self.template.push_str(" AND status = 'done' AND NOT discarded"),
            Some(DeadLetterStatus::Ignored) => self.template.push_str(" AND status = 'parked' AND ignored"),
            Some(DeadLetterStatus::Parked) => self.template.push_str(" AND status = 'parked' AND NOT ignored"),
            Some(status) => self.add("status = ?", status.as_str()),
            None => {}
        }
        if filter.open {
            self.template.push_str(" AND status <> 'done'");
        }
    }

    fn add_times(&mut self, filter: &DeadLetterFilter) {
        if let Some(from) = filter.from {
            self.add("first_seen >= {time}", from.as_millis());
        }
        if let Some(to) = filter.to {
            self.add("first_seen < {time}", to.as_millis());
        }
    }

    fn add_path(&mut self, dialect: &Dialect, filter: &DeadLetterFilter) {
        let Some(path) = &filter.path else { return };
        self.template.push_str(&format!(" AND {}", dialect.payload_has));
        // The path and the value, once for each comparison.
        for _ in 0..dialect.payload_has.matches('?').count() / 2 {
            self.values.push(path.to_sql_path().into());
            self.values.push(path.value().into());
        }
    }

    fn add_group(&mut self, filter: &DeadLetterFilter) {
        match filter.group_state {
            None => {}
            Some(GroupState::Open) => self.template.push_str(
                " AND (fingerprint IS NULL OR fingerprint NOT IN (
                    SELECT g.fingerprint FROM {p}dead_letter_group g WHERE g.state <> 'open'))",
            ),
            Some(state) => self.add(
                "fingerprint IN (SELECT g.fingerprint FROM {p}dead_letter_group g WHERE g.state = ?)",
                state.as_str(),
            ),
        }
    }

    fn add_error(&mut self, dialect: &Dialect, filter: &DeadLetterFilter) {
        if let Some(fingerprint) = &filter.fingerprint {
            self.add("fingerprint = ?", storable(fingerprint));
        }
        if let Some(trace) = &filter.trace_id {
            let Around(before, after) = dialect.has_trace;
            self.add(&format!("{before}?{after}"), storable(trace));
        }
        if let Some(TextSearch { text, in_payload }) = &filter.text {
            let Around(before, after) = dialect.error_contains;
            self.add(&format!("({before}?{after}"), storable(text));
            if *in_payload {
                let Around(before, after) = dialect.payload_contains;
                self.template.push_str(&format!(" OR {before}?{after}"));
                self.values.push(text.replace('\0', "\u{fffd}").into());
            }
            self.template.push(')');
        }
    }
}

/// A NUL is stored as a replacement character, and PostgreSQL accepts none in a value.
fn storable(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}
