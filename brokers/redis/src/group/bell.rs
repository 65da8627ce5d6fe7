//! Waiting for something new without asking all the time: Redis keeps its answer back until there is.
//!
//! On a connection of its own, since nothing else is answered on it meanwhile. It reads nothing for the group, and so
//! needs no lease.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use redis::Value;

use super::member::{Member, Phase};
use crate::entry::{Entry, EntryId};
use crate::error::CallError;
use crate::link::Link;
use crate::publisher::millis;

/// How long Redis keeps its answer back.
const PATIENCE: Duration = Duration::from_secs(1);

/// Where something new is, with the first id of it.
pub(super) type Rung = Vec<(u32, EntryId)>;

/// Waits for something beyond what `member` has read; nothing if it has no streams to read.
pub(super) fn hang(member: &mut Member) -> Option<BoxFuture<'static, Result<Rung, CallError>>> {
    let reading = member.held.iter().filter(|(_, shard)| matches!(shard.phase, Phase::Reading));
    let places: Vec<(u32, String, EntryId)> =
        reading.map(|(shard, held)| (*shard, member.names.stream(&member.topic, *shard), held.delivered)).collect();
    if places.is_empty() {
        return None;
    }
    let link = Arc::clone(&member.bell);
    Some(Box::pin(async move { wait(&link, &places).await }))
}

async fn wait(link: &Link, places: &[(u32, String, EntryId)]) -> Result<Rung, CallError> {
    let mut pipeline = redis::pipe();
    pipeline.cmd("XREAD").arg("COUNT").arg(1).arg("BLOCK").arg(millis(PATIENCE)).arg("STREAMS");
    for (_, stream, _) in places {
        pipeline.arg(stream);
    }
    for (_, _, after) in places {
        pipeline.arg(after.to_string());
    }
    let answers = link.ask_blocking(&pipeline, PATIENCE).await?;
    let streams = match answers.into_iter().next() {
        Some(Value::Array(streams)) => streams,
        Some(Value::ServerError(error)) => return Err(CallError::AfterSending(error.into())),
        _ => return Ok(Vec::new()),
    };
    let first = |stream: Value| {
        let Value::Array(parts) = stream else { return None };
        let [Value::BulkString(name), entries] = <[Value; 2]>::try_from(parts).ok()? else { return None };
        let (shard, ..) = places.iter().find(|(_, known, _)| known.as_bytes() == name)?;
        Some((*shard, Entry::list(entries).first()?.id))
    };
    Ok(streams.into_iter().filter_map(first).collect())
}
