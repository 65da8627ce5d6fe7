//! Tools for tests around Landfall: real servers, conformance suites, a broker in memory, a judge, and real processes
//! to kill. Landfall's own tests are built on them; most are just as useful in the tests of a service that uses it.
//!
//! | you want to | use |
//! |---|---|
//! | test code that publishes or consumes, without a server | [`MemoryBroker`], with a [`Fault`] on demand |
//! | let messages come twice, late, out of order and again after they were acknowledged | [`unruly`] |
//! | let several processes publish to one recording broker | [`remote::PublishServer`] and [`remote::RemotePublisher`] |
//! | let a consumer in another process read from it | [`remote::DeliverServer`] and [`remote::RemoteBroker`] |
//! | know whether a run lost, doubled, reordered or made up anything | [`history`] |
//! | keep messages flowing over a broker while something happens to it, and judge what became of them | [`traffic`] |
//! | start, pause, stop and kill a real process | [`Process`] |
//! | wait for a condition instead of sleeping | [`eventually`] |
//! | run a test where the disk is nearly full | [`run_on_a_small_disk`] |
//! | cut, delay or refuse connections to a server, a `COMMIT` in the middle included | [`proxy`] |
//! | have an empty PostgreSQL or MariaDB database, one behind PgBouncer, or a server to kill | [`servers`] |
//! | prove that an adapter keeps the contract of its port | [`conformance`] |
//!
//! # Servers
//!
//! Tests never share a server with anybody. [`servers`] starts private ones from the programs on the machine, each
//! with its own port and folder, and they are gone when the test process is, however it ended. A URL in the
//! environment (`LANDFALL_TEST_POSTGRES_URL`, `LANDFALL_TEST_MYSQL_URL`) replaces the private one. Where there is no server a test says so with
//! [`not_run`] and returns: it is then reported by name as not run.
//!
//! # A new adapter
//!
//! Implement [`conformance::database::DatabaseFixture`] or [`conformance::broker::BrokerFixture`] in one file under
//! the adapter's `tests/`, call [`database_conformance!`] or [`broker_conformance!`], and every promise of the ports
//! is a test of your crate. The suites are tested too: `tests/*_planted_bugs.rs` hold brokers and databases with one
//! bug each, and name the cases that catch it.

pub mod conformance;
pub mod history;
mod memory_broker;
mod not_run;
mod process;
pub mod proxy;
pub mod relay_steps;
pub mod remote;
pub mod servers;
mod small_disk;
pub mod traffic;
pub mod unruly;
mod wait;

pub use memory_broker::{Fault, MemoryBroker};
pub use not_run::{NOT_RUN_FILE, current_test, not_run};
pub use process::Process;
pub use small_disk::{SMALL_DISK, run_on_a_small_disk};
pub use wait::eventually;
