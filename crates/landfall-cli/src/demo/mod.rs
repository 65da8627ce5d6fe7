//! The story of `landfall demo`: three services, three databases, one log, and everything that can go wrong.
//!
//! ```text
//!                    ┌──────────── the world: one child process, killed with SIGKILL again and again ────────────┐
//!                    │                                                                                           │
//!                    │   orders ───"orders"───▶ stock ───"stock.reserved"───▶ payment ───"payments"───▶ orders   │
//!                    │   places an order        reserves it                   charges for it            is paid  │
//!                    │                                                                                           │
//!                    └───────────────────────────────────────────────────────────────────────────────────────────┘
//!   the director     starts the world, kills it, repairs what was parked, and waits until everything has drained
//!   the account      is taken at the end from the databases and the log alone
//! ```
//!
//! Read it in this order:
//!
//! * [`story`]: what is ordered, and what is going to go wrong with it;
//! * [`orders`], [`stock`], [`payment`]: the services, as anybody would write them with the `landfall` crate;
//! * [`shop`]: what they share; [`world`]: the child process they live in; [`duplicates`]: its unreliable broker;
//! * [`director`] with [`crashes`], [`repair`], [`progress`] and [`unread`]: the parent process;
//! * [`evidence`], [`check`] and [`account`]: what is found on the disk, what is wrong with it, and the sum of it all.
//!
//! Nothing in the services knows that it is part of a demo, except for the lines marked *on purpose*.

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
pub(crate) use director::direct;
pub(crate) use folder::Folder;
pub(crate) use page::leave_open;
pub(crate) use progress::Screen;
pub(crate) use story::Story;
pub(crate) use world::live;

/// In here errors come from SQL, the log, files and processes alike, and all of them end the demo with a sentence.
pub(crate) type Result<T, E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;
