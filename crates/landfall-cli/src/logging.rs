//! The daemon's log: lines on stderr, as text or JSON.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use crate::config::{Log, LogFormat};

/// Installs the log subscriber that `[log]` configures.
pub(crate) fn start(log: &Log) {
    let filter = EnvFilter::builder().parse_lossy(without_payloads(&log.level));
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    // A second call in one process, as in tests, keeps the first subscriber.
    let _ = match log.format {
        LogFormat::Text => subscriber.try_init(),
        LogFormat::Json => subscriber.json().try_init(),
    };
}

/// Silences the warnings of RabbitMQ's client, which print the payload of every returned message. A filter that names
/// `lapin` is left as it is.
fn without_payloads(level: &str) -> String {
    match level.contains("lapin") {
        true => level.to_owned(),
        false => format!("{level},lapin=error"),
    }
}
