//! `soak`: injects faults around an outbox for as long as requested and checks the result. `docs/operate/soak.md`
//! explains the output.
//!
//! The command starts itself for each process of the soak (`soak process JSON`).
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command prints")]

use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};
use landfall_system_tests::parent;
use landfall_system_tests::soak::{
    BrokerKind, DatabaseKind, Figures, Options, Order, ProcessConfig, SoakBug, run, worker,
};

/// Kills, pauses, restarts and disconnects everything around an outbox, and reports messages that were lost, invented,
/// duplicated or out of order. Exits with 1 if there are any.
#[derive(Debug, Parser)]
#[command(name = "soak", args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    /// sqlite, postgres or mysql; may be repeated. Default: all of them, one after the other; over another broker than
    /// memory, postgres.
    #[arg(long, value_name = "NAME")]
    database: Vec<DatabaseKind>,
    /// memory, kafka, rabbitmq, nats or redis; may be repeated. All but memory are private servers to which daemons
    /// publish; build the daemon first: cargo build --release -p landfall-cli --features full.
    #[arg(long, value_name = "NAME", default_value = "memory")]
    broker: Vec<BrokerKind>,
    /// The order that the relays keep: key, or none. With none they compete for single messages (not on sqlite), and
    /// only lost, invented or duplicated messages count as faults.
    #[arg(long, value_name = "ORDER", default_value_t = Order::Key)]
    order: Order,
    /// Minutes of fault injection on each database.
    #[arg(long, value_name = "N", default_value_t = 10.0)]
    minutes: f64,
    /// Determines when each process is hit, as far as scheduling allows. Default: random; the seed is printed.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Print one JSON object per line for each database.
    #[arg(long)]
    json: bool,
    /// Plant a bug in the processes to see it detected: one-epoch-for-all, settle-what-failed, split-rows,
    /// remember-position, retry-blindly, skip-inbox or acknowledge-early.
    #[arg(long = "plant", value_name = "BUG")]
    planted_bug: Option<SoakBug>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs one process of a soak; the soak starts it.
    #[command(hide = true)]
    Process { config: String },
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Some(database) = arguments.database.iter().find(|database| !arguments.order.is_possible_on(**database)) {
        let message = format!("relays cannot compete for messages on {database}: it has no row locks");
        Arguments::command().error(ErrorKind::ArgumentConflict, message).exit();
    }
    if arguments.planted_bug.is_some_and(SoakBug::is_in_relay) && arguments.broker != [BrokerKind::Memory] {
        let message = "this bug is in the relay of the library; over a broker's server a daemon relays";
        Arguments::command().error(ErrorKind::ArgumentConflict, message).exit();
    }
    let level = if arguments.command.is_some() { tracing::Level::WARN } else { tracing::Level::ERROR };
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_max_level(level).with_ansi(false).init();
    let result = match &arguments.command {
        Some(Command::Process { config }) => {
            parent::exit_with_parent();
            run_process(config).map(|()| true)
        }
        None => soak(&arguments),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "soak: {error}");
            ExitCode::FAILURE
        }
    }
}

#[tokio::main(worker_threads = 2)]
async fn run_process(config: &str) -> Result<(), Box<dyn std::error::Error>> {
    let config: ProcessConfig = serde_json::from_str(config)?;
    Ok(worker::run(config, parent::stop_on_sigterm()?).await?)
}

#[tokio::main(worker_threads = 2)]
async fn soak(arguments: &Arguments) -> Result<bool, Box<dyn std::error::Error>> {
    let duration = Duration::try_from_secs_f64(arguments.minutes * 60.0)?;
    let seed = arguments.seed.unwrap_or_else(|| rand::random_range(0..1_000_000));
    let mut is_clean = true;
    for broker in arguments.broker.iter().copied() {
        for database in arguments.databases(broker) {
            let mut options = Options::new(database, duration, seed, std::env::current_exe()?).over(broker);
            (options.order, options.progress, options.planted_bug) = (arguments.order, progress, arguments.planted_bug);
            let figures = run(&options).await?;
            clear_progress();
            show(&figures, arguments.json)?;
            is_clean &= figures.is_clean();
        }
    }
    Ok(is_clean)
}

impl Arguments {
    fn databases(&self, broker: BrokerKind) -> Vec<DatabaseKind> {
        match broker {
            _ if !self.database.is_empty() => self.database.clone(),
            BrokerKind::Memory => {
                DatabaseKind::ALL.into_iter().filter(|database| self.order.is_possible_on(*database)).collect()
            }
            _ => vec![DatabaseKind::Postgres],
        }
    }
}

fn show(figures: &Figures, json: bool) -> Result<(), Box<dyn std::error::Error>> {
    match json {
        true => println!("{}", serde_json::to_string(figures)?),
        false => print!("{figures}"),
    }
    Ok(())
}

/// Rewrites one line on a terminal; prints nothing elsewhere.
fn progress(_share: f64, line: &str) {
    if std::io::stderr().is_terminal() {
        eprint!("\r\x1b[K{line}");
    }
}

fn clear_progress() {
    if std::io::stderr().is_terminal() {
        eprint!("\r\x1b[K");
    }
}
