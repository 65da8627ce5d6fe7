//! A small disk for one process: a tmpfs in a private mount namespace, which ends with the process.

use std::process::Command;

use crate::not_run::{current_test, not_possible_here};

/// The environment variable with the path of the small disk.
pub const SMALL_DISK: &str = "LANDFALL_TEST_SMALL_DISK";

/// Runs the ignored test `child` of this binary in a separate process, with a disk of `megabytes` at [`SMALL_DISK`].
///
/// Calls [`not_possible_here()`] and returns if this account may not mount file systems, not even in its own namespace.
///
/// # Panics
///
/// If the test fails.
#[allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
pub fn run_on_a_small_disk(child: &str, megabytes: u32) {
    let folder = tempfile::tempdir().expect("cannot create a temporary folder");
    let mount = format!("mount -t tmpfs -o size={megabytes}m none \"${SMALL_DISK}\"");
    let run_unshared = |script: &str, more: &[&std::ffi::OsStr]| {
        let mut command = Command::new("unshare");
        command.args(["--map-root-user", "--mount", "sh", "-c", script]).args(more).env(SMALL_DISK, folder.path());
        command.output()
    };
    match run_unshared(&mount, &[]) {
        Ok(output) if output.status.success() => {}
        Ok(output) => return not_possible_here(&current_test(), String::from_utf8_lossy(&output.stderr).trim()),
        Err(error) => return not_possible_here(&current_test(), &format!("cannot run unshare: {error}")),
    }
    let binary = std::env::current_exe().expect("cannot find the test binary");
    let script = format!("{mount} && exec \"$0\" --ignored --exact --nocapture \"$1\"");
    let output = run_unshared(&script, &[binary.as_os_str(), child.as_ref()]).expect("cannot run unshare");
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && stdout.contains("1 passed"),
        "{stdout}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
