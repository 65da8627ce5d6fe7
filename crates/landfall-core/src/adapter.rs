//! What databases and brokers need to implement the ports, and their callers do not.
//!
//! A service that sends, relays or consumes messages never names these types.

pub use crate::admission::{Arrival, BatchAdmission};
pub use crate::broker::{Acknowledge, BrokerCapabilities, Delivery, FencedPublisher, Subscriber};
pub use crate::broker_url::BrokerUrl;
pub use crate::clock_skew::ClockSkew;
pub use crate::connection_epoch::ConnectionEpoch;
pub use crate::database::{DatabaseCapabilities, SchemaState};
pub use crate::detach_on_drop::DetachOnDrop;
pub use crate::expected_tables::{ExpectedIndex, ExpectedTable, ExpectedTables};
pub use crate::file_system::{FileSystem, FileSystemKind};
pub use crate::finding::Demands;
pub use crate::import::{ForeignRow, Import, Imported, ImportedRow};
pub use crate::inbox::{Admission, Hold, Origin, Parking, RedriveItem, Setback};
pub use crate::lease::{Epoch, Lease, LeaseName};
pub use crate::outbox::{Claim, Decision, OutboxEntry, Settlement, Shard};
pub use crate::sequence::EntityName;
pub use crate::wire;
