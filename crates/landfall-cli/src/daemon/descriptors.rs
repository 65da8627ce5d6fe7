//! File descriptors of the process: as many as allowed, and only a part of them for HTTP connections.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// More connections than this are never accepted at once.
const MAX_CONNECTIONS: u64 = 10_000;
/// HTTP gets one of this many descriptors; the log, the database, the broker and push need the others.
const HTTP_SHARE: u64 = 4;

/// Raises the soft limit of open files to the hard one, and returns how many HTTP connections fit.
pub(super) fn prepare() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    let current = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(error) => {
            tracing::warn!(%error, "raising the limit of open files failed");
            limit.current
        }
    };
    // `None` is no limit.
    let connections = current.map_or(MAX_CONNECTIONS, |files| (files / HTTP_SHARE).clamp(1, MAX_CONNECTIONS));
    tracing::debug!(open_files = current, connections, "limits");
    connections as usize
}
