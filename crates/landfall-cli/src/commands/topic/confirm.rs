//! Confirmation of irreversible changes.

use std::io::{BufRead, IsTerminal, Write};

use crate::error::{Error, Result};

/// Returns `Ok` with `--yes`, or if the user confirms `text` on a terminal.
pub(super) fn confirm(yes: bool, text: &str) -> Result<()> {
    let mut stderr = std::io::stderr();
    if yes {
        return Ok(());
    }
    if !std::io::stdin().is_terminal() || !stderr.is_terminal() {
        return Err(Error::usage(format!("{text}; nothing was changed; confirm with --yes")));
    }
    let mut answer = String::new();
    write!(stderr, "landfall: {text}.\nContinue? [y/N] ")?;
    std::io::stdin().lock().read_line(&mut answer)?;
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(Error::failed("nothing was changed")),
    }
}
