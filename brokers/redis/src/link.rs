//! A connection to Redis that is opened on first use and dropped when it fails.

use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{
    AsyncConnectionConfig, Client, ClientTlsConfig, ConnectionAddr, IntoConnectionInfo, Pipeline, RedisConnectionInfo,
    RedisError, RedisResult, TlsCertificates, Value,
};
use tokio::sync::Mutex;

use crate::config::Options;
use crate::error::{CallError, Cause, cause};
use crate::script;

/// A multiplexed connection that concurrent callers share. Answers arrive in the order of the requests.
#[derive(Debug)]
pub(crate) struct Link {
    options: Arc<Options>,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    connection: Option<MultiplexedConnection>,
    /// Increases with every connection.
    number: u64,
    /// The last failed attempt. Callers that waited for it share its error, so that each does not try again.
    failed: Option<(Instant, RedisError)>,
}

impl Link {
    pub(crate) fn new(options: Arc<Options>) -> Self {
        Self { options, open: Mutex::default() }
    }

    /// Sends `pipeline` and waits for all of its answers. A refused command has a [`Value::ServerError`] as its answer.
    /// After a failure the next call reconnects.
    pub(crate) async fn ask(&self, pipeline: &Pipeline) -> Result<Vec<Value>, CallError> {
        self.ask_blocking(pipeline, Duration::ZERO).await
    }

    /// Like [`Link::ask`], for a blocking command that may take up to `longer` before it answers.
    pub(crate) async fn ask_blocking(&self, pipeline: &Pipeline, longer: Duration) -> Result<Vec<Value>, CallError> {
        let (connection, number) = self.connection().await.map_err(CallError::BeforeSending)?;
        self.ask_over(connection, number, pipeline, longer).await
    }

    /// Like [`Link::ask`], and also returns the number of the connection. Redis keeps `WATCH` state per connection.
    pub(crate) async fn ask_numbered(&self, pipeline: &Pipeline) -> Result<(Vec<Value>, u64), CallError> {
        let (connection, number) = self.connection().await.map_err(CallError::BeforeSending)?;
        Ok((self.ask_over(connection, number, pipeline, Duration::ZERO).await?, number))
    }

    /// Like [`Link::ask`], but only on the connection with this number. Returns `None`, and sends nothing, if it is
    /// closed.
    pub(crate) async fn ask_on_connection(
        &self,
        pipeline: &Pipeline,
        number: u64,
    ) -> Option<Result<Vec<Value>, CallError>> {
        let connection = {
            let open = self.open.lock().await;
            open.connection.clone().filter(|_| open.number == number)?
        };
        Some(self.ask_over(connection, number, pipeline, Duration::ZERO).await)
    }

    async fn ask_over(
        &self,
        mut connection: MultiplexedConnection,
        number: u64,
        pipeline: &Pipeline,
        longer: Duration,
    ) -> Result<Vec<Value>, CallError> {
        let answers = connection.send_packed_commands(pipeline, 0, pipeline.len());
        let answers = match tokio::time::timeout(self.options.timeout + longer, answers).await {
            Ok(answers) => answers,
            Err(_) => Err(RedisError::from(std::io::Error::from(std::io::ErrorKind::TimedOut))),
        };
        match answers {
            Ok(answers) => {
                // Reconnecting finds the current master and loads the scripts.
                let must_reconnect = |error| matches!(cause(error), Cause::NotTheMaster | Cause::NoScript);
                if answers.iter().any(|answer| matches!(answer, Value::ServerError(error) if must_reconnect(error))) {
                    self.forget(number).await;
                }
                Ok(answers)
            }
            Err(error) => {
                self.forget(number).await;
                Err(CallError::AfterSending(error))
            }
        }
    }

