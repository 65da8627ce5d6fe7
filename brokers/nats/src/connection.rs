//! The connection to the server, and the errors that the server reports asynchronously.
//!
//! The client reconnects after every failure except its own panic. It panics on a header value with a lone `\r`, which
//! any publisher can send, and would then stay dead until the process exits. So a task watches the client and replaces
//! it when it stops.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, Weak};
use std::time::Duration;

use async_nats::connection::State;
use async_nats::jetstream::{Context, ContextBuilder};
use async_nats::{Client, ConnectErrorKind, ConnectOptions, Event, ServerError};
use landfall_core::{Error, ErrorCode, ErrorKind, Outcome, Result};
use tokio::sync::{broadcast, watch};

use crate::config::Options;

/// Limit of unacknowledged publishes of the process.
const MAX_ACK_IN_FLIGHT: usize = 100_000;

/// Interval at which a waiting caller checks for a connection.
const CONNECT_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Pause between attempts to replace a client that stopped.
const REPLACE_BACKOFF: Duration = Duration::from_secs(1);

#[derive(Debug, Clone)]
pub(crate) struct Connection {
    live: Arc<RwLock<Live>>,
    pub(crate) denials: Denials,
    timeout: Duration,
    is_loopback: bool,
}

/// The current client.
#[derive(Debug)]
struct Live {
    client: Client,
    context: Context,
    /// Closed when the client has stopped.
    stopped: watch::Receiver<()>,
}

/// Permission errors of this account. The server reports them asynchronously, never as the answer to a request.
#[derive(Debug, Clone)]
pub(crate) struct Denials(Arc<ServerErrors>);

#[derive(Debug)]
struct ServerErrors {
    violations: broadcast::Sender<Arc<str>>,
    /// Number of connections so far. A denial applies only to messages that were sent over the same connection.
    connections: AtomicU64,
    /// Whether the server rejected the credentials at the last connection attempt.
    is_rejected: AtomicBool,
}

impl Denials {
    fn new() -> Self {
        let errors = ServerErrors {
            violations: broadcast::channel(1_024).0,
            connections: AtomicU64::new(0),
            is_rejected: AtomicBool::new(false),
        };
        Self(Arc::new(errors))
    }

    /// Starts to record denials.
    pub(crate) fn watch(&self) -> Watch {
        Watch { denials: self.clone(), connection: self.connection(), violations: self.0.violations.subscribe() }
    }

    fn connection(&self) -> u64 {
        self.0.connections.load(Ordering::SeqCst)
    }

    fn record(&self, event: &Event) {
        match event {
            Event::Connected => {
                self.0.connections.fetch_add(1, Ordering::SeqCst);
                self.0.is_rejected.store(false, Ordering::SeqCst);
                tracing::info!("connected to NATS");
            }
            Event::Disconnected => tracing::warn!("connection to NATS lost, reconnecting"),
            Event::ServerError(ServerError::AuthorizationViolation) => {
                self.0.is_rejected.store(true, Ordering::SeqCst);
            }
            Event::ServerError(ServerError::Other(error)) => {
                tracing::warn!(%error, "NATS server reported an error");
                let lower = error.to_ascii_lowercase();
                if lower.contains("authentication") || lower.contains("authorization violation") {
                    self.0.is_rejected.store(true, Ordering::SeqCst);
                }
                // Fails if no watch is active, which is fine.
                let _ = self.0.violations.send(error.as_str().into());
            }
            Event::ClientError(error) => {
                if error.to_string().contains("authorization violation") {
                    self.0.is_rejected.store(true, Ordering::SeqCst);
                }
                tracing::debug!(%error, "NATS client reported an error");
            }
            Event::SlowConsumer(id) => {
                tracing::warn!(subscription = id, "NATS client dropped messages of a slow subscription")
            }
            other => tracing::info!(event = %other, "NATS client event"),
        }
    }
}

/// Receives the denials since its creation.
#[derive(Debug)]
pub(crate) struct Watch {
    denials: Denials,
    connection: u64,
    violations: broadcast::Receiver<Arc<str>>,
}

