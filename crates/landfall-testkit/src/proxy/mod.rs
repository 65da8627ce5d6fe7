//! A proxy that fails on purpose, between clients and any server that speaks TCP or listens on a unix socket.
//!
//! The interesting failure is a connection that breaks under a `COMMIT`: the client cannot know whether it happened.
//! [`Proxy::cut_next`] makes it happen, both ways round: the commit never reaches the server, or it does and the
//! answer never comes back.

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

pub use cut::{Moment, Trigger};

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

/// A proxy on a free port of 127.0.0.1. It ends, with all its connections, when it is dropped.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// use landfall_testkit::proxy::{Moment, Proxy, Trigger};
///
/// let server = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
/// let proxy = Proxy::start(server.local_addr().unwrap()).await.unwrap();
/// let url = proxy.url("postgres://landfall@127.0.0.1:5432/shop");
/// assert_eq!(url, format!("postgres://landfall@{}/shop", proxy.address()));
/// // The next commit through it happens, and nobody is told.
/// proxy.cut_next(Trigger::word("COMMIT"), Moment::BeforeTheAnswer);
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
    /// Connections that came in and were not refused.
    pub connections: u64,
    /// Turned away while [`Proxy::refuse`] was in force, or because the server did not take them.
    pub refused: u64,
    /// Cut by [`Proxy::cut_one`] and [`Proxy::cut_all`].
    pub cut: u64,
    /// Cut by [`Proxy::cut_next`], before the request was forwarded.
    pub cut_before_forwarding: u64,
    /// Cut by [`Proxy::cut_next`], after the server had begun to answer.
    pub cut_before_the_answer: u64,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    armed: VecDeque<(Trigger, Moment)>,
    delay: Duration,
    refusing: bool,
    counts: ProxyCounts,
    /// Dropping a sender cuts its connection, and sending makes it silent.
    open: BTreeMap<u64, oneshot::Sender<()>>,
}

impl Shared {
    /// Nothing is done under the lock that could leave it half changed.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Proxy {
    /// Forwards to `server`, which need not be up: a client that comes while it is down finds its connection closed.
    pub async fn start(server: impl Into<Target>) -> Result<Self> {
        Self::start_on(0, server).await
    }

    /// As [`Proxy::start`], on a port that the server tells its clients to use, as Kafka does.
    pub async fn start_on(port: u16, server: impl Into<Target>) -> Result<Self> {
        let failed = |error| Error::new(ErrorKind::Unavailable, "cannot listen on 127.0.0.1").with_source(error);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let shared = Arc::new(Shared::default());
        let accepting = tokio::spawn(accept(listener, server.into(), shared.clone()));
        Ok(Self { address, shared, accepting })
    }

    /// Where clients connect to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The server's `url` with host and port replaced by the proxy's; user, path and parameters stay.
    pub fn url(&self, url: &str) -> String {
        let begin = url.find("://").map_or(0, |scheme| scheme + 3);
        let end = url[begin..].find(['/', '?']).map_or(url.len(), |end| begin + end);
        let user = url[begin..end].rfind('@').map_or("", |at| &url[begin..=begin + at]);
        format!("{}{user}{}{}", &url[..begin], self.address, &url[end..])
    }

    /// The first connection whose client sends what `trigger` waits for, from now on, is cut at that `moment`. Several
    /// are met one after the other, in the order in which they were asked for.
    pub fn cut_next(&self, trigger: Trigger, moment: Moment) {
        self.shared.state().armed.push_back((trigger, moment));
    }

    /// Cuts every connection that is open, in the middle of whatever it does. Answers with how many there were.
    pub fn cut_all(&self) -> usize {
        let mut state = self.shared.state();
        let cut = std::mem::take(&mut state.open).len();
        state.counts.cut += cut as u64;
        cut
    }

    /// Cuts one of the open connections: `which` counts from the oldest and begins again at the end. `false` if none is
    /// open.
    pub fn cut_one(&self, which: usize) -> bool {
        let mut state = self.shared.state();
        let Some(number) = state.open.keys().nth(which % state.open.len().max(1)).copied() else { return false };
        state.counts.cut += 1;
        state.open.remove(&number).is_some()
    }

    /// Makes every connection that is open silent, as a firewall does that forgot it or a host that lost its power: what is
    /// sent is taken and goes nowhere, and neither side is told, until the client hangs up by itself. New connections work.
    /// Answers with how many there were.
    pub fn silence_all(&self) -> usize {
        let open = std::mem::take(&mut self.shared.state().open);
        open.into_values().filter_map(|connection| connection.send(()).ok()).count()
    }

    /// Holds back everything that clients send for so long, until [`Proxy::heal`].
    pub fn delay(&self, by: Duration) {
        self.shared.state().delay = by;
    }

    /// Turns new connections away until [`Proxy::heal`]; those that are open stay.
    pub fn refuse(&self) {
        self.shared.state().refusing = true;
    }

    /// No more delays, no refusals, and no cut that was asked for and not met yet.
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
    /// Ends every connection too: they live in a set that the accepting task owns.
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
                    // Too many open files, most likely: without a pause this would spin.
                    Err(error) => {
                        tracing::warn!(error = %error, "a connection was not accepted");
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
