//! A server whose log can be held back from the disk.
//!
//! InnoDB shows a commit to others before it is written. That moment is too short to meet, so it is made as long as a test
//! likes: a few lines of C are loaded into the server and wait before each write to its log while a certain file exists.

use std::ffi::OsString;
use std::path::Path;

use landfall_core::{Error, ErrorKind, Result};

use crate::servers::daemon::unavailable;

const SOURCE: &str = include_str!("held_log.c");
const LIBRARY: &str = "held_log.so";
/// While it exists nothing is written to the log.
const HELD: &str = "log.held";

/// Makes what is loaded into the server, with the C compiler that the toolchain links with.
pub(super) async fn make(folder: &Path) -> Result<()> {
    let source = folder.join("held_log.c");
    std::fs::write(&source, SOURCE).map_err(|error| unavailable("cannot write into the server's folder", error))?;
    let mut compiler = tokio::process::Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-O1", "-o"]).arg(folder.join(LIBRARY)).arg(&source).arg("-ldl");
    let output = compiler.output().await.map_err(|error| unavailable("cannot run cc", error))?;
    if output.status.success() {
        return Ok(());
    }
    let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(Error::new(ErrorKind::Unavailable, format!("cc failed: {why}")))
}

/// What stands before the server's command.
pub(super) fn prefix(folder: &Path) -> [OsString; 3] {
    let set = |name: &str, file: &str| {
        let mut variable = OsString::from(name);
        variable.push("=");
        variable.push(folder.join(file));
        variable
    };
    ["env".into(), set("LD_PRELOAD", LIBRARY), set("LANDFALL_HOLD", HELD)]
}

pub(super) fn hold(folder: &Path) -> Result<()> {
    std::fs::write(folder.join(HELD), "").map_err(|error| unavailable("cannot hold the log back", error))
}

pub(super) fn release(folder: &Path) -> Result<()> {
    match std::fs::remove_file(folder.join(HELD)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(unavailable("cannot let the log go on", error))
        }
        _ => Ok(()),
    }
}
