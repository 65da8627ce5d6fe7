//! Every case is registered in the macro of its suite: an unregistered case would never run.

use std::collections::BTreeSet;
use std::path::Path;

/// Returns `group::case` for every public case function of the suite.
fn defined(suite: &Path) -> BTreeSet<String> {
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

/// Returns `group::case` for every case in the macro in `mod.rs`.
fn registered(suite: &Path) -> BTreeSet<String> {
    let text = std::fs::read_to_string(suite.join("mod.rs")).unwrap();
    let (_, list) = text.split_once("@groups $fixture;").expect("the list in the macro has no beginning");
    let (list, _) = list.split_once("        }\n    };").expect("the list in the macro has no end");
    let groups = list.split(';').filter_map(|group| group.split_once(':'));
    groups
        .flat_map(|(group, cases)| cases.split(',').map(move |case| (group, case)))
        // What a case needs stands behind its name.
        .map(|(group, case)| format!("{}::{}", group.trim(), case.split_whitespace().next().unwrap_or_default()))
        .collect()
}

#[test]
fn every_case_is_registered_in_its_macro() {
    for (suite, at_least) in [("database", 80), ("broker", 25), ("idempotency", 25)] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/conformance").join(suite);
        let defined = defined(&folder);
        assert!(defined.len() >= at_least, "found only {} cases in {suite}", defined.len());
        assert_eq!(defined, registered(&folder), "{suite}");
    }
}
