//! Kafka behind the ports of Landfall.
//!
//! * **Accepted** means that every copy in step has the message (`acks=all`), which is at least as many as the topic's
//!   `min.insync.replicas`. Kafka answers before it syncs to disk: what guards against a power cut is that copies are on
//!   several machines.
//! * **Order** holds per key: a key's messages go to one partition, the one that Java's clients choose too, and the
//!   producer numbers what it sends.
//! * **Deduplication**: the cluster knows the requests of one producer again, so a lost answer doubles nothing. A message
//!   that is published once more, such as after a crash of the relay, is stored once more; the inbox turns it away.
//!
//! `docs/operate/brokers/kafka.md` has the URL's parameters and what to watch.

mod administration;
mod broker;
mod client;
mod config;
mod delivery_reports;
mod doctor;
mod error;
mod fenced;
mod in_flight;
mod lifeline;
mod member;
mod producer;
mod publisher;
mod reader;
mod record;
mod subscriber;
mod topics;
mod wire;

pub use broker::Kafka;
pub use config::{Acks, Options};
