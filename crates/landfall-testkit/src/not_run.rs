//! Says by name what could not be tested here, so that it never counts as passed.

use std::fs::OpenOptions;
use std::io::Write;

/// Names the file that collects what did not run; `make test` reads it for its last line.
pub const NOT_RUN_FILE: &str = "LANDFALL_NOT_RUN_FILE";

/// Says that `what` did not run, and why, in one line on stderr, and in the file named by [`NOT_RUN_FILE`].
///
/// A test calls this and returns: libtest cannot skip a test while it runs, so the line is what tells the difference
/// between passed and not run.
#[allow(clippy::print_stderr, reason = "the line is meant for the person who runs the tests")]
pub fn not_run(what: &str, why: &str) {
    let line = format!("landfall-not-run: {what}: {}", why.replace(['\r', '\n'], " "));
    eprintln!("{line}");
    let Some(path) = std::env::var_os(NOT_RUN_FILE) else { return };
    // One write of one line, so that lines of several test processes never mix.
    let written = OpenOptions::new()
        .create(true)
        .append(true)
        .open(&path)
        .and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()));
    if let Err(error) = written {
        eprintln!("landfall-not-run: cannot write {}: {error}", path.to_string_lossy());
    }
}

/// The running test as `binary::test`, from the name that libtest gives to the test's thread.
pub fn current_test() -> String {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("unnamed");
    let binary = std::env::current_exe().ok().and_then(|path| Some(path.file_stem()?.to_string_lossy().into_owned()));
    // Cargo names a test binary `conformance-0123456789abcdef`; the hash says nothing to a reader.
    match binary.as_deref().map(|name| name.rsplit_once('-').map_or(name, |(name, _hash)| name)) {
        Some(binary) => format!("{binary}::{test}"),
        None => test.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_running_test_is_known_by_name() {
        assert_eq!(current_test(), "landfall_testkit::not_run::tests::the_running_test_is_known_by_name");
    }
}
