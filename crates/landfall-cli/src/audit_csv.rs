//! The audit trail as CSV, for the command and for HTTP.

use landfall::AuditEntry;

use crate::output::or_dash;

pub(crate) const COLUMNS: [&str; 7] = ["id", "at", "actor", "action", "dead letter", "message id", "detail"];

/// Returns the line of column names.
pub(crate) fn heading() -> String {
    COLUMNS.map(csv_field).join(",") + "\n"
}

/// Returns the line of a row.
pub(crate) fn line(row: &AuditEntry) -> String {
    cells(row).map(|cell| csv_field(&cell)).join(",") + "\n"
}

pub(crate) fn cells(row: &AuditEntry) -> [String; 7] {
    [
        row.id.to_string(),
        row.at.to_string(),
        row.actor.clone(),
        row.action.clone(),
        or_dash(row.dead_letter_id),
        or_dash(row.message_id),
        row.detail.clone(),
    ]
}

/// Quotes a field of RFC 4180. An apostrophe in front of a formula makes a spreadsheet show it as text (CWE-1236).
fn csv_field(text: &str) -> String {
    let is_formula = text.starts_with(['=', '+', '-', '@', '\t', '\r', '\n']) && text != "-";
    let guard = if is_formula { "'" } else { "" };
    format!("\"{guard}{}\"", text.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_field_is_a_formula() {
        for (text, expected) in [
            ("redrive", "\"redrive\""),
            ("a \"b\", c", "\"a \"\"b\"\", c\""),
            ("=1+1", "\"'=1+1\""),
            ("@SUM(A1)", "\"'@SUM(A1)\""),
            ("+1", "\"'+1\""),
            ("-2", "\"'-2\""),
            ("\t=1", "\"'\t=1\""),
            ("-", "\"-\""),
            ("two\nlines", "\"two\nlines\""),
        ] {
            assert_eq!(csv_field(text), expected);
        }
    }
}
