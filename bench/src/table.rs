//! Turns samples into rows, and rows into the table.

use std::fmt::Write;
use std::time::Duration;

use serde::Serialize;

use crate::contest::Sample;
use crate::machine::Machine;

/// The result of a run.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) machine: Machine,
    pub(crate) software: Vec<String>,
    pub(crate) seconds: f64,
    pub(crate) rows: Vec<Row>,
    pub(crate) not_run: Vec<String>,
}

/// Landfall compared with one peer.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    name: String,
    unit: &'static str,
    landfall: f64,
    peer_name: String,
    peer: f64,
    /// Landfall's speed divided by the peer's, for each round: 1 is equal, below 1 is slower. For latencies it is the
    /// peer's time divided by Landfall's, so that it reads the same way.
    ratios: Vec<f64>,
    ratio: f64,
}

impl Row {
    fn new(name: String, unit: &'static str, landfall: f64, peer_name: String, peer: f64, ratios: Vec<f64>) -> Self {
        let ratio = median(&ratios);
        Self { name, unit, landfall, peer_name, peer, ratios, ratio }
    }

    fn to_markdown(&self) -> String {
        let Row { name, unit, peer_name, ratio, .. } = self;
        let (landfall, peer) = (figure(self.landfall), figure(self.peer));
        let least = self.ratios.iter().copied().fold(f64::INFINITY, f64::min);
        let most = self.ratios.iter().copied().fold(0.0, f64::max);
        format!("| {name} | {landfall} {unit} | {peer_name} | {peer} {unit} | {ratio:.2} | {least:.2}–{most:.2} |")
    }
}

/// One row per peer, from the samples of Landfall (the first) and its peers, as the contest returned them.
pub(crate) fn rate_rows(name: &str, unit: &'static str, peers: &[&str], samples: &[Vec<Sample>]) -> Vec<Row> {
    let rates: Vec<Vec<f64>> = samples.iter().map(|samples| samples.iter().map(rate).collect()).collect();
    let Some((landfall, others)) = rates.split_first() else { return Vec::new() };
    let row = |(peer_name, peer): (&&str, &Vec<f64>)| {
        let ratios = landfall.iter().zip(peer).map(|(landfall, peer)| landfall / peer).collect();
        Row::new(name.into(), unit, median(landfall), (*peer_name).into(), median(peer), ratios)
    };
    peers.iter().zip(others).map(row).collect()
}

/// Two rows per peer: median and 99th percentile. Both percentiles cover all rounds together.
pub(crate) fn latency_rows(name: &str, peers: &[&str], samples: &[Vec<Sample>]) -> Vec<Row> {
    quantile_rows(name, peers, samples, &[("p50", 0.50), ("p99", 0.99)])
}

/// Two rows per peer: 99th percentile and maximum, for operations that must never take long.
pub(crate) fn longest_rows(name: &str, peers: &[&str], samples: &[Vec<Sample>]) -> Vec<Row> {
    quantile_rows(name, peers, samples, &[("p99", 0.99), ("longest", 1.0)])
}

fn quantile_rows(name: &str, peers: &[&str], samples: &[Vec<Sample>], quantiles: &[(&str, f64)]) -> Vec<Row> {
    let Some((landfall, others)) = samples.split_first() else { return Vec::new() };
    let all =
        |samples: &[Sample], quantile| percentile(samples.iter().flat_map(latencies).copied().collect(), quantile);
    let one = |sample: &Sample, quantile| percentile(latencies(sample).to_vec(), quantile);
    let mut rows = Vec::new();
    for (peer_name, peer) in peers.iter().zip(others) {
        rows.extend(quantiles.iter().map(|&(label, quantile)| {
            let ratio = |(landfall, peer): (&Sample, &Sample)| one(peer, quantile) / one(landfall, quantile);
            let ratios = landfall.iter().zip(peer).map(ratio).collect();
            let (landfall, peer) = (all(landfall, quantile), all(peer, quantile));
            Row::new(format!("{name}, {label}"), "ms", landfall, (*peer_name).into(), peer, ratios)
        }));
    }
    rows
}

