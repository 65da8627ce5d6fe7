//! Kafka adapter of Landfall.
//!
//! * **Accepted** means that all in-sync replicas have the message (`acks=all`), at least `min.insync.replicas` of
//!   them.
//!   Kafka answers before it syncs to disk: replicas on several machines protect against a power failure.
//! * **Order** holds per key. The messages of a key go to one partition, the same that Java clients choose, and the
//!   idempotent producer numbers its requests.
//! * **Deduplication**: the cluster recognizes retried requests of one producer, so a lost answer causes no duplicate.
//!   A message that is published again, for example after a crash of the relay, is stored again. The inbox rejects it.
//!
//! `docs/operate/brokers/kafka.md` documents the URL's parameters and what to monitor.

mod administration;
mod broker;
mod client;
mod config;
mod doctor;
mod error;
mod publisher;
mod reader;
mod subscriber;
mod topics;
mod wire;

pub use broker::Kafka;
pub use config::{Acks, Options};