impl Watch {
    /// Returns the next subject that this account may not publish to. Everything that was sent to it over the
    /// connection on which the watch began was denied. After a reconnect it never returns: a denial could belong to
    /// either connection.
    pub(crate) async fn next_denied(&mut self) -> String {
        loop {
            match self.violations.recv().await {
                Ok(error) => {
                    let denied = denied_subject(&error).filter(|_| self.denials.connection() == self.connection);
                    if let Some(subject) = denied {
                        return subject.to_owned();
                    }
                }
                Err(broadcast::error::RecvError::Lagged(_)) => {}
                Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
            }
        }
    }

    /// Completes when publishing to `subject` is denied.
    pub(crate) async fn denied(mut self, subject: &str) {
        while self.next_denied().await != subject {}
    }
}

/// Extracts the subject of an error such as `Permissions Violation for Publish to "orders.3"`.
fn denied_subject(error: &str) -> Option<&str> {
    let is_publish = error.to_ascii_lowercase().starts_with("permissions violation for publish");
    let (_, rest) = error.split_once('"').filter(|_| is_publish)?;
    rest.split_once('"').map(|(subject, _)| subject)
}

impl Connection {
    pub(crate) async fn open(options: &Arc<Options>) -> Result<Self> {
        options.check()?;
        let denials = Denials::new();
        let live = Live::connect(options, &denials).await?;
        let live = Arc::new(RwLock::new(live));
        tokio::spawn(replace_stopped_client(Arc::downgrade(&live), options.clone(), denials.clone()));
        let is_loopback = options.servers.iter().all(|server| is_loopback_address(server));
        Ok(Self { live, denials, timeout: options.timeout, is_loopback })
    }

    /// Returns the current client. Do not keep it beyond one call: it may stop and be replaced.
    pub(crate) fn client(&self) -> Client {
        self.live.read().unwrap_or_else(PoisonError::into_inner).client.clone()
    }

    /// Returns the JetStream context of the current client. Do not keep it beyond one call.
    pub(crate) fn context(&self) -> Context {
        self.live.read().unwrap_or_else(PoisonError::into_inner).context.clone()
    }

    /// Whether all configured server addresses are loopback addresses.
    pub(crate) fn is_loopback(&self) -> bool {
        self.is_loopback
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.live.read().unwrap_or_else(PoisonError::into_inner).is_connected()
    }

    /// Waits for a connection. Without one, the client queues commands, and its queue is bounded.
    pub(crate) async fn connected(&self) {
        while !self.is_connected() {
            tokio::time::sleep(CONNECT_POLL_INTERVAL).await;
        }
    }

    /// Timeout of requests and acknowledgements.
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Returns the outcome of messages that cannot be sent now.
    pub(crate) fn not_sent(&self) -> Outcome {
        match self.denials.0.is_rejected.load(Ordering::SeqCst) {
            true => Outcome::retry_later(
                ErrorCode::DENIED,
                "the NATS server rejected the credentials; check them in the URL",
            ),
            false => Outcome::retry_later(ErrorCode::UNAVAILABLE, "not connected to NATS"),
        }
    }
}

