//! The `landfall` command and daemon.
//!
//! Data goes to stdout, everything else to stderr. The exit code is 0 for success, 1 if the request cannot be met and 2
//! for wrong usage.
//!
//! [`commands`] has one file per subcommand, [`stores`] selects adapters by URL scheme, [`daemon`] is what `serve`
//! runs, and [`http`] holds its routes.

mod actor;
mod alerts;
mod archive;
mod audit_csv;
mod check_back;
mod commands;
mod config;
mod daemon;
mod demo;
mod error;
mod http;
mod logging;
mod output;
mod payload;
mod proxy;
mod push;
mod rehearsal;
mod stores;
mod topics;
mod units;

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;

use commands::Command;

/// Every message lands. Once.
///
/// A transactional outbox, a relay that preserves order per key, exactly-once consumers, and dead letters that can be
/// redriven.
///
/// Watch it work with `landfall demo`. Then run `landfall serve`: without any configuration it uses SQLite and the
/// embedded log under ./landfall-data.
#[derive(Debug, Parser)]
#[command(name = "landfall", version, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return report(&error::Error::failed(format!("cannot start the async runtime: {error}"))),
    };
    let result = runtime.block_on(arguments.command.run());
    // A blocked read of stdin must not keep the process alive.
    runtime.shutdown_background();
    result.map_or_else(|error| report(&error), |()| ExitCode::SUCCESS)
}

fn report(error: &error::Error) -> ExitCode {
    if !matches!(error, error::Error::OutputClosed) {
        // If stderr is closed too, the exit code still reports the failure.
        let _ = writeln!(std::io::stderr(), "landfall: {error}");
    }
    error.exit_code()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn command_line_definition_is_valid() {
        super::Arguments::command().debug_assert();
    }
}
