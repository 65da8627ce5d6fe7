//! `soak`: faults against a database, for as long as you like, and a verdict. `docs/operate/soak.md` tells how to read
//! it.
//!
//! The same program plays the parts of the story in processes of their own (`soak play JSON`, started by itself).
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command talks to people")]

use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};
use landfall_system_tests::parent;
use landfall_system_tests::soak::{DatabaseKind, Figures, Options, Order, Part, SoakPlant, run, worker};

/// Kills, pauses, restarts and cuts everything around an outbox, and tells what was lost, made up, doubled or put out
/// of order: nothing, or it exits with 1.
#[derive(Debug, Parser)]
#[command(name = "soak", args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    /// sqlite, postgres or mysql; may be given several times. All of them, one after the other, if it is not given.
    #[arg(long, value_name = "NAME")]
    database: Vec<DatabaseKind>,
    /// What the relays keep in order: key, or none, where they compete for single messages (not on sqlite) and only what is
    /// lost, made up or doubled is a fault.
    #[arg(long, value_name = "ORDER", default_value_t = Order::Key)]
    order: Order,
    /// How long there is trouble on each of them.
    #[arg(long, value_name = "N", default_value_t = 10.0)]
    minutes: f64,
    /// Decides who is struck when, as far as processes allow. A random one, which is printed, if it is not given.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// One JSON object a line on stdout, for each database.
    #[arg(long)]
    json: bool,
    /// A bug in the processes, to see it found: one-epoch-for-all, settle-what-failed, split-rows,
    /// remember-position or retry-blindly.
    #[arg(long, value_name = "BUG")]
    plant: Option<SoakPlant>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Plays one part, in a process that the soak started.
    #[command(hide = true)]
    Play { part: String },
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Some(database) = arguments.database.iter().find(|database| !arguments.order.is_possible_on(**database)) {
        let sentence = format!("relays cannot compete for messages on {database}: it locks no rows");
        Arguments::command().error(ErrorKind::ArgumentConflict, sentence).exit();
    }
    let level = if arguments.command.is_some() { tracing::Level::WARN } else { tracing::Level::ERROR };
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_max_level(level).with_ansi(false).init();
    let result = match &arguments.command {
        Some(Command::Play { part }) => {
            parent::end_with_the_parent();
            play(part).map(|()| true)
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
async fn play(part: &str) -> Result<(), Box<dyn std::error::Error>> {
    let part: Part = serde_json::from_str(part)?;
    Ok(worker::play(part, parent::told_to_stop()?).await?)
}

#[tokio::main(worker_threads = 2)]
async fn soak(arguments: &Arguments) -> Result<bool, Box<dyn std::error::Error>> {
    let mut databases = arguments.database.clone();
    if databases.is_empty() {
        databases.extend(DatabaseKind::ALL.into_iter().filter(|database| arguments.order.is_possible_on(*database)));
    }
    let duration = Duration::try_from_secs_f64(arguments.minutes * 60.0)?;
    let seed = arguments.seed.unwrap_or_else(|| rand::random_range(0..1_000_000));
    let mut is_clean = true;
    for database in databases {
        let mut options = Options::new(database, duration, seed, std::env::current_exe()?);
        (options.order, options.progress, options.plant) = (arguments.order, progress, arguments.plant);
        let figures = run(&options).await?;
        end_of_progress();
        show(&figures, arguments.json)?;
        is_clean &= figures.is_clean();
    }
    Ok(is_clean)
}

fn show(figures: &Figures, json: bool) -> Result<(), Box<dyn std::error::Error>> {
    match json {
        true => println!("{}", serde_json::to_string(figures)?),
        false => print!("{figures}"),
    }
    Ok(())
}

/// One line that stays where it is; nothing where nobody watches.
fn progress(_share: f64, line: &str) {
    if std::io::stderr().is_terminal() {
        eprint!("\r\x1b[K{line}");
    }
}

fn end_of_progress() {
    if std::io::stderr().is_terminal() {
        eprint!("\r\x1b[K");
    }
}
