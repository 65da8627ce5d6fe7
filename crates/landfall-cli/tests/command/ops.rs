//! The files in `ops/`: Prometheus rules, the Grafana dashboard, the systemd unit.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

use landfall_testkit::servers::services_folder;
use landfall_testkit::{current_test, not_possible_here, not_run};

fn ops(path: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../ops")).join(path)
}

fn read(path: &str) -> String {
    std::fs::read_to_string(ops(path)).unwrap()
}

/// Returns promtool of the services, or of the system.
fn promtool() -> Option<Command> {
    let own = services_folder().join("prometheus/promtool");
    let found = if own.exists() { own } else { PathBuf::from("promtool") };
    let works = Command::new(&found).arg("--version").output().is_ok_and(|output| output.status.success());
    works.then(|| Command::new(found))
}

/// Returns the metrics that PromQL in `text` names.
fn metrics_in(text: &str) -> BTreeSet<String> {
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_' && letter != ':');
    words.filter(|word| word.starts_with("landfall_")).map(str::to_owned).collect()
}

/// Returns the documented metrics: `landfall_dlq_size{topic,group}` is `landfall_dlq_size`. The page is compared with a
/// running daemon by `every_outbox_state_has_a_metric`.
fn documented() -> BTreeSet<String> {
    let page = include_str!("../../../../docs/reference/metrics.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `")?.split(" | ").next());
    rows.flat_map(metrics_in).collect()
}

fn undocumented(text: &str) -> Vec<String> {
    let known = documented();
    let is_known = |name: &String| {
        let histogram = ["_bucket", "_sum", "_count"].iter().find_map(|suffix| name.strip_suffix(suffix));
        known.contains(name) || histogram.is_some_and(|name| known.contains(name))
    };
    metrics_in(text).into_iter().filter(|name| !is_known(name)).collect()
}

#[test]
fn prometheus_rules_pass_their_tests() {
    if promtool().is_none() {
        return not_run(&current_test(), "promtool is not installed; run scripts/services");
    }
    for arguments in [["check", "rules", "landfall.rules.yml"], ["test", "rules", "landfall.test.yml"]] {
        let output = promtool().unwrap().args(arguments).current_dir(ops("prometheus")).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
    }
}

#[test]
fn rules_and_dashboard_name_only_known_metrics() {
    for path in ["prometheus/landfall.rules.yml", "prometheus/landfall.test.yml", "grafana/landfall.json"] {
        let text = read(path);
        assert!(!metrics_in(&text).is_empty(), "{path}");
        assert_eq!(undocumented(&text), [""; 0], "{path} names metrics that the daemon does not have");
    }
    assert_eq!(undocumented("max(landfall_dlq_sizes) + landfall_delivery_seconds_bucket"), ["landfall_dlq_sizes"]);
}

#[test]
fn every_rule_has_an_existing_runbook() {
    let rules = read("prometheus/landfall.rules.yml");
    let runbooks: Vec<&str> = rules.lines().filter_map(|line| line.trim().strip_prefix("runbook: ")).collect();
    assert_eq!(runbooks.len(), rules.matches("- alert: ").count());
    for page in runbooks {
        assert!(ops("..").join(page).exists(), "{page} does not exist");
    }
}

#[test]
fn every_panel_has_queries_and_a_place() {
    let dashboard: serde_json::Value = serde_json::from_str(&read("grafana/landfall.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let ids: BTreeSet<_> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
    assert_eq!(ids.len(), panels.len());
    for panel in panels {
        let queries = panel["targets"].as_array().unwrap();
        assert!(!queries.is_empty() && queries.iter().all(|query| query["expr"].is_string()), "{panel}");
        let place = &panel["gridPos"];
        let right = place["x"].as_u64().unwrap() + place["w"].as_u64().unwrap();
        assert!(right <= 24, "{panel}");
    }
}

#[test]
fn systemd_unit_is_valid() {
    let unit = ops("systemd/landfall.service");
    let verify = Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&unit).output();
    let Ok(output) = verify else {
        return not_possible_here(&current_test(), "this machine has no systemd");
    };
    let text = String::from_utf8_lossy(&output.stderr);
    let problems = text.lines().filter(|line| line.contains("landfall.service") && !line.contains("not executable"));
    assert_eq!(problems.collect::<Vec<_>>(), [""; 0]);
}
