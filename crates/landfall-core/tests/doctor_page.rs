//! The doctor's page lists exactly the checks of the databases and the log.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::path::Path;

#[test]
fn doctor_page_lists_every_check() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut in_code = BTreeSet::new();
    for folder in ["databases/postgres", "databases/mysql", "databases/sqlite", "crates/landfall-log"] {
        for entry in std::fs::read_dir(root.join(folder).join("src/doctor")).unwrap() {
            in_code.extend(names(&std::fs::read_to_string(entry.unwrap().path()).unwrap(), '"'));
        }
    }
    let page = std::fs::read_to_string(root.join("docs/operate/doctor.md")).unwrap();
    let rows: String = page.lines().filter(|line| line.starts_with("| `")).collect();
    assert_eq!(names(&rows, '`'), in_code);
    assert!(in_code.len() > 50, "{in_code:?}");
}

/// Returns the quoted strings that look like `postgres.fsync`.
fn names(text: &str, quote: char) -> BTreeSet<String> {
    let is_name = |part: &&str| {
        let known =
            ["postgres.", "mysql.", "sqlite.", "log."].into_iter().find_map(|adapter| part.strip_prefix(adapter));
        known.is_some_and(|check| !check.is_empty() && check.chars().all(|c| c.is_ascii_lowercase() || c == '-'))
    };
    text.split(quote).filter(is_name).map(str::to_owned).collect()
}
