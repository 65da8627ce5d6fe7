//! Where the daemon's log lines go: stderr, as text or JSON.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use crate::config::{Log, LogFormat};

/// For the daemon: what `[log]` says.
pub(crate) fn start(log: &Log) {
    let filter = EnvFilter::builder().parse_lossy(quiet(&log.level));
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    // A second start in one process (a test) keeps the first: there is one stderr.
    let _ = match log.format {
        LogFormat::Text => subscriber.try_init(),
        LogFormat::Json => subscriber.json().try_init(),
    };
}

/// RabbitMQ's client warns of every message that comes back, with what is in it; nobody's payload belongs into a log
/// unless somebody asks for it by name.
fn quiet(level: &str) -> String {
    match level.contains("lapin") {
        true => level.to_owned(),
        false => format!("{level},lapin=error"),
    }
}
