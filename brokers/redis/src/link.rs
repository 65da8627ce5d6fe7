//! A connection to Redis that is opened when it is needed and given up when it fails.

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
use crate::error::{Cause, Failed, cause};
use crate::script;

/// Shared by whoever asks at the same time: what is sent together is answered together, in order.
#[derive(Debug)]
pub(crate) struct Link {
    options: Arc<Options>,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    connection: Option<MultiplexedConnection>,
    /// Grows with every connection.
    number: u64,
    /// So that those who waited for the same attempt do not each wait for one more.
    failed: Option<(Instant, RedisError)>,
}

impl Link {
    pub(crate) fn new(options: Arc<Options>) -> Self {
        Self { options, open: Mutex::default() }
    }

    /// Sends `pipeline` and waits for all of its answers; one that Redis refused is a [`Value::ServerError`] in its
    /// place. After a failure the next call connects anew.
    pub(crate) async fn ask(&self, pipeline: &Pipeline) -> Result<Vec<Value>, Failed> {
        self.ask_patiently(pipeline, Duration::ZERO).await
    }

    /// As [`Link::ask`], for a command that keeps its answer back for up to `longer`.
    pub(crate) async fn ask_patiently(&self, pipeline: &Pipeline, longer: Duration) -> Result<Vec<Value>, Failed> {
        let (connection, number) = self.connection().await.map_err(Failed::BeforeSending)?;
        self.ask_on(connection, number, pipeline, longer).await
    }

    /// As [`Link::ask`], and answers besides with the number of the connection that was asked. Redis keeps what is
    /// watched per connection.
    pub(crate) async fn ask_numbered(&self, pipeline: &Pipeline) -> Result<(Vec<Value>, u64), Failed> {
        let (connection, number) = self.connection().await.map_err(Failed::BeforeSending)?;
        Ok((self.ask_on(connection, number, pipeline, Duration::ZERO).await?, number))
    }

    /// As [`Link::ask`], on the connection with that number and no other; `None` if it is gone, and nothing was sent.
    pub(crate) async fn ask_again(&self, pipeline: &Pipeline, number: u64) -> Option<Result<Vec<Value>, Failed>> {
        let connection = {
            let open = self.open.lock().await;
            open.connection.clone().filter(|_| open.number == number)?
        };
        Some(self.ask_on(connection, number, pipeline, Duration::ZERO).await)
    }

    async fn ask_on(
        &self,
        mut connection: MultiplexedConnection,
        number: u64,
        pipeline: &Pipeline,
        longer: Duration,
    ) -> Result<Vec<Value>, Failed> {
        let answers = connection.send_packed_commands(pipeline, 0, pipeline.len());
        let answers = match tokio::time::timeout(self.options.timeout + longer, answers).await {
            Ok(answers) => answers,
            Err(_) => Err(RedisError::from(std::io::Error::from(std::io::ErrorKind::TimedOut))),
        };
        match answers {
            Ok(answers) => {
                // A new connection finds the server that is the master now, and brings the scripts along.
                let is_over = |error| matches!(cause(error), Cause::NotTheMaster | Cause::NoScript);
                if answers.iter().any(|answer| matches!(answer, Value::ServerError(error) if is_over(error))) {
                    self.forget(number).await;
                }
                Ok(answers)
            }
            Err(error) => {
                self.forget(number).await;
                Err(Failed::AfterSending(error))
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

    /// Unless somebody has opened another one since.
    async fn forget(&self, number: u64) {
        let mut open = self.open.lock().await;
        if open.number == number {
            open.connection = None;
        }
    }
}

/// The first host that answers, and of several the first that is the master.
async fn connect(options: &Options) -> RedisResult<MultiplexedConnection> {
    let mut last = None;
    for (host, port) in &options.hosts {
        match tokio::time::timeout(options.connect_timeout, connect_to(options, host, *port)).await {
            Ok(Ok(connection)) => return Ok(connection),
            // The server looks for a certificate when the handshake is over for this side, and then hangs up.
            Ok(Err(error)) if options.tls && options.certificate.is_none() && error.is_connection_dropped() => {
                let guess = "perhaps it asks for a certificate (certificate= and key= name one)";
                last = Some(std::io::Error::other(format!("{host}:{port} hung up, {guess}: {error}")).into());
            }
            Ok(Err(error)) => last = Some(error),
            Err(_) => last = Some(std::io::Error::from(std::io::ErrorKind::TimedOut).into()),
        }
    }
    Err(last.unwrap_or_else(|| (redis::ErrorKind::InvalidClientConfig, "there is no host").into()))
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
    // Where a program holds several kinds of cryptography, one must be chosen; the same as everywhere else here. It may
    // have been chosen before.
    let _chosen = tokio_rustls::rustls::crypto::ring::default_provider().install_default();
    let root_cert = options.ca.as_ref().map(std::fs::read).transpose()?;
    let client_tls = match &options.certificate {
        Some((certificate, key)) => {
            Some(ClientTlsConfig { client_cert: std::fs::read(certificate)?, client_key: std::fs::read(key)? })
        }
        None => None,
    };
    Client::build_with_tls(info, TlsCertificates { client_tls, root_cert })
}
