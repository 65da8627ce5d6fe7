//! Tools for tests around Landfall.

mod not_run;
pub mod servers;
mod wait;

pub use not_run::{NOT_RUN_FILE, current_test, not_run};
pub use wait::eventually;
