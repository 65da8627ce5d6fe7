//! `landfall demo`: three services with three databases and one log, under crashes, duplicates and poison messages.
//!
//! ```text
//!                    ┌──────────── the world: one child process, killed with SIGKILL again and again ────────────┐
//!                    │                                                                                           │
//!                    │   orders ───"orders"───▶ stock ───"stock.reserved"───▶ payment ───"payments"───▶ orders   │
//!                    │   places an order        reserves it                   charges for it            is paid  │
//!                    │                                                                                           │
//!                    └───────────────────────────────────────────────────────────────────────────────────────────┘
//!   the director     starts the world, kills it, redrives parked messages, and waits until everything has drained
//!   the account      is computed at the end from the databases and the log alone
//! ```
//!
//! Read it in this order:
//!
//! * [`story`]: the orders and the faults, derived from the seed;
//! * [`orders`], [`stock`], [`payment`]: the services, as an application writes them with the `landfall` crate;
//! * [`shop`]: what they share; [`world`]: their child process; [`duplicates`]: its unreliable broker;
//! * [`director`] with [`crashes`], [`repair`], [`progress`] and [`unread`]: the parent process;
//! * [`evidence`], [`check`] and [`account`]: the data found on disk, the checks on it, and the totals.
//!
//! The services do not know that they are part of a demo, except for the lines marked *on purpose*.

mod account;
mod check;
mod crashes;
mod director;
mod duplicates;
mod evidence;
mod folder;
mod orders;
mod page;
mod payment;
mod progress;
mod repair;
mod shop;
mod stock;
mod story;
mod unread;
mod world;

pub(crate) use account::Account;
pub(crate) use director::run;
pub(crate) use folder::Folder;
pub(crate) use page::serve_until_interrupted;
pub(crate) use progress::Screen;
pub(crate) use story::Story;
pub(crate) use world::run_services;

/// The demo's errors come from SQL, the log, files and processes; each ends the demo with one sentence.
pub(crate) type Result<T, E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;
