//! The role `check-back`: the coordinator of half messages, and the ways to reach it.
//!
//! * [`remote_target`] asks a service, as [`http_target`] and `grpc_target` say; `srv` finds its addresses in the DNS;
//! * [`barrier`] connects to business databases when they are first asked;
//! * [`request`] reads the JSON of a half message, from HTTP or from the topic;
//! * [`topic`] takes half messages from a topic.

mod barrier;
#[cfg(feature = "grpc")]
mod grpc_target;
mod http_target;
mod remote_target;
pub(crate) mod request;
#[cfg(feature = "dns")]
mod srv;
pub(crate) mod topic;

use std::sync::Arc;

use landfall::check_back::{Coordinator, Options, ServiceResolver, StaticServices, Targets};
use landfall::{Barriers, HalfMessages};

use crate::config::{CheckBack, Config};
use crate::error::Result;
use remote_target::RemoteTarget;
pub(crate) use remote_target::origin;

/// Builds the coordinator of a configuration. Opens no connection.
pub(crate) fn coordinator(config: &Config, store: Arc<dyn HalfMessages>) -> Result<Coordinator> {
    let CheckBack { interval, timeout, backoff, concurrency, .. } = config.check_back;
    let options = Options { interval, timeout, concurrency, backoff };
    let services = services(config)?;
    let mut targets = Targets::new().http(Arc::new(RemoteTarget::http(config, services.clone())?));
    #[cfg(feature = "grpc")]
    {
        targets = targets.grpc(Arc::new(RemoteTarget::grpc(config, services.clone())?));
    }
    for name in config.check_back.databases.keys() {
        targets = targets.database(name, Arc::new(barrier::BusinessDatabase::new(config, name)));
    }
    Ok(Coordinator::new(store, targets, options)?)
}

/// Returns the business database configured as `name`. Connects when it is first asked.
pub(crate) fn business_database(config: &Config, name: &str) -> impl Barriers + use<> {
    barrier::BusinessDatabase::new(config, name)
}

/// Returns what turns `service:NAME` into addresses: the configured ones, and then the DNS.
pub(crate) fn services(config: &Config) -> Result<Arc<dyn ServiceResolver>> {
    let configured = StaticServices::new(config.check_back.services.clone());
    if config.check_back.srv.name.is_empty() {
        return Ok(Arc::new(configured));
    }
    #[cfg(feature = "dns")]
    return Ok(Arc::new(srv::SrvServices::new(configured, &config.check_back.srv)?));
    #[cfg(not(feature = "dns"))]
    Err(crate::error::Error::usage(
        "check_back.srv_name is set, and this build has no DNS; build it with the feature dns",
    ))
}