impl Live {
    async fn connect(options: &Options, denials: &Denials) -> Result<Self> {
        let recorder = denials.clone();
        // The client drops its event callback, and with it the sender, when it stops and not before.
        let (alive, stopped) = watch::channel(());
        let mut connect = ConnectOptions::new()
            .name("landfall")
            .connection_timeout(options.timeout)
            .request_timeout(Some(options.timeout))
            // The third unanswered ping shows that the server is gone.
            .ping_interval(Duration::from_secs(10))
            .reconnect_delay_callback(|attempt| match attempt {
                0 | 1 => Duration::ZERO,
                more => Duration::from_millis(50 * (1 << more.min(6)) as u64).min(Duration::from_secs(2)),
            })
            .event_callback(move |event| {
                let _alive = &alive;
                let recorder = recorder.clone();
                async move { recorder.record(&event) }
            });
        if options.tls || options.ca.is_some() || options.certificate.is_some() {
            connect = connect.require_tls(true);
        }
        if let Some(file) = &options.ca {
            connect = connect.add_root_certificates(file.clone());
        }
        if let Some((certificate, key)) = &options.certificate {
            connect = connect.add_client_certificate(certificate.clone(), key.clone());
        }
        if let Some(token) = &options.token {
            connect = connect.token(token.clone());
        }
        if let Some(user) = &options.user {
            connect = connect.user_and_password(user.clone(), options.password.clone().unwrap_or_default());
        }
        if let Some(file) = &options.credentials {
            let unreadable = |error| Error::invalid("the credentials file cannot be read").with_source(error);
            connect = connect.credentials_file(file).await.map_err(unreadable)?;
        }
        let scheme = if options.tls { "tls" } else { "nats" };
        let servers: Vec<String> = options.servers.iter().map(|server| format!("{scheme}://{server}")).collect();
        let client = connect.connect(servers).await.map_err(|error| not_connected(options, error))?;
        if !client.is_server_compatible(2, 10, 0) {
            let version = client.server_info().version;
            let reason = format!("the NATS server has version {version}; at least 2.10 is required");
            return Err(Error::new(ErrorKind::Unsupported, reason));
        }
        let context = ContextBuilder::new()
            .timeout(options.timeout)
            .ack_timeout(options.timeout)
            .max_ack_inflight(MAX_ACK_IN_FLIGHT)
            .backpressure_on_inflight(true)
            .build(client.clone());
        Ok(Self { client, context, stopped })
    }

    fn is_connected(&self) -> bool {
        // A stopped client keeps reporting its last state.
        self.stopped.has_changed().is_ok() && self.client.connection_state() == State::Connected
    }
}

/// Replaces a client that stopped, until the connection is dropped.
async fn replace_stopped_client(connection: Weak<RwLock<Live>>, options: Arc<Options>, denials: Denials) {
    loop {
        let stopped =
            connection.upgrade().map(|live| live.read().unwrap_or_else(PoisonError::into_inner).stopped.clone());
        let Some(mut stopped) = stopped else { return };
        while stopped.changed().await.is_ok() {}
        // A client also stops when the connection is dropped.
        while let Some(live) = connection.upgrade() {
            tracing::error!("NATS client stopped unexpectedly, replacing it");
            match Live::connect(&options, &denials).await {
                Ok(another) => {
                    *live.write().unwrap_or_else(PoisonError::into_inner) = another;
                    break;
                }
                Err(error) => tracing::warn!(%error, "cannot replace the NATS client, backing off"),
            }
            drop(live);
            tokio::time::sleep(REPLACE_BACKOFF).await;
        }
    }
}

/// Only an address or `localhost` counts. Another name may resolve elsewhere later.
fn is_loopback_address(server: &str) -> bool {
    let host = server.rsplit_once(':').map_or(server, |(host, _)| host).trim_matches(['[', ']']);
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn not_connected(options: &Options, error: async_nats::ConnectError) -> Error {
    let servers = options.servers.join(",");
    match error.kind() {
        ConnectErrorKind::AuthorizationViolation | ConnectErrorKind::Authentication => {
            let reason = format!("NATS at {servers} rejected the credentials; check user and password in the URL");
            // Temporary, because a password may be rotated.
            Error::new(ErrorKind::Unavailable, reason).with_source(error)
        }
        _ => Error::new(ErrorKind::Unavailable, format!("NATS at {servers} is unreachable")).with_source(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_addresses_count_as_this_machine() {
        for (server, here) in
            [("127.0.0.1:4222", true), ("[::1]:4222", true), ("localhost:4222", true), ("db:4222", false)]
        {
            assert_eq!(is_loopback_address(server), here, "{server}");
        }
    }

    #[test]
    fn denied_subject_is_extracted() {
        assert_eq!(denied_subject("Permissions Violation for Publish to \"orders.3\""), Some("orders.3"));
        assert_eq!(denied_subject("Permissions Violation for Subscription to \"orders.3\""), None);
        assert_eq!(denied_subject("Stale Connection"), None);
    }
}
