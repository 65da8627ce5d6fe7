//! The daemon's log: lines on stderr, as text or JSON.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use crate::config::{Log, LogFormat};

/// Installs the log subscriber that `[log]` configures.
pub(crate) fn start(log: &Log) {
    let filter = EnvFilter::builder().parse_lossy(without_clients(&log.level));
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

/// Crates whose lines are silenced. Landfall reports what their errors mean, and RabbitMQ's client prints the payload
/// of every returned message.
const CLIENTS: [&str; 4] = ["lapin", "sqlx", "librdkafka", "async_nats"];

/// Silences the lines of the clients of databases and brokers. A client that the filter names is left as it is.
fn without_clients(level: &str) -> String {
    let silenced = CLIENTS.iter().filter(|client| !level.contains(**client)).map(|client| format!(",{client}=off"));
    level.to_owned() + &silenced.collect::<String>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_lines_are_silenced_unless_named() {
        assert_eq!(without_clients("info"), "info,lapin=off,sqlx=off,librdkafka=off,async_nats=off");
        assert_eq!(
            without_clients("info,sqlx::query=debug,lapin=warn"),
            "info,sqlx::query=debug,lapin=warn,librdkafka=off,async_nats=off"
        );
    }
}
