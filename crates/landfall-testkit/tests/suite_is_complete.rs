//! Every case that is written is also run: a case that its macro does not name would never fail.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::path::Path;

/// `group::case` of every public case function in the files beside `suite`'s `mod.rs`.
fn written(suite: &Path) -> BTreeSet<String> {
    let mut cases = BTreeSet::new();
    for entry in suite.read_dir().unwrap() {
        let path = entry.unwrap().path();
        let group = path.file_stem().unwrap().to_string_lossy().into_owned();
        if group == "mod" {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let names = text.lines().filter_map(|line| line.strip_prefix("pub async fn ")?.split_once('<'));
        cases.extend(names.map(|(case, _)| format!("{group}::{case}")));
    }
    cases
}

/// `group::case` as the macro in `mod.rs` lists them.
fn listed(suite: &Path) -> BTreeSet<String> {
    let text = std::fs::read_to_string(suite.join("mod.rs")).unwrap();
    let (_, list) = text.split_once("@groups $fixture;").expect("the macro's list begins");
    let (list, _) = list.split_once("        }\n    };").expect("the macro's list ends");
    let groups = list.split(';').filter_map(|group| group.split_once(':'));
    groups
        .flat_map(|(group, cases)| cases.split(',').map(|case| format!("{}::{}", group.trim(), case.trim())))
        .collect()
}

#[test]
fn every_case_is_in_its_macro() {
    for (suite, at_least) in [("database", 80), ("broker", 25)] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/conformance").join(suite);
        let written = written(&folder);
        assert!(written.len() >= at_least, "only {} cases were found in {suite}", written.len());
        assert_eq!(written, listed(&folder), "{suite}");
    }
}
