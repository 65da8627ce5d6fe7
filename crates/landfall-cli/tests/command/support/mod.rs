//! What the tests share: a place to run the binary in, a running daemon, a minimal HTTP client.

mod daemon;
mod each;
mod http;
mod place;
mod receiver;

pub(crate) use daemon::Daemon;
pub(crate) use each::on_each;
pub(crate) use http::{Answer, get, post, request};
pub(crate) use place::{Finished, Outbox, Place, finish};
pub(crate) use receiver::{Receiver, answer, subscription_to};

use std::time::Duration;

/// Far beyond what anything here takes, so that only what never happens runs into it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);
