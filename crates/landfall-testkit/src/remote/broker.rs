//! Both ends as one broker.

use std::net::SocketAddr;
use std::sync::Arc;

use async_trait::async_trait;
use landfall_core::{
    Broker, BrokerCapabilities, Error, ErrorKind, GroupName, Publisher, Result, StartAt, Subscriber, TopicInfo,
    TopicName, TopicReader,
};

use super::RemotePublisher;
use super::subscriber::RemoteSubscriber;

/// A [`PublishServer`](super::PublishServer) and a [`DeliverServer`](super::DeliverServer) of the same broker, usually
/// in another process. Whatever topic and group is asked for, it is the one that is served.
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
        Err(Error::new(ErrorKind::Unsupported, "a remote broker cannot be asked about its topics"))
    }

    async fn read(&self, _: &TopicName, _: StartAt) -> Result<Box<dyn TopicReader>> {
        Err(Error::new(ErrorKind::Unsupported, "a remote broker can only be read by its group"))
    }
}
