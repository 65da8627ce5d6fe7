//! `docs/guarantees.md` names only tests that exist, and lists every capability with its tests.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::path::Path;

/// Names of at least this many words are tests; shorter ones in code style are modules, settings or commands.
const WORDS: usize = 4;

#[test]
fn guarantees_page_names_only_existing_tests() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = std::fs::read_to_string(root.join("docs/guarantees.md")).unwrap();
    let named = named_tests(&page);
    assert!(named.len() > 80, "{named:?}");
    let missing = missing(&named, &functions(&root));
    assert!(missing.is_empty(), "docs/guarantees.md names tests that do not exist: {missing:#?}");
}

/// The capabilities, as a letter and how many there are.
const CAPABILITIES: [(char, usize); 9] =
    [('P', 7), ('K', 4), ('B', 7), ('O', 4), ('C', 7), ('R', 7), ('D', 9), ('I', 9), ('G', 2)];

#[test]
fn capability_table_is_complete_and_names_tests() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = std::fs::read_to_string(root.join("docs/guarantees.md")).unwrap();
    assert_eq!(capability_faults(&page), [""; 0]);
}

#[test]
fn faults_of_the_capability_table_are_detected() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = std::fs::read_to_string(root.join("docs/guarantees.md")).unwrap();
    let without_tests = |line: &str| line.rsplitn(3, '|').last().unwrap().to_owned() + "| |";
    let edited = |id: &str, edit: &dyn Fn(&str) -> String| -> String {
        let lines =
            page.lines().map(|line| if line.starts_with(&format!("| {id} |")) { edit(line) } else { line.into() });
        lines.collect::<Vec<String>>().join("\n")
    };
    assert_eq!(capability_faults(&edited("C1", &without_tests)), ["C1 counts as built and names no test"]);
    assert_eq!(capability_faults(&edited("K4", &|_| String::new())), ["K4 is listed 0 times"]);
    assert_eq!(
        capability_faults(&edited("C1", &|line| line.replace("| done |", "| soon |"))),
        ["C1 has no known state"]
    );
}

fn capability_faults(page: &str) -> Vec<String> {
    let mut faults = Vec::new();
    for (letter, count) in CAPABILITIES {
        for id in (1..=count).map(|number| format!("{letter}{number}")) {
            let rows: Vec<&str> = page.lines().filter(|line| line.starts_with(&format!("| {id} |"))).collect();
            let [row] = rows[..] else {
                faults.push(format!("{id} is listed {} times", rows.len()));
                continue;
            };
            let columns: Vec<&str> = row.split('|').map(str::trim).collect();
            match columns[3] {
                "not yet" => {}
                state if state != "done" && !state.starts_with("partly: ") => {
                    faults.push(format!("{id} has no known state"));
                }
                _ if named_tests(columns[4]).is_empty() => {
                    faults.push(format!("{id} counts as built and names no test"));
                }
                _ => {}
            }
        }
    }
    faults
}

#[test]
fn missing_test_is_detected() {
    let page = "`late_commit_is_not_skipped`, `a_prefix_that_ends_with_…` and `cargo test -p x --test late_commit`";
    let named = named_tests(page);
    assert_eq!(named, ["a_prefix_that_ends_with_…", "late_commit_is_not_skipped"]);
    let known = ["late_commit_is_not_skipped", "a_prefix_that_ends_with_kafka"].map(str::to_owned);
    assert_eq!(missing(&named, &BTreeSet::from(known.clone())), [""; 0]);
    assert_eq!(missing(&named, &BTreeSet::from([known[1].clone()])), ["late_commit_is_not_skipped"]);
}

#[test]
fn only_functions_and_listed_cases_count_as_tests() {
    assert_eq!(functions_of("    async fn late_commit_is_not_skipped() {"), ["late_commit_is_not_skipped"]);
    assert_eq!(functions_of("    inbox_discards_duplicates, redrive_frees_its_key,").len(), 2);
    assert_eq!(functions_of("    missing_row_is_detected: NoRow => \"lost\","), ["missing_row_is_detected"]);
    assert_eq!(functions_of("caught!(missing_row_is_detected, 7);"), ["missing_row_is_detected"]);
    assert_eq!(functions_of("    // fn late_commit_is_not_skipped, see there").len(), 0);
    assert_eq!(functions_of("    let late_commit_is_not_skipped = 1;").len(), 0);
}

/// Returns the names in code style that look like tests, sorted. A trailing `…` stands for any ending.
fn named_tests(page: &str) -> Vec<String> {
    let is_name = |text: &&str| {
        let name = text.trim_end_matches('…');
        name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
            && name.split('_').filter(|word| !word.is_empty()).count() >= WORDS
    };
    let quoted = page.split('`').skip(1).step_by(2);
    quoted.filter(is_name).map(str::to_owned).collect::<BTreeSet<_>>().into_iter().collect()
}

fn missing<'a>(named: &'a [String], known: &BTreeSet<String>) -> Vec<&'a str> {
    let exists = |name: &str| match name.strip_suffix('…') {
        Some(prefix) => known.range(prefix.to_owned()..).next().is_some_and(|name| name.starts_with(prefix)),
        None => known.contains(name),
    };
    named.iter().map(String::as_str).filter(|name| !exists(name)).collect()
}

/// Returns the names of the functions in the Rust sources, and of the cases that macros turn into functions.
fn functions(root: &Path) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut folders = ["crates", "brokers", "databases", "examples", "tests"].map(|folder| root.join(folder)).to_vec();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.extend((!path.ends_with("target")).then_some(path));
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(path).unwrap();
                text.lines().for_each(|line| names.extend(functions_of(line)));
            }
        }
    }
    names
}

/// Returns the functions that a line of Rust declares, and the cases that it lists for a macro: words alone, one word
/// before a colon, or the first argument.
fn functions_of(line: &str) -> Vec<String> {
    let code = line.split("//").next().unwrap_or_default();
    let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    if code.chars().all(|c| is_word(c) || c == ',' || c == ' ') {
        return code.split([',', ' ']).filter(|word| !word.is_empty()).map(str::to_owned).collect();
    }
    let word = |text: &str| -> String { text.chars().take_while(|c| is_word(*c)).collect() };
    let is_name = |text: &&str| text.chars().all(is_word);
    let case = code.trim_start().split_once(": ").map(|(name, _)| name).filter(is_name);
    let argument = code.split_once("!(").map(|(_, rest)| word(rest));
    code.split("fn ").skip(1).map(word).chain(case.map(str::to_owned)).chain(argument).collect()
}
