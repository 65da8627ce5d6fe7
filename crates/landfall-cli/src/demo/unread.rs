//! Records in the log that a consumer group has not finished.
//!
//! The last records of a run are usually duplicates. The demo waits for them too: a duplicate that is never delivered
//! proves nothing.

use std::path::Path;

use landfall::log::Log;

use super::Result;
use super::folder;
use super::shop::Service;

/// Returns the number of records, including duplicates, that some service has not finished.
pub(super) async fn unread(folder: &Path) -> Result<u64> {
    let log = Log::open_read_only(folder.join(folder::LOG))?;
    let mut unread = 0;
    for service in Service::ALL {
        let (topic, group) = (service.listens_to().parse()?, service.name().parse()?);
        unread += log.unfinished(&topic, &group).await?;
    }
    Ok(unread)
}
