//! Reports tests that could not run, so that they never count as passed.

use std::fs::OpenOptions;
use std::io::Write;

/// The environment variable that names the file for these reports; `scripts/test` counts them as skipped.
pub const NOT_RUN_FILE: &str = "LANDFALL_NOT_RUN_FILE";

/// Set to `1`, a missing server or tool is a failure. `CI=true` has the same effect.
pub const REQUIRE_SERVERS: &str = "LANDFALL_REQUIRE_SERVERS";

/// Reports that the test `what` did not run because a server or tool is missing.
///
/// A test calls this and returns. libtest cannot skip a running test, so only the report distinguishes not run from
/// passed: one line on stderr and in the file named by [`NOT_RUN_FILE`].
///
/// # Panics
///
/// With `CI=true` or [`REQUIRE_SERVERS`]: `scripts/services` installs all that the tests need.
pub fn not_run(what: &str, why: &str) {
    assert!(!is_required(), "{what} must run in CI: {why}");
    not_possible_here(what, why);
}

fn is_required() -> bool {
    let is_set = |name, value| std::env::var(name).is_ok_and(|found| found == value);
    is_set("CI", "true") || is_set(REQUIRE_SERVERS, "1")
}

/// Reports that this machine cannot run the test `what`, whatever is installed: it may not mount a file system, say.
/// Unlike [`not_run`], CI tolerates it.
#[allow(clippy::print_stderr, reason = "the line is for the person who runs the tests")]
pub fn not_possible_here(what: &str, why: &str) {
    let line = format!("landfall-not-run: {what}: {}", why.replace(['\r', '\n'], " "));
    eprintln!("{line}");
    let Some(path) = std::env::var_os(NOT_RUN_FILE) else { return };
    // One write per line, so that lines of several test processes never interleave.
    let written = OpenOptions::new()
        .create(true)
        .append(true)
        .open(&path)
        .and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()));
    if let Err(error) = written {
        eprintln!("landfall-not-run: cannot write {}: {error}", path.to_string_lossy());
    }
}

/// Returns the running test as `binary::test`, from the name that libtest gives to the test's thread.
pub fn current_test() -> String {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("unnamed");
    let binary = std::env::current_exe().ok().and_then(|path| Some(path.file_stem()?.to_string_lossy().into_owned()));
    // Cargo names a test binary `conformance-0123456789abcdef`; the hash means nothing to a reader.
    match binary.as_deref().map(|name| name.rsplit_once('-').map_or(name, |(name, _hash)| name)) {
        Some(binary) => format!("{binary}::{test}"),
        None => test.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn current_test_returns_binary_and_test_name() {
        assert_eq!(current_test(), "landfall_testkit::not_run::tests::current_test_returns_binary_and_test_name");
    }
}