/// One row for a size that must not grow; a ratio below 1 means that it grew.
pub(crate) fn size_row(name: &str, unit: &'static str, landfall: f64, peer_name: &str, peer: f64) -> Row {
    Row::new(name.into(), unit, landfall, peer_name.into(), peer, vec![peer / landfall])
}

/// One row for a speed that must not fall.
pub(crate) fn speed_row(name: &str, unit: &'static str, landfall: f64, peer_name: &str, peer: f64) -> Row {
    Row::new(name.into(), unit, landfall, peer_name.into(), peer, vec![landfall / peer])
}

fn rate(sample: &Sample) -> f64 {
    match sample {
        Sample::Rate { operations, elapsed } => *operations as f64 / elapsed.as_secs_f64(),
        Sample::Latencies(each) => 1.0 / each.iter().sum::<Duration>().as_secs_f64() * each.len() as f64,
    }
}

fn latencies(sample: &Sample) -> &[Duration] {
    match sample {
        Sample::Latencies(each) => each,
        Sample::Rate { .. } => &[],
    }
}

/// The percentile in milliseconds.
fn percentile(mut each: Vec<Duration>, quantile: f64) -> f64 {
    each.sort();
    let index = ((each.len() as f64 * quantile).ceil() as usize).saturating_sub(1);
    each.get(index).map_or(f64::NAN, |latency| latency.as_secs_f64() * 1e3)
}

fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Formats three significant digits; a fourth would be noise.
fn figure(value: f64) -> String {
    match value {
        value if value >= 100_000.0 => format!("{:.0} k", value / 1e3),
        value if value >= 1_000.0 => format!("{:.1} k", value / 1e3),
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}

impl Report {
    pub(crate) fn new(machine: Machine, seconds: f64) -> Self {
        Self { machine, software: Vec::new(), seconds, rows: Vec::new(), not_run: Vec::new() }
    }

    pub(crate) fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_else(|error| format!("{{\"error\": {:?}}}", error.to_string()))
    }

    pub(crate) fn to_markdown(&self) -> String {
        let mut text = format!("{}\n", self.machine.sentence());
        if !self.software.is_empty() {
            let _ = writeln!(text, "{}", self.software.join(", "));
        }
        text.push_str("\n| measurement | Landfall | peer | peer's figure | ratio | over the rounds |\n");
        text.push_str("|---|---:|---|---:|---:|---:|\n");
        for row in &self.rows {
            let _ = writeln!(text, "{}", row.to_markdown());
        }
        text.push_str("\nRatio: Landfall's speed as a multiple of the peer's; 1 is as fast, below 1 is slower.\n");
        for what in &self.not_run {
            let _ = writeln!(text, "Not run: {what}.");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rates(rates: &[u64]) -> Vec<Sample> {
        rates.iter().map(|rate| Sample::Rate { operations: *rate, elapsed: Duration::from_secs(1) }).collect()
    }

    #[test]
    fn rate_row_compares_within_rounds_and_shows_medians() {
        let rows = rate_rows("x", "/s", &["bare"], &[rates(&[100, 300, 90]), rates(&[200, 300, 100])]);
        assert_eq!(rows.len(), 1);
        assert_eq!((rows[0].landfall, rows[0].peer), (100.0, 200.0));
        assert_eq!(rows[0].ratio, 0.9);
        assert_eq!(rows[0].to_markdown(), "| x | 100 /s | bare | 200 /s | 0.90 | 0.50–1.00 |");
    }

    #[test]
    fn doubled_latency_gives_a_ratio_of_one_half() {
        let sample = |millis: u64| vec![Sample::Latencies(vec![Duration::from_millis(millis); 10])];
        let rows = latency_rows("x", &["bare"], &[sample(4), sample(2)]);
        assert_eq!(rows.iter().map(|row| row.ratio).collect::<Vec<_>>(), [0.5, 0.5]);
        assert_eq!(rows[1].to_markdown(), "| x, p99 | 4.00 ms | bare | 2.00 ms | 0.50 | 0.50–0.50 |");
    }

    #[test]
    fn p99_of_a_hundred_samples_is_the_second_largest() {
        let each = (1..=100).map(Duration::from_millis).collect();
        assert_eq!(percentile(each, 0.99), 99.0);
    }
}
