//! A fault-injecting proxy between clients and any server that listens on TCP or a unix socket.
//!
//! Its main purpose is a connection that breaks during a `COMMIT`: the client cannot know whether it happened.
//! [`Proxy::cut_next`] reproduces both cases: the commit never reaches the server, or its response never reaches the
//! client.

mod cut;
mod pipe;

use std::collections::{BTreeMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use landfall_core::{Error, ErrorKind, Result};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};

pub use cut::{CutPoint, Trigger};

/// Where the server listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl From<SocketAddr> for Target {
    fn from(address: SocketAddr) -> Self {
        Self::Tcp(address)
    }
}

/// A proxy on a port of 127.0.0.1. Dropping it closes all its connections.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// use landfall_testkit::proxy::{CutPoint, Proxy, Trigger};
///
/// let server = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
/// let proxy = Proxy::start(server.local_addr().unwrap()).await.unwrap();
/// let url = proxy.url("postgres://landfall@127.0.0.1:5432/shop");
/// assert_eq!(url, format!("postgres://landfall@{}/shop", proxy.address()));
/// // The next commit succeeds, and the client gets no response.
/// proxy.cut_next(Trigger::word("COMMIT"), CutPoint::BeforeResponse);
/// # });
/// ```
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

/// What a proxy has done so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ProxyCounts {
    /// Accepted connections.
    pub connections: u64,
    /// Connections refused because of [`Proxy::refuse`], or because the server did not accept them.
    pub refused: u64,
    /// Connections cut by [`Proxy::cut_one`] and [`Proxy::cut_all`].
    pub cut: u64,
    /// Connections cut by [`Proxy::cut_next`] before the request was forwarded.
    pub cut_before_forwarding: u64,
    /// Connections cut by [`Proxy::cut_next`] after the server had begun to respond.
    pub cut_before_response: u64,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    armed: VecDeque<(Trigger, CutPoint)>,
    delay: Duration,
    refusing: bool,
    counts: ProxyCounts,
    /// Dropping a sender cuts its connection; sending on it blackholes the connection.
    open: BTreeMap<u64, oneshot::Sender<()>>,
}

impl Shared {
    /// Ignores poisoning: no code under the lock can leave the state half changed.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Proxy {
    /// Starts a proxy to `server` on a free port. While the server is down, client connections are closed at once.
    pub async fn start(server: impl Into<Target>) -> Result<Self> {
        Self::start_on(0, server).await
    }

    /// As [`Proxy::start`], on a given port: for servers that advertise their address to clients, as Kafka does.
    pub async fn start_on(port: u16, server: impl Into<Target>) -> Result<Self> {
        let failed = |error| Error::new(ErrorKind::Unavailable, "cannot listen on 127.0.0.1").with_source(error);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let shared = Arc::new(Shared::default());
        let accepting = tokio::spawn(accept(listener, server.into(), shared.clone()));
        Ok(Self { address, shared, accepting })
    }

    /// The address for clients.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the server's `url` with host and port replaced by the proxy's. User, path and parameters stay.
    pub fn url(&self, url: &str) -> String {
        let begin = url.find("://").map_or(0, |scheme| scheme + 3);
        let end = url[begin..].find(['/', '?']).map_or(url.len(), |end| begin + end);
        let user = url[begin..end].rfind('@').map_or("", |at| &url[begin..=begin + at]);
        format!("{}{user}{}{}", &url[..begin], self.address, &url[end..])
    }

    /// Cuts the next connection whose client sends data that matches `trigger`, at the given point.
    ///
    /// Several pending cuts apply one after the other, in the order of the calls.
    pub fn cut_next(&self, trigger: Trigger, point: CutPoint) {
        self.shared.state().armed.push_back((trigger, point));
    }

    /// Cuts every open connection at once and returns how many there were.
    pub fn cut_all(&self) -> usize {
        let mut state = self.shared.state();
        let cut = std::mem::take(&mut state.open).len();
        state.counts.cut += cut as u64;
        cut
    }

    /// Cuts one open connection: number `which` from the oldest, modulo their count. Returns `false` if none is open.
    pub fn cut_one(&self, which: usize) -> bool {
        let mut state = self.shared.state();
        let Some(number) = state.open.keys().nth(which % state.open.len().max(1)).copied() else { return false };
        state.counts.cut += 1;
        state.open.remove(&number).is_some()
    }

    /// Blackholes every open connection and returns how many there were.
    ///
    /// Data is accepted and dropped, and neither side gets an error until the client closes its connection. This is
    /// what a firewall that lost its state does, or a host that lost power. New connections work.
    pub fn blackhole_all(&self) -> usize {
        let open = std::mem::take(&mut self.shared.state().open);
        open.into_values().filter_map(|connection| connection.send(()).ok()).count()
    }

    /// Delays all data from clients by this duration, until [`Proxy::heal`].
    pub fn delay(&self, by: Duration) {
        self.shared.state().delay = by;
    }

    /// Refuses new connections until [`Proxy::heal`]; open ones stay.
    pub fn refuse(&self) {
        self.shared.state().refusing = true;
    }

    /// Ends delays and refusals, and removes pending cuts.
    pub fn heal(&self) {
        let mut state = self.shared.state();
        state.armed.clear();
        (state.delay, state.refusing) = (Duration::ZERO, false);
    }

    pub fn counts(&self) -> ProxyCounts {
        self.shared.state().counts
    }
}

impl Drop for Proxy {
    /// Closes all connections too: the accept task owns them.
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, server: Target, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    for number in 0.. {
        let client = loop {
            tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((client, _)) => break client,
                    // Most likely too many open files: without a pause this would spin.
                    Err(error) => {
                        tracing::warn!(%error, "failed to accept a connection");
                        tokio::time::sleep(Duration::from_millis(10)).await;
                    }
                },
                Some(_) = connections.join_next() => {}
            }
        };
        let (server, shared) = (server.clone(), shared.clone());
        connections.spawn(async move { pipe::connect(number, client, server, &shared).await });
    }
}
