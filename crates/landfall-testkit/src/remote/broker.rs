//! The client of both servers, as one broker.

use std::net::SocketAddr;
use std::sync::Arc;

use async_trait::async_trait;
use landfall_core::adapter::{BrokerCapabilities, Subscriber};
use landfall_core::{
    Broker, Error, ErrorKind, GroupName, Publisher, Result, StartAt, TopicInfo, TopicName, TopicReader,
};

use super::RemotePublisher;
use super::subscriber::RemoteSubscriber;

/// A client of a [`PublishServer`](super::PublishServer) and a [`DeliverServer`](super::DeliverServer) of one broker,
/// usually in another process. Subscriptions ignore topic and group: the server serves only one.
#[derive(Debug, Clone)]
pub struct RemoteBroker {
    publisher: Arc<RemotePublisher>,
    deliver: SocketAddr,
}

impl RemoteBroker {
    pub async fn connect(publish: SocketAddr, deliver: SocketAddr) -> Result<Self> {
        Ok(Self { publisher: Arc::new(RemotePublisher::connect(publish).await?), deliver })
    }
}

#[async_trait]
impl Broker for RemoteBroker {
    fn capabilities(&self) -> BrokerCapabilities {
        BrokerCapabilities { durable: false, deduplicates: false, ..BrokerCapabilities::ALL }
    }

    fn publisher(&self) -> Arc<dyn Publisher> {
        self.publisher.clone()
    }

    async fn subscribe(&self, _: &TopicName, _: &GroupName) -> Result<Box<dyn Subscriber>> {
        Ok(Box::new(RemoteSubscriber::connect(self.deliver).await?))
    }

    async fn topics(&self) -> Result<Vec<TopicInfo>> {
        Err(Error::new(ErrorKind::Unsupported, "a remote broker cannot list its topics"))
    }

    async fn read(&self, _: &TopicName, _: StartAt) -> Result<Box<dyn TopicReader>> {
        Err(Error::new(ErrorKind::Unsupported, "a remote broker has no readers; subscribe to it"))
    }
}
