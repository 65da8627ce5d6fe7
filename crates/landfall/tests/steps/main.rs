//! The steps, each against a real database.

mod consume;
mod relay;
mod stage;
