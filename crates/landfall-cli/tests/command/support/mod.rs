//! Shared by the tests: a sandbox for the binary, a running daemon, a minimal HTTP client, a push receiver.

mod alerting;
mod daemon;
mod each;
mod grpc;
mod http;
mod receiver;
mod sandbox;

pub(crate) use alerting::{alert_in, base64, channel, notices, of_rule, record_letter, verified_alerts, webhook};
pub(crate) use daemon::Daemon;
pub(crate) use each::on_each;
pub(crate) use grpc::{GrpcServer, frame, half_messages, http2, origin, reply};
pub(crate) use http::{Response, get, post, request};
pub(crate) use receiver::{Received, Receiver, response, subscription_to};
pub(crate) use sandbox::{Finished, Outbox, Sandbox, finish};

use std::time::Duration;

/// Far longer than any step takes, so that only an event that never happens reaches it.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(90);