    async fn connection(&self) -> RedisResult<(MultiplexedConnection, u64)> {
        let asked = Instant::now();
        let mut open = self.open.lock().await;
        if let Some(connection) = &open.connection {
            return Ok((connection.clone(), open.number));
        }
        if let Some((when, error)) = &open.failed
            && *when > asked
        {
            return Err(error.clone());
        }
        match connect(&self.options).await {
            Ok(connection) => {
                open.number += 1;
                open.failed = None;
                open.connection = Some(connection.clone());
                Ok((connection, open.number))
            }
            Err(error) => {
                open.failed = Some((Instant::now(), error.clone()));
                Err(error)
            }
        }
    }

    /// Drops the connection with this number, unless another has replaced it.
    async fn forget(&self, number: u64) {
        let mut open = self.open.lock().await;
        if open.number == number {
            open.connection = None;
        }
    }
}

/// Connects to the first host that answers or, if there are several, to the first master.
async fn connect(options: &Options) -> RedisResult<MultiplexedConnection> {
    let mut last = None;
    for (host, port) in &options.hosts {
        match tokio::time::timeout(options.connect_timeout, connect_to(options, host, *port)).await {
            Ok(Ok(connection)) => return Ok(connection),
            // The server checks the client certificate after the client's handshake is complete, and then closes.
            Ok(Err(error)) if options.tls && options.certificate.is_none() && error.is_connection_dropped() => {
                let guess = "it may require a client certificate (set certificate= and key=)";
                last = Some(
                    std::io::Error::other(format!("{host}:{port} closed the connection; {guess}: {error}")).into(),
                );
            }
            Ok(Err(error)) => last = Some(error),
            Err(_) => last = Some(std::io::Error::from(std::io::ErrorKind::TimedOut).into()),
        }
    }
    Err(last.unwrap_or_else(|| (redis::ErrorKind::InvalidClientConfig, "the broker URL has no host").into()))
}

async fn connect_to(options: &Options, host: &str, port: u16) -> RedisResult<MultiplexedConnection> {
    let config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
    let mut connection = client(options, host, port)?.get_multiplexed_async_connection_with_config(&config).await?;
    if options.hosts.len() > 1 {
        let role: Vec<Value> = redis::cmd("ROLE").query_async(&mut connection).await?;
        if !matches!(role.first(), Some(Value::BulkString(role)) if role == b"master") {
            return Err((redis::ErrorKind::Io, "this server is a replica").into());
        }
    }
    let load = script::load_all();
    for answer in connection.send_packed_commands(&load, 0, load.len()).await? {
        if let Value::ServerError(error) = answer {
            return Err(error.into());
        }
    }
    Ok(connection)
}

fn client(options: &Options, host: &str, port: u16) -> RedisResult<Client> {
    let address = match options.tls {
        true => ConnectionAddr::TcpTls { host: host.to_owned(), port, insecure: false, tls_params: None },
        false => ConnectionAddr::Tcp(host.to_owned(), port),
    };
    let mut login = RedisConnectionInfo::default().set_db(options.database.into()).set_skip_set_lib_name();
    if let Some(user) = &options.user {
        login = login.set_username(user);
    }
    if let Some(password) = &options.password {
        login = login.set_password(password);
    }
    let info = address.into_connection_info()?.set_redis_settings(login);
    let info = info.set_tcp_settings(TcpSettings::default().set_nodelay(true));
    if !options.tls {
        return Client::open(info);
    }
    // A process with several crypto providers must choose one; Landfall uses ring everywhere. Fails if one is already
    // installed, which is fine.
    let _installed = tokio_rustls::rustls::crypto::ring::default_provider().install_default();
    let root_cert = options.ca.as_ref().map(std::fs::read).transpose()?;
    let client_tls = match &options.certificate {
        Some((certificate, key)) => {
            Some(ClientTlsConfig { client_cert: std::fs::read(certificate)?, client_key: std::fs::read(key)? })
        }
        None => None,
    };
    Client::build_with_tls(info, TlsCertificates { client_tls, root_cert })
}
