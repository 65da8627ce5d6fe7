//! A disk with little room, for one process: a file system in memory that nobody else sees and that ends with it.

use std::process::Command;

use crate::not_run::{current_test, not_run};

/// Where the process finds the folder.
pub const SMALL_DISK: &str = "LANDFALL_TEST_SMALL_DISK";

/// Runs the ignored test `child` of this binary in a process of its own, with a folder of so many megabytes in
/// [`SMALL_DISK`]. Says so and does nothing where this account may not mount anything, not even for itself.
///
/// # Panics
///
/// If the test fails.
#[allow(clippy::expect_used, clippy::panic, reason = "a test whose other half fails has failed")]
pub fn run_on_a_small_disk(child: &str, megabytes: u32) {
    let folder = tempfile::tempdir().expect("there is a temporary folder");
    let mount = format!("mount -t tmpfs -o size={megabytes}m none \"${SMALL_DISK}\"");
    let alone = |script: &str, more: &[&std::ffi::OsStr]| {
        let mut command = Command::new("unshare");
        command.args(["--map-root-user", "--mount", "sh", "-c", script]).args(more).env(SMALL_DISK, folder.path());
        command.output()
    };
    match alone(&mount, &[]) {
        Ok(output) if output.status.success() => {}
        Ok(output) => return not_run(&current_test(), String::from_utf8_lossy(&output.stderr).trim()),
        Err(error) => return not_run(&current_test(), &format!("there is no unshare: {error}")),
    }
    let binary = std::env::current_exe().expect("a test knows its binary");
    let script = format!("{mount} && exec \"$0\" --ignored --exact --nocapture \"$1\"");
    let output = alone(&script, &[binary.as_os_str(), child.as_ref()]).expect("it ran a moment ago");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}{}", String::from_utf8_lossy(&output.stderr));
}
