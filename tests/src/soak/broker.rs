//! The broker of a soak: in this process, or a private server.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use landfall::kafka::{self, Kafka};
use landfall::nats::{self, Nats};
use landfall::rabbitmq::{self, RabbitMq};
use landfall::redis::{self, Redis};
use landfall::{Broker, Error, GroupName, Message, Position, Result, StartAt, TopicName};
use landfall_testkit::MemoryBroker;
use landfall_testkit::remote::{DeliverServer, PublishServer, RemoteBroker};
use serde::{Deserialize, Serialize};

use super::broker_kind::BrokerKind;
use super::broker_server::BrokerServer;
use crate::setup::{GROUP, TOPIC};

#[derive(Debug)]
pub enum SoakBroker {
    Memory { broker: MemoryBroker, publish: PublishServer, deliver: DeliverServer },
    Server(Arc<BrokerServer>),
}

/// Where a process finds the broker.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum BrokerLocation {
    /// Where relays publish to the in-memory broker, and where its consumer receives.
    Memory {
        publish: SocketAddr,
        deliver: SocketAddr,
    },
    Server(BrokerKind, String),
}

impl SoakBroker {
    pub async fn start(kind: BrokerKind) -> Result<Self> {
        if kind != BrokerKind::Memory {
            return Ok(Self::Server(Arc::new(BrokerServer::start(kind).await?)));
        }
        let broker = MemoryBroker::new();
        let publish = PublishServer::start(broker.clone()).await?;
        let deliver = DeliverServer::start(broker.clone(), TopicName::new(TOPIC)?, GroupName::new(GROUP)?).await?;
        Ok(Self::Memory { broker, publish, deliver })
    }

    pub fn location(&self) -> BrokerLocation {
        match self {
            Self::Memory { publish, deliver, .. } => {
                BrokerLocation::Memory { publish: publish.address(), deliver: deliver.address() }
            }
            Self::Server(server) => BrokerLocation::Server(server.kind(), server.url().to_owned()),
        }
    }

    pub fn memory(&self) -> Option<&MemoryBroker> {
        match self {
            Self::Memory { broker, .. } => Some(broker),
            Self::Server(_) => None,
        }
    }

    pub fn server(&self) -> Option<&Arc<BrokerServer>> {
        match self {
            Self::Memory { .. } => None,
            Self::Server(server) => Some(server),
        }
    }

    /// Connections that the proxy cut, at random or around a request.
    pub fn cuts(&self) -> u64 {
        let counts = self.server().map(|server| server.proxy.counts()).unwrap_or_default();
        counts.cut + counts.cut_before_forwarding + counts.cut_before_response
    }

    /// Whether the group has finished all messages. Only the in-memory broker knows.
    pub fn is_drained(&self) -> Result<bool> {
        let (topic, group) = (TopicName::new(TOPIC)?, GroupName::new(GROUP)?);
        Ok(self.memory().is_none_or(|broker| broker.unfinished(&topic, &group) == 0))
    }

    /// All stored messages, duplicates included, in the order of each partition. `None` if the broker removes messages
    /// that are finished.
    pub async fn published(&self) -> Result<Option<Vec<(Position, Message)>>> {
        if let Some(broker) = self.memory() {
            return Ok(Some(broker.published()));
        }
        let broker = self.location().connect().await?;
        if !broker.capabilities().replay {
            return Ok(None);
        }
        let mut reader = broker.read(&TopicName::new(TOPIC)?, StartAt::Beginning).await?;
        let mut published = Vec::new();
        loop {
            let stored = reader.read(1_000).await?;
            if stored.is_empty() {
                return Ok(Some(published));
            }
            for message in stored {
                published.push((message.position, message.message?));
            }
        }
    }
}

impl BrokerLocation {
    /// Connects, and waits for a server that is down.
    pub async fn connect(&self) -> Result<Arc<dyn Broker>> {
        loop {
            match self.try_connect().await {
                Err(error) if error.is_temporary() => tokio::time::sleep(Duration::from_millis(50)).await,
                connected => return connected,
            }
        }
    }

    async fn try_connect(&self) -> Result<Arc<dyn Broker>> {
        Ok(match self {
            Self::Memory { publish, deliver } => Arc::new(RemoteBroker::connect(*publish, *deliver).await?),
            Self::Server(BrokerKind::Kafka, url) => Arc::new(Kafka::connect(kafka::Options::from_url(url)?).await?),
            Self::Server(BrokerKind::RabbitMq, url) => {
                Arc::new(RabbitMq::connect(rabbitmq::Options::from_url(url)?).await?)
            }
            Self::Server(BrokerKind::Nats, url) => Arc::new(Nats::connect(nats::Options::from_url(url)?).await?),
            Self::Server(BrokerKind::Redis, url) => Arc::new(Redis::connect(redis::Options::from_url(url)?).await?),
            Self::Server(BrokerKind::Memory, _) => return Err(Error::invalid("the in-memory broker has no URL")),
        })
    }
}
