//! What stands in the log and was not yet read by those it is for.
//!
//! The last thing that happens in a story is that copies arrive which nobody needs. The end waits for them too: a
//! duplicate that was never delivered proves nothing.

use std::path::Path;

use landfall::log::Log;
use serde::Deserialize;

use super::Result;
use super::folder;
use super::shop::Service;

/// How far a group has come in a topic, as the log writes it down: for each partition, the offset below which
/// everything is finished.
#[derive(Debug, Default, Deserialize)]
struct Group {
    finished: Vec<u64>,
}

/// Messages that some service still has to look at, copies among them.
pub(super) async fn unread(folder: &Path) -> Result<u64> {
    let folder = folder.join(folder::LOG);
    let topics = Log::open_read_only(&folder)?.topics().await?;
    let mut unread = 0;
    for service in Service::ALL {
        let stored = topics.iter().find(|info| info.topic.as_str() == service.listens_to());
        let finished: u64 = group(&folder, service)?.finished.iter().sum();
        unread += stored.map_or(0, |info| info.messages).saturating_sub(finished);
    }
    Ok(unread)
}

fn group(log: &Path, service: Service) -> Result<Group> {
    let path = log.join("groups").join(service.name()).join(format!("{}.json", service.listens_to()));
    match std::fs::read(path) {
        Ok(text) => Ok(serde_json::from_slice(&text)?),
        // Its first acknowledgement has not been saved yet.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Group::default()),
        Err(error) => Err(error.into()),
    }
}
