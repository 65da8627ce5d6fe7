//! What goes to stdout: tables for people, JSON lines for programs.
//!
//! Invariant: nothing from a message reaches a terminal unescaped; a payload cannot move the cursor.

use std::borrow::Cow;
use std::io::{BufWriter, Stdout, Write};

use serde::Serialize;

use crate::error::{Error, Result};

/// Buffered stdout. Call [`Output::flush`] when something should be seen, and at the end.
pub(crate) struct Output(BufWriter<Stdout>);

impl Output {
    pub(crate) fn new() -> Self {
        Self(BufWriter::new(std::io::stdout()))
    }

    /// One object on one line.
    pub(crate) fn json(&mut self, object: &impl Serialize) -> Result<()> {
        let line = serde_json::to_string(object)
            .map_err(|error| Error::not_so(format!("the answer cannot be written as JSON: {error}")))?;
        Ok(writeln!(self.0, "{line}")?)
    }

    pub(crate) fn line(&mut self, text: &str) -> Result<()> {
        Ok(writeln!(self.0, "{text}")?)
    }

    pub(crate) fn flush(&mut self) -> Result<()> {
        Ok(self.0.flush()?)
    }

    /// The one shape of every list: JSON lines if asked for, else a table.
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

    /// Columns as wide as their widest cell; the last one is not padded.
    fn table<const N: usize>(&mut self, columns: [&str; N], rows: Vec<[String; N]>) -> Result<()> {
        let rows: Vec<[String; N]> = rows.into_iter().map(|row| row.map(|cell| shown(&cell).into_owned())).collect();
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

/// Text as it may be shown on a terminal: control characters are written out.
pub(crate) fn shown(text: &str) -> Cow<'_, str> {
    if !text.chars().any(char::is_control) {
        return Cow::Borrowed(text);
    }
    let escape = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    Cow::Owned(text.chars().map(escape).collect())
}

/// A value or a dash.
pub(crate) fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        assert_eq!(shown("plain 文"), "plain 文");
        assert_eq!(shown("a\x1b[2Jb\n"), "a\\u{1b}[2Jb\\n");
    }
}
