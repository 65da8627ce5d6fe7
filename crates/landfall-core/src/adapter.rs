//! What databases and brokers need to implement the ports, and their callers do not.
//!
//! A service that sends, relays or consumes messages never names these types.

pub use crate::broker::url::BrokerUrl;
pub use crate::broker::{Acknowledge, BrokerCapabilities, Delivery, FencedPublisher, Subscriber};
pub use crate::database::admission::{Arrival, BatchAdmission};
pub use crate::database::connection_epoch::ConnectionEpoch;
pub use crate::database::dead_letter::{StoredError, trace_id};
pub use crate::database::delivery::Retry;
pub use crate::database::detach_on_drop::DetachOnDrop;
pub use crate::database::import::{ForeignRow, Import, Imported, ImportedRow};
pub use crate::database::inbox::{Admission, Hold, Origin, Parking, RedriveItem, Setback};
pub use crate::database::lease::{Epoch, Lease, LeaseName};
pub use crate::database::outbox::{Claim, Decision, OutboxEntry, Settlement, Shard};
pub use crate::database::rehearsal::RehearsalTask;
pub use crate::database::sequence::EntityName;
pub use crate::database::{DatabaseCapabilities, SchemaState};
pub use crate::doctor::clock_skew::ClockSkew;
pub use crate::doctor::expected_tables::{ExpectedIndex, ExpectedTable, ExpectedTables};
pub use crate::doctor::file_system::{FileSystem, FileSystemKind};
pub use crate::doctor::finding::Demands;
pub use crate::message::wire;
