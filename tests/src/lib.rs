//! What the whole-system tests are made of: a worker process that plays every part of the story (`worker`, `writer`,
//! `handler`), places where it dies (`failpoint`), bugs that can be planted in it (`plant`), and the harness in the
//! test's own process that starts it, kills it, lets it drain and judges what is left (`world`).
//!
//! The scenarios stand in `crash/` (a process is killed) and `chaos/` (several processes, some of them paused). `soak`
//! is everything at once; its command is the binary of that name, and `soak/` runs it as a test.

pub mod books;
pub mod failpoint;
pub mod guards;
pub mod handler;
pub mod history;
pub mod life;
pub mod parent;
pub mod plant;
pub mod remains;
pub mod service;
pub mod setup;
pub mod soak;
pub mod verdict;
pub mod worker;
pub mod world;
pub mod writer;

pub use failpoint::Failpoint;
pub use history::Event;
pub use life::{Death, Life, PATIENCE};
pub use plant::Plant;
pub use service::Service;
pub use setup::{BrokerAddress, GROUP, Role, Setup, TOPIC};
pub use worker::Adapter;
pub use world::World;
