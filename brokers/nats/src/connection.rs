//! The connection: how it is made, and what the server says about it in between.
//!
//! The client makes it again whatever happens to it, unless it comes to its own end: it panics over a header value with a
//! lone `\r` in it, which any publisher can send, and would stay dead for as long as the process lives. So its end is
//! watched, and another one takes its place.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, Weak};
use std::time::Duration;

use async_nats::connection::State;
use async_nats::jetstream::{Context, ContextBuilder};
use async_nats::{Client, ConnectErrorKind, ConnectOptions, Event, ServerError};
use landfall_core::{Error, ErrorCode, ErrorKind, Outcome, Result};
use tokio::sync::{broadcast, watch};

use crate::config::Options;

/// Publishes on their way at once, over all batches of a process.
const UNDER_WAY: usize = 100_000;

/// How often somebody who waits for a connection looks whether it is there.
const LOOKED_AT: Duration = Duration::from_millis(50);

/// Before another client is made in the place of one that ended, if the last one was not made.
const PAUSE: Duration = Duration::from_secs(1);

#[derive(Debug, Clone)]
pub(crate) struct Connection {
    live: Arc<RwLock<Live>>,
    pub(crate) denials: Denials,
    patience: Duration,
    is_loopback: bool,
}

/// The client that is there now.
#[derive(Debug)]
struct Live {
    client: Client,
    context: Context,
    /// Closed when the client has come to its end.
    end: watch::Receiver<()>,
}

/// What the server does not let this account do. It says so out of line, and never in place of an answer.
#[derive(Debug, Clone)]
pub(crate) struct Denials(Arc<Heard>);

#[derive(Debug)]
struct Heard {
    violations: broadcast::Sender<Arc<str>>,
    /// Counts connections: a denial says something only about what was sent over the same one.
    connections: AtomicU64,
    /// The server turned the credentials away when the last connection was tried.
    is_turned_away: AtomicBool,
}

impl Denials {
    fn new() -> Self {
        let heard = Heard {
            violations: broadcast::channel(1_024).0,
            connections: AtomicU64::new(0),
            is_turned_away: AtomicBool::new(false),
        };
        Self(Arc::new(heard))
    }

    /// Listens from now on.
    pub(crate) fn watch(&self) -> Watch {
        Watch { denials: self.clone(), connection: self.connection(), violations: self.0.violations.subscribe() }
    }

    fn connection(&self) -> u64 {
        self.0.connections.load(Ordering::SeqCst)
    }

    fn hear(&self, event: &Event) {
        match event {
            Event::Connected => {
                self.0.connections.fetch_add(1, Ordering::SeqCst);
                self.0.is_turned_away.store(false, Ordering::SeqCst);
                tracing::info!("connected to NATS");
            }
            Event::Disconnected => tracing::warn!("the connection to NATS is lost; trying again until it is back"),
            Event::ServerError(ServerError::AuthorizationViolation) => {
                self.0.is_turned_away.store(true, Ordering::SeqCst);
            }
            Event::ServerError(ServerError::Other(said)) => {
                tracing::warn!(%said, "NATS says no");
                let lower = said.to_ascii_lowercase();
                if lower.contains("authentication") || lower.contains("authorization violation") {
                    self.0.is_turned_away.store(true, Ordering::SeqCst);
                }
                // Nobody may be listening.
                let _ = self.0.violations.send(said.as_str().into());
            }
            Event::ClientError(error) => {
                let said = error.to_string();
                if said.contains("authorization violation") {
                    self.0.is_turned_away.store(true, Ordering::SeqCst);
                }
                tracing::debug!(%said, "the NATS client reports an error");
            }
            Event::SlowConsumer(id) => tracing::warn!(subscription = id, "messages were dropped in the NATS client"),
            other => tracing::info!(event = %other, "NATS"),
        }
    }
}

