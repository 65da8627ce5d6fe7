//! A server whose log writes can be blocked.
//!
//! InnoDB makes a commit visible before it is durable. The time in between is too short for a test to hit, so a small
//! preloaded C library extends it. The library blocks each write to the log while a certain file exists.

use std::ffi::OsString;
use std::path::Path;

use landfall_core::{Error, ErrorKind, Result};

use crate::servers::daemon::unavailable;

const SOURCE: &str = include_str!("held_log.c");
const LIBRARY: &str = "held_log.so";
/// While this file exists, log writes block.
const HELD: &str = "log.held";

/// Compiles the library with `cc`, which the Rust toolchain also uses to link.
pub(super) async fn compile(folder: &Path) -> Result<()> {
    let source = folder.join("held_log.c");
    std::fs::write(&source, SOURCE).map_err(|error| unavailable("cannot write into the server's folder", error))?;
    let mut compiler = tokio::process::Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-O1", "-o"]).arg(folder.join(LIBRARY)).arg(&source).arg("-ldl");
    let output = compiler.output().await.map_err(|error| unavailable("cannot run cc", error))?;
    if output.status.success() {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(Error::new(ErrorKind::Unavailable, format!("cc failed: {stderr}")))
}

/// Returns the prefix of the server's command that preloads the library.
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
    std::fs::write(folder.join(HELD), "").map_err(|error| unavailable("cannot block the log", error))
}

pub(super) fn release(folder: &Path) -> Result<()> {
    match std::fs::remove_file(folder.join(HELD)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(unavailable("cannot unblock the log", error)),
        _ => Ok(()),
    }
}
