//! Tools for tests around Landfall: private servers, conformance suites, an in-memory broker, a history checker, and
//! child processes to kill. Landfall's own tests use them, and so can the tests of a service that uses Landfall.
//!
//! | you want to | use |
//! |---|---|
//! | test code that publishes or consumes, without a server | [`MemoryBroker`], with a [`Fault`] on demand |
//! | inject duplicates, delays, reordering and lost acknowledgements | [`chaos`] |
//! | publish to one broker from several processes | [`remote::PublishServer`] and [`remote::RemotePublisher`] |
//! | consume from it in another process | [`remote::DeliverServer`] and [`remote::RemoteBroker`] |
//! | check whether a run lost, doubled, reordered or invented messages | [`history`] |
//! | run a load over a broker under faults, and check its history | [`traffic`] |
//! | check that a handler takes effect once, repeated, concurrent and cancelled | [`assert_idempotent`] |
//! | start, pause, stop and kill a real process | [`Process`] |
//! | wait for a condition instead of sleeping | [`eventually`] |
//! | run a test on a nearly full disk | [`run_on_a_small_disk`] |
//! | cut, delay, blackhole or refuse connections to a server, even during a `COMMIT` | [`proxy`] |
//! | get an empty PostgreSQL or MariaDB database, one behind PgBouncer, or a server to kill | [`servers`] |
//! | test that an adapter keeps the contract of its port | [`conformance`] |
//! | test that messages of other programs with bad headers block nothing | [`hostile`] |
//!
//! # Servers
//!
//! [`servers`] starts private servers from the programs installed on the machine, each with its own port and folder.
//! They are stopped and removed when the test process ends, even by SIGKILL. `LANDFALL_TEST_POSTGRES_URL` and
//! `LANDFALL_TEST_MYSQL_URL` name an external server to use instead. A test that finds no server calls [`not_run`] and
//! returns: it is then reported by name as skipped, and fails with `CI=true`.
//!
//! # A new adapter
//!
//! Implement [`conformance::database::DatabaseFixture`] or [`conformance::broker::BrokerFixture`] in one file under the
//! adapter's `tests/` and call [`database_conformance!`] or [`broker_conformance!`]. Every promise of the ports becomes
//! a test of your crate. The suites are tested too: `tests/testkit/*_planted_bugs.rs` contain brokers and databases
//! with one bug each, and name the cases that detect it.

pub mod chaos;
pub mod conformance;
pub mod hostile;
mod idempotent;
mod memory_broker;
mod not_run;
mod process;
pub mod proxy;
pub mod relay_steps;
pub mod remote;
pub mod servers;
mod small_disk;
pub mod traffic;
mod wait;

pub use idempotent::{assert_idempotent, assert_idempotent_when_killed};
pub use landfall_core::history::{self, VIOLATION, assert_no_violation};
pub use memory_broker::{Fault, MemoryBroker};
pub use not_run::{NOT_RUN_FILE, REQUIRE_SERVERS, current_test, not_possible_here, not_run};
pub use process::Process;
pub use small_disk::{SMALL_DISK, run_on_a_small_disk};
pub use wait::eventually;
