//! A private broker server behind a proxy, to be killed, paused and disconnected.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use landfall::{Error, ErrorKind, Result};
use landfall_testkit::proxy::Proxy;
use landfall_testkit::servers::{
    KafkaOptions, KafkaServer, NatsOptions, NatsServer, RabbitMqOptions, RabbitMqServer, RedisOptions, RedisServer,
};
use tokio::task::JoinHandle;

use super::broker_kind::BrokerKind;
use super::push_receiver::PUSH_GROUP;
use crate::setup::{GROUP, TOPIC};
use crate::worker_process::TIMEOUT;

#[derive(Debug)]
pub struct BrokerServer {
    kind: BrokerKind,
    server: Server,
    /// Between the server and all its clients.
    pub proxy: Proxy,
    url: String,
}

#[derive(Debug)]
enum Server {
    Kafka(KafkaServer),
    RabbitMq(RabbitMqServer),
    Nats(NatsServer),
    Redis(RedisServer),
}

/// The default of the adapter for RabbitMQ.
const RABBITMQ_QUEUES: u32 = 4;

impl BrokerServer {
    /// Starts a server that keeps its messages over a kill. Fails with `Unavailable` if it is not installed.
    pub async fn start(kind: BrokerKind) -> Result<Self> {
        Self::try_start(kind).await.map_err(|error| {
            Error::new(ErrorKind::Unavailable, format!("cannot start a server for {kind}")).with_source(error)
        })
    }

    async fn try_start(kind: BrokerKind) -> Result<Self> {
        let (server, proxy, url) = match kind {
            BrokerKind::Memory => return Err(Error::invalid("the in-memory broker has no server")),
            BrokerKind::Kafka => {
                // Clients connect to the address that the node advertises, so that is the proxy's.
                let (port, advertised) = (KafkaServer::free_port()?, KafkaServer::free_port()?);
                let options = KafkaOptions { proxied: Some((port, advertised)), ..Default::default() };
                let server = KafkaServer::try_start(options).await?;
                let url = server.url().await;
                (Server::Kafka(server), Proxy::start_on(advertised, local(port)).await?, url)
            }
            BrokerKind::RabbitMq => {
                let server = RabbitMqServer::try_start(RabbitMqOptions::default()).await?;
                let (proxy, url) = (Proxy::start(local(server.port())).await?, server.url());
                (Server::RabbitMq(server), proxy, url)
            }
            BrokerKind::Nats => {
                let server = NatsServer::try_start(NatsOptions::default()).await?;
                let address: SocketAddr =
                    server.address().parse().map_err(|error| Error::invalid("not an address").with_source(error))?;
                let url = server.url();
                (Server::Nats(server), Proxy::start(address).await?, url)
            }
            BrokerKind::Redis => {
                let server = RedisServer::try_start(RedisOptions::durable()).await?;
                let (proxy, url) = (Proxy::start(local(server.port())).await?, server.url());
                (Server::Redis(server), proxy, url)
            }
        };
        let url = format!("{}?{}", proxy.url(&url), kind.parameters());
        Ok(Self { kind, server, proxy, url })
    }

    pub fn kind(&self) -> BrokerKind {
        self.kind
    }

    /// The URL for clients, through the proxy.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Waits until the server would remember the queues of both groups after a kill. RabbitMQ writes the names of new
    /// queues seconds after their creation; the other servers do so at once.
    pub async fn wait_until_durable(&self) -> Result<()> {
        let Server::RabbitMq(server) = &self.server else { return Ok(()) };
        let started = Instant::now();
        let queues = |group| (0..RABBITMQ_QUEUES).map(move |number| format!("{TOPIC}:{group}:{number}"));
        for queue in [GROUP, PUSH_GROUP].into_iter().flat_map(queues) {
            while !server.remembers_queue(&queue).await {
                if started.elapsed() > TIMEOUT {
                    let text = format!("RabbitMQ has not persisted the queue {queue} within {TIMEOUT:?}");
                    return Err(Error::new(ErrorKind::Internal, text));
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
        Ok(())
    }

    /// Kills the server with SIGKILL and starts it again after `pause`. Runs in a spawned task.
    pub fn restart(self: &Arc<Self>, pause: Duration) -> JoinHandle<Result<()>> {
        let server = self.clone();
        tokio::spawn(async move {
            server.kill().await?;
            tokio::time::sleep(pause).await;
            server.launch().await
        })
    }

    /// Pauses the server with SIGSTOP for this long. Runs in a spawned task.
    pub fn pause(self: &Arc<Self>, length: Duration) -> JoinHandle<Result<()>> {
        let server = self.clone();
        tokio::spawn(async move {
            server.suspend().await?;
            tokio::time::sleep(length).await;
            server.resume().await
        })
    }
}

/// Forwards a call to the server, whatever it is.
macro_rules! forward {
    ($($name:ident => $method:ident),*) => {
        impl BrokerServer {
            $(async fn $name(&self) -> Result<()> {
                match &self.server {
                    Server::Kafka(server) => server.$method().await,
                    Server::RabbitMq(server) => server.$method().await,
                    Server::Nats(server) => server.$method().await,
                    Server::Redis(server) => server.$method().await,
                }
            })*
        }
    };
}

forward!(kill => kill_9, launch => restart, suspend => pause, resume => resume);

fn local(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}
