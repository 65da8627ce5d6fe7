//! `landfall demo`: a shop of three services under faults, and its account.

use std::io::IsTerminal;
use std::path::PathBuf;

use clap::Args;
use tokio::signal::unix::{SignalKind, signal};

use crate::config;
use crate::demo::{self, Account, Folder, Screen, Story};
use crate::error::{Error, Result};
use crate::output::Output;

const INTRO: &str = "\
A shop of three services: orders are placed, stock is reserved, customers are
charged. Each service has its own database, and one log connects them. The process
is now killed again and again, messages arrive twice, and some orders fail until an
operator repairs the cause. At the end every order and every effect is counted.
";

/// The number of faults printed; a broken machine may cause thousands.
const FINDINGS: usize = 20;

/// Watch a shop survive crashes, duplicates and poison messages, and check its books at the end.
///
/// Three services, each with its own SQLite database, exchange messages through the embedded log. They run in one
/// process that is killed with SIGKILL at random moments. The account at the end is computed from the databases and the
/// log. The exit code is 1 if an effect is lost, doubled or out of order.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  landfall demo
  landfall demo --orders 5000 --once
  landfall demo --data ./shop --once --json | jq .lost
  landfall dlq list --database-url sqlite:shop/stock.db")]
pub(crate) struct Demo {
    /// Number of orders to place.
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    orders: u32,
    /// Run in this folder and keep it; an interrupted demo resumes there. Default: a temporary folder.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Exit after the account instead of serving it as a web page; the default without a terminal.
    #[arg(long)]
    once: bool,
    /// Print the account as one JSON object.
    #[arg(long)]
    json: bool,
    /// Seed of the orders and of the crash plan; random by default.
    #[arg(long, value_name = "SEED")]
    seed: Option<u64>,
}

impl Demo {
    pub(crate) async fn run(self) -> Result<()> {
        let mut folder = Folder::open(self.data, self.orders, self.seed).map_err(demo_error)?;
        let screen = Screen::new(folder.story());
        screen.print(INTRO);
        screen.print(&format!("{} orders, seed {}", self.orders, folder.story().seed));

        let directed = tokio::select! {
            directed = demo::run(&folder, &screen) => directed.map_err(demo_error),
            () = interrupted() => {
                screen.clear();
                return Err(Error::failed("the demo was interrupted, so there is no account"));
            }
        };
        screen.clear();
        if !directed.as_ref().is_ok_and(Account::balances) {
            folder.keep();
            let path = folder.path().display();
            screen.print(&format!("The data of this run is kept in {path}; start with world.log."));
        }
        let account = directed?;
        print(&account, self.json, &screen)?;
        let is_watched = std::io::stdout().is_terminal() && std::io::stderr().is_terminal();
        if is_watched && !self.once {
            demo::serve_until_interrupted(&account, &screen).await.map_err(demo_error)?;
        }
        if account.balances() { Ok(()) } else { Err(Error::failed("the account does not balance")) }
    }
}

fn print(account: &Account, json: bool, screen: &Screen) -> Result<()> {
    for finding in account.findings.iter().take(FINDINGS) {
        screen.print(&format!("  wrong: {finding}"));
    }
    if account.findings.len() > FINDINGS {
        screen.print(&format!("  and {} more", account.findings.len() - FINDINGS));
    }
    let mut output = Output::new();
    if json {
        output.json(account)?;
    } else {
        output.line(&account.table())?;
    }
    output.flush()
}

/// Returns on Ctrl-C or SIGTERM: the demo then removes its temporary folder and prints no account.
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

/// Converts an error of the demo, keeping its exit code.
fn demo_error(error: Box<dyn std::error::Error + Send + Sync>) -> Error {
    let error = match error.downcast::<Error>() {
        Ok(error) => return *error,
        Err(error) => error,
    };
    match error.downcast::<landfall::Error>() {
        Ok(error) => (*error).into(),
        Err(error) => Error::failed(format!("the demo failed: {error}")),
    }
}

/// The child process of `landfall demo`; not for direct use.
#[derive(Debug, Args)]
pub(crate) struct DemoWorld {
    #[arg(long)]
    data: PathBuf,
    #[arg(long)]
    orders: u32,
    #[arg(long)]
    seed: u64,
    /// How often the child process was killed before.
    #[arg(long)]
    life: u64,
}

impl DemoWorld {
    pub(crate) async fn run(self) -> Result<()> {
        crate::logging::start(&config::Log::default());
        let story = Story { orders: self.orders, seed: self.seed };
        demo::run_services(&self.data, story, self.life).await.map_err(demo_error)
    }
}
