//! Waits for new entries without polling: a blocking `XREAD`, which Redis answers when there is one.
//!
//! On its own connection, because Redis answers nothing else on it meanwhile. It reads nothing on behalf of the group,
//! so it needs no lease.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use redis::Value;

use super::member::{Member, Phase};
use crate::entry::{Entry, EntryId};
use crate::error::CallError;
use crate::link::Link;
use crate::publisher::millis;

/// How long Redis blocks before it answers that there is nothing.
const BLOCK: Duration = Duration::from_secs(1);

/// The shards with new entries, each with the first new id.
pub(super) type NewEntries = Vec<(u32, EntryId)>;

/// Waits for an entry beyond those that `member` has read; `None` if it reads no stream.
pub(super) fn start(member: &mut Member) -> Option<BoxFuture<'static, Result<NewEntries, CallError>>> {
    let reading = member.held.iter().filter(|(_, shard)| matches!(shard.phase, Phase::Reading));
    let streams: Vec<(u32, String, EntryId)> =
        reading.map(|(shard, held)| (*shard, member.names.stream(&member.topic, *shard), held.delivered)).collect();
    if streams.is_empty() {
        return None;
    }
    let link = Arc::clone(&member.blocking_link);
    Some(Box::pin(async move { wait(&link, &streams).await }))
}

async fn wait(link: &Link, streams: &[(u32, String, EntryId)]) -> Result<NewEntries, CallError> {
    let mut pipeline = redis::pipe();
    pipeline.cmd("XREAD").arg("COUNT").arg(1).arg("BLOCK").arg(millis(BLOCK)).arg("STREAMS");
    for (_, stream, _) in streams {
        pipeline.arg(stream);
    }
    for (_, _, after) in streams {
        pipeline.arg(after.to_string());
    }
    let answers = link.ask_blocking(&pipeline, BLOCK).await?;
    let answered = match answers.into_iter().next() {
        Some(Value::Array(answered)) => answered,
        Some(Value::ServerError(error)) => return Err(CallError::AfterSending(error.into())),
        _ => return Ok(Vec::new()),
    };
    let first = |stream: Value| {
        let Value::Array(parts) = stream else { return None };
        let [Value::BulkString(name), entries] = <[Value; 2]>::try_from(parts).ok()? else { return None };
        let (shard, ..) = streams.iter().find(|(_, known, _)| known.as_bytes() == name)?;
        Some((*shard, Entry::list(entries).first()?.id))
    };
    Ok(answered.into_iter().filter_map(first).collect())
}
