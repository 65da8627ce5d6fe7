//! The listener of `[proxy]`, next to that of the daemon's own routes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use landfall::idempotency::{Idempotency, IdempotencyRecords};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::listener::{self, Bounds};
use super::startup::Reception;
use super::{bind, finish_requests};
use crate::config::Config;
use crate::error::Result;
use crate::proxy::{self, Routes};

/// A bound listener that answers 503 until the daemon has started.
pub(super) struct Bound {
    routes: Routes,
    listener: Arc<TcpListener>,
    pub(super) address: SocketAddr,
    bounds: Bounds,
    reception: Reception,
}

/// The proxy of a daemon that has started.
pub(super) struct Proxy {
    listener: Arc<TcpListener>,
    bounds: Bounds,
    router: Router,
    engine: Idempotency,
    stop: CancellationToken,
    stop_timeout: Duration,
}

impl Bound {
    /// Binds the listener if there is a route.
    pub(super) async fn bind(config: &Config, bounds: &Bounds, stop: &CancellationToken) -> Result<Option<Self>> {
        let scheme = if bounds.tls.is_some() { "https" } else { "http" };
        let Some(routes) = Routes::prepare(config, scheme)? else { return Ok(None) };
        let (listener, address) = bind(config.proxy.listen)?;
        let bounds = Bounds { tells_peer: true, ..bounds.clone() };
        let reception = Reception::open(listener.clone(), proxy::starting(), bounds.clone(), stop);
        Ok(Some(Self { routes, listener, address, bounds, reception }))
    }

    pub(super) async fn open(
        self,
        records: Arc<dyn IdempotencyRecords>,
        config: &Config,
        stop: &CancellationToken,
    ) -> Proxy {
        self.reception.close().await;
        let engine = Idempotency::new(records);
        let router = self.routes.router(&engine);
        let stop_timeout = config.http.stop_timeout;
        Proxy { listener: self.listener, bounds: self.bounds, router, engine, stop: stop.clone(), stop_timeout }
    }
}

impl Proxy {
    /// Runs until `stop`, and then finishes what was forwarded, also for clients that went away.
    pub(super) async fn run(self) {
        let served: JoinHandle<()> =
            tokio::spawn(listener::serve(self.listener, self.router, self.bounds, self.stop.clone()));
        self.stop.cancelled().await;
        finish_requests(served, self.stop_timeout).await;
        if tokio::time::timeout(self.stop_timeout, self.engine.drain()).await.is_err() {
            tracing::warn!("left forwarded requests without an answer; their records follow the policy of the route");
        }
    }
}
