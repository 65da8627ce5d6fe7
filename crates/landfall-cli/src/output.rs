//! Output on stdout: tables for people, JSON lines for programs.
//!
//! Invariant: text from a message is escaped before it reaches a terminal, so a payload cannot move the cursor.

use std::borrow::Cow;
use std::io::{BufWriter, Stdout, Write};

use serde::Serialize;

use crate::error::{Error, Result};

/// Buffered stdout. Call [`Output::flush`] when output must become visible, and at the end.
pub(crate) struct Output(BufWriter<Stdout>);

impl Output {
    pub(crate) fn new() -> Self {
        Self(BufWriter::new(std::io::stdout()))
    }

    /// Writes one object on one line.
    pub(crate) fn json(&mut self, object: &impl Serialize) -> Result<()> {
        let line = serde_json::to_string(object)
            .map_err(|error| Error::failed(format!("cannot serialize the result as JSON: {error}")))?;
        Ok(writeln!(self.0, "{line}")?)
    }

    pub(crate) fn line(&mut self, text: &str) -> Result<()> {
        Ok(writeln!(self.0, "{text}")?)
    }

    pub(crate) fn flush(&mut self) -> Result<()> {
        Ok(self.0.flush()?)
    }

    /// Prints a list the way every command does: JSON lines with `json`, else a table. Flushes.
    pub(crate) fn list<T: Serialize, const N: usize>(
        &mut self,
        json: bool,
        items: &[T],
        columns: [&str; N],
        row: impl Fn(&T) -> [String; N],
    ) -> Result<()> {
        if json {
            for item in items {
                self.json(item)?;
            }
        } else if !items.is_empty() {
            self.table(columns, items.iter().map(row).collect())?;
        }
        self.flush()
    }

    /// Pads every column but the last to its widest cell.
    fn table<const N: usize>(&mut self, columns: [&str; N], rows: Vec<[String; N]>) -> Result<()> {
        let rows: Vec<[String; N]> = rows.into_iter().map(|row| row.map(|cell| escaped(&cell).into_owned())).collect();
        let mut widths = columns.map(|column| column.chars().count());
        for row in &rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let heading = columns.map(str::to_uppercase);
        for row in std::iter::once(&heading).chain(&rows) {
            let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
            let line = cells.collect::<Vec<_>>().join("  ");
            writeln!(self.0, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// Returns `text` with control characters escaped, safe to print on a terminal.
pub(crate) fn escaped(text: &str) -> Cow<'_, str> {
    if !text.chars().any(char::is_control) {
        return Cow::Borrowed(text);
    }
    let escape = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    Cow::Owned(text.chars().map(escape).collect())
}

/// Returns the value as text, or `-`.
pub(crate) fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(escaped("plain 文"), "plain 文");
        assert_eq!(escaped("a\x1b[2Jb\n"), "a\\u{1b}[2Jb\\n");
    }
}
