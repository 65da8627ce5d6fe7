//! `landfall demo`: the story of orders, stock and payment, and its account.

use std::io::IsTerminal;
use std::path::PathBuf;

use clap::Args;
use tokio::signal::unix::{SignalKind, signal};

use crate::config;
use crate::demo::{self, Account, Folder, Screen, Story};
use crate::error::{Error, Result};
use crate::output::Output;

const INTRO: &str = "\
A shop at work: orders are placed, stock is reserved, customers are charged. That
is three services with a database each, and one log between them, in a process
that is now killed again and again, while messages arrive twice and some orders
cannot be handled until somebody steps in. At the end everything is counted.
";

/// What is wrong is said in so many sentences; a machine that is broken breaks thousands of things.
const FINDINGS: usize = 20;

/// Watch a shop survive crashes, duplicates and poison messages, and check its books at the end.
///
/// Three services, each with a SQLite database of its own, send each other messages through the embedded log, all in
/// one process that is killed with SIGKILL at random moments. The account at the end is taken from the databases and
/// the log. The exit code is 1 unless nothing is lost, doubled or out of order.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  landfall demo
  landfall demo --orders 5000 --once
  landfall demo --data ./shop --once --json | jq .lost
  landfall dlq list --database-url sqlite:shop/stock.db")]
pub(crate) struct Demo {
    /// How many orders are placed.
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    orders: u32,
    /// Do it in this folder and keep it; a demo that was interrupted there goes on. Without it: a temporary folder.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// End after the account instead of leaving it open in the browser; always so without a terminal.
    #[arg(long)]
    once: bool,
    /// Print the account as one JSON object.
    #[arg(long)]
    json: bool,
    /// Which orders are placed and when the process is killed; random where none is given.
    #[arg(long, value_name = "SEED")]
    seed: Option<u64>,
}

impl Demo {
    pub(crate) async fn run(self) -> Result<()> {
        let mut folder = Folder::open(self.data, self.orders, self.seed).map_err(sentence)?;
        let screen = Screen::new(folder.story());
        screen.say(INTRO);
        screen.say(&format!("{} orders, seed {}", self.orders, folder.story().seed));

        let directed = tokio::select! {
            directed = demo::direct(&folder, &screen) => directed.map_err(sentence),
            () = interrupted() => {
                screen.clear();
                return Err(Error::not_so("the demo was stopped before its end, so there is no account"));
            }
        };
        screen.clear();
        if !directed.as_ref().is_ok_and(Account::balances) {
            folder.keep();
            screen.say(&format!("Whatever happened is in {}; world.log is a good beginning.", folder.path().display()));
        }
        let account = directed?;
        print(&account, self.json, &screen)?;
        let is_watched = std::io::stdout().is_terminal() && std::io::stderr().is_terminal();
        if is_watched && !self.once {
            demo::leave_open(&account, &screen).await.map_err(sentence)?;
        }
        if account.balances() { Ok(()) } else { Err(Error::not_so("the account does not balance")) }
    }
}

fn print(account: &Account, json: bool, screen: &Screen) -> Result<()> {
    for finding in account.findings.iter().take(FINDINGS) {
        screen.say(&format!("  wrong: {finding}"));
    }
    if account.findings.len() > FINDINGS {
        screen.say(&format!("  and {} more", account.findings.len() - FINDINGS));
    }
    let mut output = Output::new();
    if json {
        output.json(account)?;
    } else {
        output.line(&account.table())?;
    }
    output.flush()
}

/// Ctrl-C, or a polite request to end: the folder is tidied up and nothing is accounted for.
async fn interrupted() {
    let terminated = async {
        match signal(SignalKind::terminate()) {
            Ok(mut terminated) => drop(terminated.recv().await),
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        () = terminated => {}
    }
}

/// What went wrong inside the demo, with the exit code it stands for.
fn sentence(error: Box<dyn std::error::Error + Send + Sync>) -> Error {
    let error = match error.downcast::<Error>() {
        Ok(error) => return *error,
        Err(error) => error,
    };
    match error.downcast::<landfall::Error>() {
        Ok(error) => (*error).into(),
        Err(error) => Error::not_so(format!("the demo cannot go on: {error}")),
    }
}

/// The child process of `landfall demo`; of no use without it.
#[derive(Debug, Args)]
pub(crate) struct DemoWorld {
    #[arg(long)]
    data: PathBuf,
    #[arg(long)]
    orders: u32,
    #[arg(long)]
    seed: u64,
    /// How often the world was killed before.
    #[arg(long)]
    life: u64,
}

impl DemoWorld {
    pub(crate) async fn run(self) -> Result<()> {
        crate::logging::start(&config::Log::default());
        let story = Story { orders: self.orders, seed: self.seed };
        demo::live(&self.data, story, self.life).await.map_err(sentence)
    }
}