/// What was denied since it was made.
#[derive(Debug)]
pub(crate) struct Watch {
    denials: Denials,
    connection: u64,
    violations: broadcast::Receiver<Arc<str>>,
}

impl Watch {
    /// The next subject that this account may not publish to, said about the connection that was there when the watch
    /// began: everything sent there over it was denied. Over several connections nobody can tell, and it never ends.
    pub(crate) async fn next_denied(&mut self) -> String {
        loop {
            match self.violations.recv().await {
                Ok(said) => {
                    let denied = denied_subject(&said).filter(|_| self.denials.connection() == self.connection);
                    if let Some(subject) = denied {
                        return subject.to_owned();
                    }
                }
                Err(broadcast::error::RecvError::Lagged(_)) => {}
                Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
            }
        }
    }

    /// Comes to an end when publishing to `subject` is denied.
    pub(crate) async fn denied(mut self, subject: &str) {
        while self.next_denied().await != subject {}
    }
}

/// The server says `Permissions Violation for Publish to "orders.3"`.
fn denied_subject(said: &str) -> Option<&str> {
    let is_publish = said.to_ascii_lowercase().starts_with("permissions violation for publish");
    let (_, rest) = said.split_once('"').filter(|_| is_publish)?;
    rest.split_once('"').map(|(subject, _)| subject)
}

impl Connection {
    pub(crate) async fn open(options: &Arc<Options>) -> Result<Self> {
        options.check()?;
        let denials = Denials::new();
        let live = Live::connect(options, &denials).await?;
        let live = Arc::new(RwLock::new(live));
        tokio::spawn(replace_what_ends(Arc::downgrade(&live), options.clone(), denials.clone()));
        let is_loopback = options.servers.iter().all(|server| is_this_machine(server));
        Ok(Self { live, denials, patience: options.timeout, is_loopback })
    }

    /// The client that is there now; whoever keeps it for longer than a call may keep one that has ended.
    pub(crate) fn client(&self) -> Client {
        self.live.read().unwrap_or_else(PoisonError::into_inner).client.clone()
    }

    /// Likewise.
    pub(crate) fn context(&self) -> Context {
        self.live.read().unwrap_or_else(PoisonError::into_inner).context.clone()
    }

    /// Whether the server is on this machine, by the address that it was found at.
    pub(crate) fn is_loopback(&self) -> bool {
        self.is_loopback
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.live.read().unwrap_or_else(PoisonError::into_inner).is_connected()
    }

    /// Waits for a connection. Without one the client keeps what it is told for later, and takes only so much.
    pub(crate) async fn connected(&self) {
        while !self.is_connected() {
            tokio::time::sleep(LOOKED_AT).await;
        }
    }

    /// How long an answer is waited for.
    pub(crate) fn patience(&self) -> Duration {
        self.patience
    }

    /// Why nothing can be sent now.
    pub(crate) fn not_sent(&self) -> Outcome {
        match self.denials.0.is_turned_away.load(Ordering::SeqCst) {
            true => Outcome::retry_later(ErrorCode::DENIED, "the NATS server turns these credentials away"),
            false => Outcome::retry_later(ErrorCode::UNAVAILABLE, "there is no connection to NATS"),
        }
    }
}

