//! What stands in the log and was not yet read by those it is for.
//!
//! The last thing that happens in a story is that copies arrive which nobody needs. The end waits for them too: a
//! duplicate that was never delivered proves nothing.

use std::path::Path;

use landfall::log::Log;

use super::Result;
use super::folder;
use super::shop::Service;

/// Messages that some service still has to look at, copies among them.
pub(super) async fn unread(folder: &Path) -> Result<u64> {
    let log = Log::open_read_only(folder.join(folder::LOG))?;
    let mut unread = 0;
    for service in Service::ALL {
        let (topic, group) = (service.listens_to().parse()?, service.name().parse()?);
        unread += log.unfinished(&topic, &group).await?;
    }
    Ok(unread)
}
