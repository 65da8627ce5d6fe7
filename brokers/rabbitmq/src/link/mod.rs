//! A connection that is opened on first use and again after it was lost.
//!
//! The broker has two, one to publish and one to consume. A server without space stops reading from connections that
//! publish, and consumed messages must still be acknowledged.

pub(crate) mod dial;
pub(crate) mod tls;

use std::sync::Arc;

use landfall_core::{Error, ErrorKind, Result};
use lapin::tcp::RustlsConnector;
use lapin::uri::{AMQPAuthority, AMQPQueryString, AMQPScheme, AMQPUri, AMQPUserInfo, SASLMechanism};
use lapin::{Channel, Connection};
use tokio::sync::Mutex;

use crate::config::Options;
use crate::error;
use dial::dial;

pub(crate) struct Link {
    options: Arc<Options>,
    /// Name of the connection in the server's lists.
    name: &'static str,
    current: Mutex<Option<Arc<Connection>>>,
}

impl Link {
    pub(crate) fn new(options: Arc<Options>, name: &'static str) -> Self {
        Self { options, name, current: Mutex::new(None) }
    }

    /// Returns the current connection, or opens another if it is lost.
    pub(crate) async fn connection(&self) -> Result<Arc<Connection>> {
        let mut current = self.current.lock().await;
        if let Some(connection) = current.as_ref().filter(|connection| connection.status().connected()) {
            return Ok(connection.clone());
        }
        *current = None;
        let connection = Arc::new(self.connect().await?);
        tracing::info!(connection = self.name, "connected to RabbitMQ");
        Ok(current.insert(connection).clone())
    }

    /// Opens a channel for the caller alone. Most errors close the channel, and the caller must open another.
    pub(crate) async fn channel(&self) -> Result<Channel> {
        let connection = self.connection().await?;
        if connection.status().blocked() {
            return Err(Error::new(ErrorKind::Unavailable, error::ALARM));
        }
        let opening = tokio::time::timeout(self.options.connect_timeout, connection.create_channel());
        let Ok(opened) = opening.await else {
            self.give_up(&connection).await;
            return Err(Error::new(ErrorKind::Unavailable, "RabbitMQ did not open a channel"));
        };
        opened.map_err(|error| error::error("RabbitMQ did not open a channel", error))
    }

    /// Replaces `connection` on its next use, after it did not answer in time although it counts as open. Current users
    /// keep it. During an alarm it stays: a new connection would not know of the alarm.
    pub(crate) async fn give_up(&self, connection: &Arc<Connection>) {
        let mut current = self.current.lock().await;
        let is_current = current.as_ref().is_some_and(|current| Arc::ptr_eq(current, connection));
        if is_current && !connection.status().blocked() {
            tracing::warn!(connection = self.name, "RabbitMQ does not answer, replacing the connection");
            *current = None;
        }
    }

    async fn connect(&self) -> Result<Connection> {
        let tls = match self.options.tls {
            true => Some(RustlsConnector::from(tls::client(&self.options)?)),
            false => None,
        };
        let has_no_certificate = self.options.tls && self.options.certificate.is_none();
        let mut last = None;
        for (host, port) in &self.options.hosts {
            let connecting = dial(self.uri(host, *port), tls.clone(), self.name);
            let failed = |error: lapin::Error| {
                let closed = || if has_no_certificate { tls::closed_early(&error) } else { None };
                match tls::handshake_failure(&error).or_else(closed) {
                    Some(failure) => error::error(format!("RabbitMQ at {host}:{port} {failure}"), error),
                    None => error::error(format!("cannot connect to RabbitMQ at {host}:{port}"), error),
                }
            };
            match tokio::time::timeout(self.options.connect_timeout, connecting).await {
                Ok(Ok(connection)) => return Ok(connection),
                Ok(Err(error)) => last = Some(failed(error)),
                Err(_) => {
                    let text = format!("RabbitMQ at {host}:{port} did not answer in time");
                    last = Some(Error::new(ErrorKind::Unavailable, text));
                }
            }
        }
        Err(last.unwrap_or_else(|| Error::invalid("the broker URL has no host")))
    }

    fn uri(&self, host: &str, port: u16) -> AMQPUri {
        let options = &self.options;
        AMQPUri {
            // `dial` adds TLS.
            scheme: AMQPScheme::AMQP,
            authority: AMQPAuthority {
                userinfo: AMQPUserInfo { username: options.user.clone(), password: options.password.clone() },
                host: host.to_owned(),
                port,
            },
            vhost: options.virtual_host.clone(),
            query: AMQPQueryString {
                auth_mechanism: options.external.then_some(SASLMechanism::External),
                heartbeat: Some(u16::try_from(options.heartbeat.as_secs().max(1)).unwrap_or(u16::MAX)),
                ..AMQPQueryString::default()
            },
        }
    }
}

/// Omits the client's own state, which contains the password.
impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").field("name", &self.name).field("options", &self.options).finish_non_exhaustive()
    }
}
