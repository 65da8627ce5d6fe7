//! Tools for tests around Landfall.

pub mod conformance;
pub mod history;
mod memory_broker;
mod not_run;
mod process;
pub mod remote;
pub mod servers;
mod wait;

pub use memory_broker::{Fault, MemoryBroker};
pub use not_run::{NOT_RUN_FILE, current_test, not_run};
pub use process::Process;
pub use wait::eventually;
