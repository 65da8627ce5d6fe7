//! The soak: all faults at once, for as long as requested, on a real server.
//!
//! ```text
//!   2 writer processes ─▶ proxy ─▶ producer's database ─▶ proxy ─▶ 3 relay processes ─┐
//!                                                                                     ▼
//!   operator process ─▶ both      consumer's database ◀─ proxy ◀─ consumer ◀─ broker (here)
//! ```
//!
//! The writers (`writer`) do everything that makes an outbox hard. Meanwhile `fault_injector` kills and pauses
//! processes, restarts the server and cuts connections, mostly during a `COMMIT`. Then all faults end, the backlog
//! drains within a bound, and `check` compares the committed messages with the effects.
//!
//! How the order of a key's commits is known: a writer locks the account's row first and numbers its messages inside
//! the same transaction (`ledger`). The numbers of the effects must be 1, 2, 3… per account.
//!
//! Over a private broker server (`broker_server`, behind one more proxy) it is the whole path as users run it: the
//! relays are two daemons (`landfall serve`), which also push every message to a receiver (`push_receiver`), and two
//! consumers share the group. The server is killed and paused too.
//!
//! A message is identified by the token of its operation, not by its id. A writer that repeats a committed operation
//! uses a new id, and no inbox could detect the duplicate.

pub mod broker;
pub mod broker_kind;
pub mod broker_server;
pub mod check;
pub mod database_kind;
mod doubled;
pub mod environment;
pub mod fault_injector;
pub mod figures;
pub mod handler;
pub mod leases;
pub mod ledger;
pub mod observed_queue;
pub mod options;
pub mod order;
pub mod planted_bug;
pub mod process_config;
pub mod processes;
pub mod push_receiver;
pub mod run;
pub mod test_run;
pub mod worker;
pub mod writer;

pub use broker_kind::BrokerKind;
pub use database_kind::DatabaseKind;
pub use fault_injector::Focus;
pub use figures::Figures;
pub use options::Options;
pub use order::Order;
pub use planted_bug::SoakBug;
pub use process_config::{ProcessConfig, ProcessRole};
pub use run::run;
