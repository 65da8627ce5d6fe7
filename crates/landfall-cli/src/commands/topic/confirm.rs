//! Asks before something that cannot be taken back.

use std::io::{BufRead, IsTerminal, Write};

use crate::error::{Error, Result};

/// Goes on if `yes` was given, or if a person at a terminal says so after reading `sentence`.
pub(super) fn confirm(yes: bool, sentence: &str) -> Result<()> {
    let mut stderr = std::io::stderr();
    if yes {
        return Ok(());
    }
    if !std::io::stdin().is_terminal() || !stderr.is_terminal() {
        return Err(Error::wrong_use(format!("{sentence}; nothing was changed: say --yes to do it")));
    }
    let mut answer = String::new();
    write!(stderr, "landfall: {sentence}.\nGo on? [y/N] ")?;
    std::io::stdin().lock().read_line(&mut answer)?;
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(Error::not_so("nothing was changed")),
    }
}
