//! `log:PATH`, the embedded log in a folder.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use landfall::log::{Log, Options, ReadOnlyLog};
use landfall::{Broker, Error, ErrorKind, Publisher, Result, StartAt, TopicInfo, TopicName, TopicReader};

use super::Opening;
use super::broker::{Outlet, Window};
use super::files::{Files, LogFolder};
use crate::config::{Address, Config};

pub(super) fn check(url: &Address) -> Result<()> {
    folder(url).map(drop)
}

pub(super) fn open(config: &Config) -> Opening<'_, Arc<dyn Outlet>> {
    let options = Options { partitions: config.broker.partitions, ..Options::default() };
    let folder = folder(&config.broker.url);
    Box::pin(async move {
        let folder = folder?;
        let log = blocking(move || Log::open(folder, options)).await?;
        Ok(Arc::new(log) as Arc<dyn Outlet>)
    })
}

pub(super) fn open_to_read(config: &Config) -> Opening<'_, Arc<dyn Window>> {
    let folder = folder(&config.broker.url);
    Box::pin(async move {
        let folder = folder?;
        let log = blocking(move || Log::open_read_only(folder)).await?;
        Ok(Arc::new(log) as Arc<dyn Window>)
    })
}

pub(super) fn files(config: &Config) -> Result<Box<dyn Files>> {
    Ok(Box::new(LogFolder(folder(&config.broker.url)?)))
}

/// `log:PATH`, and `log://PATH` for those who always write two slashes.
fn folder(url: &Address) -> Result<PathBuf> {
    let path = url.rest().strip_prefix("//").unwrap_or(url.rest());
    if path.is_empty() {
        return Err(Error::invalid("the broker URL names no folder; write log:PATH"));
    }
    Ok(PathBuf::from(path))
}

/// Opening reads files, and recovery may read many.
pub(super) async fn blocking<T: Send + 'static>(open: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let joined = tokio::task::spawn_blocking(open).await;
    joined.map_err(|error| Error::new(ErrorKind::Internal, "the log could not be opened").with_source(error))?
}

#[async_trait]
impl Outlet for Log {
    fn publisher(&self) -> Arc<dyn Publisher> {
        Broker::publisher(self)
    }

    fn health(&self) -> Result<()> {
        Log::health(self)
    }

    async fn close(&self) -> Result<()> {
        Log::close(self).await
    }
}

#[async_trait]
impl Window for ReadOnlyLog {
    async fn topics(&self) -> Result<Vec<TopicInfo>> {
        ReadOnlyLog::topics(self).await
    }

    async fn read(&self, topic: &TopicName, from: StartAt) -> Result<Box<dyn TopicReader>> {
        ReadOnlyLog::read(self, topic, from).await
    }
}
