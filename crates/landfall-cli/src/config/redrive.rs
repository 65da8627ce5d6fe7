//! `[redrive]`: the guards of redrives, and when a redrive job stops by itself.

use std::time::Duration;

use landfall::{RedriveGuards, StopRule};

use super::Config;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Redrive {
    /// Without `max_age`, which follows from `[retention]`.
    pub(crate) guards: RedriveGuards,
    pub(crate) stop: StopRule,
}

/// The longest cool-down and the longest automatic block.
pub(super) const LONGEST: Duration = Duration::from_secs(30 * 24 * 3600);

impl Config {
    pub(crate) fn redrive_guards(&self) -> RedriveGuards {
        RedriveGuards { max_age: self.retention_plan().dead_letters.time(), ..self.redrive.guards.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Environment;
    use super::*;

    fn load(lines: &str) -> crate::error::Result<Config> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("landfall.toml");
        std::fs::write(&file, format!("[redrive]\n{lines}\n")).unwrap();
        Config::load(Some(file), &Environment::new([]), &[])
    }

    #[test]
    fn limits_of_redrives_are_configured() {
        let lines = "limit = 4\ncool_down = \"5m\"\nblock_after = 2\nblock_for = \"2h\"\nstop_percent = 20\n\
                     stop_after = 50\nstop_on_new_error = false";
        let config = load(lines).unwrap();
        let guards = config.redrive_guards();
        assert_eq!((guards.max_redrives, guards.block_after), (4, 2));
        assert_eq!((guards.cool_down.as_secs(), guards.block_for.as_secs()), (300, 7200));
        assert_eq!(guards.max_age, config.retention_plan().dead_letters.time());
        let stop = StopRule { failed_percent: 20, at_least: 50, on_new_fingerprint: false };
        assert_eq!(config.redrive.stop, stop);
    }

    #[test]
    fn limits_out_of_range_are_refused_by_name() {
        for line in ["limit = 0", "cool_down = \"31d\"", "block_after = 0", "stop_percent = 101", "stop_after = 0"] {
            let error = load(line).unwrap_err().to_string();
            let name = line.split(' ').next().unwrap();
            assert!(error.contains(&format!("redrive.{name}")), "{line}: {error}");
        }
    }
}