impl Live {
    async fn connect(options: &Options, denials: &Denials) -> Result<Self> {
        let hearing = denials.clone();
        // The client drops who listens to its events when it ends, and not before.
        let (listens, end) = watch::channel(());
        let mut how = ConnectOptions::new()
            .name("landfall")
            .connection_timeout(options.timeout)
            .request_timeout(Some(options.timeout))
            // A server that is gone without a word is noticed at the third of them.
            .ping_interval(Duration::from_secs(10))
            .reconnect_delay_callback(|attempt| match attempt {
                0 | 1 => Duration::ZERO,
                more => Duration::from_millis(50 * (1 << more.min(6)) as u64).min(Duration::from_secs(2)),
            })
            .event_callback(move |event| {
                let _listens = &listens;
                let hearing = hearing.clone();
                async move { hearing.hear(&event) }
            });
        if options.tls || options.ca.is_some() || options.certificate.is_some() {
            how = how.require_tls(true);
        }
        if let Some(file) = &options.ca {
            how = how.add_root_certificates(file.clone());
        }
        if let Some((certificate, key)) = &options.certificate {
            how = how.add_client_certificate(certificate.clone(), key.clone());
        }
        if let Some(token) = &options.token {
            how = how.token(token.clone());
        }
        if let Some(user) = &options.user {
            how = how.user_and_password(user.clone(), options.password.clone().unwrap_or_default());
        }
        if let Some(file) = &options.credentials {
            let unreadable = |error| Error::invalid("the credentials file cannot be used").with_source(error);
            how = how.credentials_file(file).await.map_err(unreadable)?;
        }
        let scheme = if options.tls { "tls" } else { "nats" };
        let servers: Vec<String> = options.servers.iter().map(|server| format!("{scheme}://{server}")).collect();
        let client = how.connect(servers).await.map_err(|error| not_connected(options, error))?;
        if !client.is_server_compatible(2, 10, 0) {
            let version = client.server_info().version;
            let sentence = format!("the NATS server is {version}; 2.10 is the oldest that can do what is needed");
            return Err(Error::new(ErrorKind::Unsupported, sentence));
        }
        let context = ContextBuilder::new()
            .timeout(options.timeout)
            .ack_timeout(options.timeout)
            .max_ack_inflight(UNDER_WAY)
            .backpressure_on_inflight(true)
            .build(client.clone());
        Ok(Self { client, context, end })
    }

    fn is_connected(&self) -> bool {
        // The state that a client was in when it ended stays for ever.
        self.end.has_changed().is_ok() && self.client.connection_state() == State::Connected
    }
}

/// Puts another client into the place of one that ended, for as long as somebody has the connection.
async fn replace_what_ends(connection: Weak<RwLock<Live>>, options: Arc<Options>, denials: Denials) {
    loop {
        let end = connection.upgrade().map(|live| live.read().unwrap_or_else(PoisonError::into_inner).end.clone());
        let Some(mut end) = end else { return };
        while end.changed().await.is_ok() {}
        // A client also ends when nobody has it any more.
        while let Some(live) = connection.upgrade() {
            tracing::error!("the NATS client ended by itself; another one is made");
            match Live::connect(&options, &denials).await {
                Ok(another) => {
                    *live.write().unwrap_or_else(PoisonError::into_inner) = another;
                    break;
                }
                Err(error) => tracing::warn!(%error, "no other NATS client can be made; again soon"),
            }
            drop(live);
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// By its address: what a name stands for may change.
fn is_this_machine(server: &str) -> bool {
    let host = server.rsplit_once(':').map_or(server, |(host, _)| host).trim_matches(['[', ']']);
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn not_connected(options: &Options, error: async_nats::ConnectError) -> Error {
    let servers = options.servers.join(",");
    match error.kind() {
        ConnectErrorKind::AuthorizationViolation | ConnectErrorKind::Authentication => {
            Error::invalid(format!("NATS at {servers} turns these credentials away")).with_source(error)
        }
        _ => Error::new(ErrorKind::Unavailable, format!("NATS at {servers} cannot be reached")).with_source(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_address_of_its_own_is_this_machine() {
        for (server, here) in
            [("127.0.0.1:4222", true), ("[::1]:4222", true), ("localhost:4222", true), ("db:4222", false)]
        {
            assert_eq!(is_this_machine(server), here, "{server}");
        }
    }

    #[test]
    fn a_denial_is_known_by_its_subject() {
        assert_eq!(denied_subject("Permissions Violation for Publish to \"orders.3\""), Some("orders.3"));
        assert_eq!(denied_subject("Permissions Violation for Subscription to \"orders.3\""), None);
        assert_eq!(denied_subject("Stale Connection"), None);
    }
}
