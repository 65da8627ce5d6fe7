//! Building blocks of the whole-system tests. A worker process runs all roles (`worker`, `writer`, `handler`), is
//! killed at failpoints (`failpoint`), and may have a planted bug (`planted_bug`). The `harness` in the test's own
//! process starts and kills workers, drains the system and checks the result.
//!
//! The tests are in `crash/` (a process is killed) and `chaos/` (several processes, some of them paused). `soak`
//! combines all faults; its command is the binary of that name, and `soak/` runs it as a test.

pub mod business_tables;
pub mod check_report;
pub mod failpoint;
pub mod guards;
pub mod half_worker;
pub mod handler;
pub mod harness;
pub mod history;
pub mod idempotent_worker;
pub mod parent;
pub mod planted_bug;
pub mod sequence_check;
pub mod service;
pub mod setup;
pub mod soak;
pub mod undelivered;
pub mod worker;
pub mod worker_process;
pub mod writer;

pub use failpoint::Failpoint;
pub use harness::Harness;
pub use history::Event;
pub use planted_bug::PlantedBug;
pub use service::Service;
pub use setup::{BrokerAddress, GROUP, Role, Setup, TOPIC};
pub use worker::Adapter;
pub use worker_process::{TIMEOUT, WorkerExit, WorkerProcess};
