//! The `landfall` command and daemon.
//!
//! Data goes to stdout, everything else to stderr; the exit code is 0 for success, 1 for "the thing asked for is not
//! so" and 2 for wrong use. One verb is one file in [`commands`]; [`stores`] picks adapters by URL; [`daemon`] is what
//! `serve` runs, and [`http`] what it answers.

mod actor;
mod commands;
mod config;
mod daemon;
mod demo;
mod error;
mod http;
mod logging;
mod output;
mod payload;
mod push;
mod stores;
mod units;

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;

use commands::Command;

/// Every message lands. Once.
///
/// A transactional outbox, a relay that keeps the order per key, and dead letters that can be put back. See it with
/// `landfall demo`, then start with `landfall serve`: it needs nothing but this folder.
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
        Err(error) => return report(&error::Error::not_so(format!("the runtime could not be started: {error}"))),
    };
    let result = runtime.block_on(arguments.command.run());
    // A read of stdin that never ended must not keep the process from ending.
    runtime.shutdown_background();
    result.map_or_else(|error| report(&error), |()| ExitCode::SUCCESS)
}

fn report(error: &error::Error) -> ExitCode {
    if !matches!(error, error::Error::ReaderGone) {
        // When even stderr is gone there is nobody left to tell; the exit code still says it.
        let _ = writeln!(std::io::stderr(), "landfall: {error}");
    }
    error.exit_code()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed() {
        super::Arguments::command().debug_assert();
    }
}
