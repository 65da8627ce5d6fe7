//! Redis Streams, on a server that fsyncs its append-only file before every reply.

use std::sync::Arc;

use async_trait::async_trait;
use landfall::redis_streams::{Options, Redis};
use landfall::{Broker, Message, wire};
use landfall_testkit::servers::{RedisOptions, RedisServer};
use redis::Value;
use redis::aio::MultiplexedConnection;

use super::{Client, Contender};
use crate::Result;
use crate::workload::GROUP;

/// The adapter's defaults: the number of streams, and the messages in flight of a subscriber.
const STREAMS: usize = 8;
const IN_FLIGHT: usize = 1_000;

pub(super) async fn start() -> Result<Option<Box<dyn Contender>>> {
    let Some(server) = RedisServer::start_with("bench", RedisOptions::durable()).await else { return Ok(None) };
    let info = server.ask("INFO server").await?;
    let version = info.lines().find_map(|line| line.strip_prefix("redis_version:")).unwrap_or("?").to_owned();
    Ok(Some(Box::new(OnRedis { server, version })))
}

struct OnRedis {
    server: RedisServer,
    version: String,
}

#[async_trait]
impl Contender for OnRedis {
    fn name(&self) -> String {
        format!("Redis {}", self.version)
    }

    fn client_name(&self) -> &'static str {
        "redis-rs"
    }

    async fn adapter(&self, prefix: &str) -> Result<Arc<dyn Broker>> {
        let options = Options { prefix: prefix.into(), ..Options::from_url(&self.server.url())? };
        Ok(Arc::new(Redis::connect(options).await?))
    }

    async fn client(&self, prefix: &str) -> Result<Box<dyn Client>> {
        let mut connection = self.connect().await?;
        let streams: Vec<String> = (0..STREAMS).map(|stream| format!("{prefix}{stream}")).collect();
        for stream in &streams {
            redis::cmd("XGROUP")
                .arg("CREATE")
                .arg(stream)
                .arg(GROUP)
                .arg("0")
                .arg("MKSTREAM")
                .exec_async(&mut connection)
                .await?;
        }
        Ok(Box::new(RawClient { connection, streams, unacknowledged: Vec::new(), prefetched: 0 }))
    }

    fn deduplicating_client_name(&self) -> Option<&'static str> {
        Some("redis-rs, a key per id")
    }

    async fn deduplicating_client(&self, prefix: &str) -> Result<Box<dyn Client>> {
        let mut connection = self.connect().await?;
        let script = redis::cmd("SCRIPT").arg("LOAD").arg(ADD_IF_NEW).query_async(&mut connection).await?;
        Ok(Box::new(DeduplicatingClient { connection, prefix: prefix.to_owned(), script }))
    }
}

impl OnRedis {
    async fn connect(&self) -> Result<MultiplexedConnection> {
        let client = redis::Client::open(self.server.url())?;
        let config = redis::AsyncConnectionConfig::new().set_response_timeout(None);
        Ok(client.get_multiplexed_async_connection_with_config(&config).await?)
    }
}

/// The usual hand-written script: an id is new if `SET NX` succeeds.
const ADD_IF_NEW: &str = "if redis.call('SET', KEYS[2], '', 'NX', 'PX', ARGV[1]) then \
                          return redis.call('XADD', KEYS[1], '*', unpack(ARGV, 2)) end";

/// The adapter's default deduplication window.
const WINDOW_MS: u64 = 120_000;

/// redis-rs alone, with a script per message that rejects duplicates.
struct DeduplicatingClient {
    connection: MultiplexedConnection,
    prefix: String,
    script: String,
}

#[async_trait]
impl Client for DeduplicatingClient {
    async fn publish(&mut self, messages: &[Message]) -> Result<()> {
        let mut pipeline = redis::pipe();
        for message in messages {
            let shard = shard(message);
            let (stream, id) = (format!("{}{{{shard}}}", self.prefix), message.id);
            pipeline.cmd("EVALSHA").arg(&self.script).arg(2).arg(&stream).arg(format!("{stream}:{id}")).arg(WINDOW_MS);
            with_fields(&mut pipeline, message);
        }
        store(&pipeline, &mut self.connection, messages.len()).await
    }

    async fn consume(&mut self, _: u64) -> Result<()> {
        Err("this client only publishes".into())
    }
}

/// The stream of a message; equal keys share a stream.
fn shard(message: &Message) -> usize {
    let key = message.key.as_ref().map_or("", |key| key.as_str());
    key.bytes().fold(0_usize, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into())) % STREAMS
}

fn with_fields(pipeline: &mut redis::Pipeline, message: &Message) {
    for (name, value) in wire::headers(message, "bench") {
        pipeline.arg(name).arg(value);
    }
    pipeline.arg("ce_data").arg(&message.payload[..]);
}

/// Sends `pipeline`, whose replies are the ids of the added entries.
async fn store(pipeline: &redis::Pipeline, connection: &mut MultiplexedConnection, count: usize) -> Result<()> {
    let ids: Vec<String> = pipeline.query_async(connection).await?;
    if ids.len() != count {
        return Err("some messages were not stored".into());
    }
    Ok(())
}

/// A stream entry: its id, then field names and values alternately.
type Entry = (String, Vec<Vec<u8>>);

/// redis-rs alone: the same fields in the same number of streams, a pipeline of `XADD` and a pipeline of `XACK`.
struct RawClient {
    connection: MultiplexedConnection,
    streams: Vec<String>,
    /// Entries read and not yet acknowledged, by stream.
    unacknowledged: Vec<(usize, Vec<String>)>,
    /// The number of entries read and not yet consumed.
    prefetched: u64,
}

impl RawClient {
    /// Builds the pipeline that acknowledges everything read so far.
    fn acknowledgements(&mut self) -> redis::Pipeline {
        let mut pipeline = redis::pipe();
        for (stream, ids) in self.unacknowledged.drain(..) {
            pipeline.cmd("XACK").arg(&self.streams[stream]).arg(GROUP).arg(ids);
        }
        pipeline
    }

    /// Reads the next entries and acknowledges the previous ones in the same round trip.
    async fn fetch(&mut self) -> Result<usize> {
        let mut pipeline = self.acknowledgements();
        pipeline.cmd("XREADGROUP").arg("GROUP").arg(GROUP).arg("bench").arg("COUNT").arg(IN_FLIGHT / STREAMS);
        pipeline.arg("STREAMS").arg(&self.streams);
        for _ in &self.streams {
            pipeline.arg(">");
        }
        let mut replies: Vec<Value> = pipeline.query_async(&mut self.connection).await?;
        let Some(Value::Array(streams)) = replies.pop() else { return Ok(0) };
        let mut count = 0;
        for stream in streams {
            let (name, entries): (String, Vec<Entry>) = redis::from_redis_value(stream)?;
            let stream = self.streams.iter().position(|known| *known == name).ok_or("Redis named an unknown stream")?;
            count += entries.len();
            self.unacknowledged.push((stream, entries.into_iter().map(|(id, _)| id).collect()));
        }
        Ok(count)
    }
}

#[async_trait]
impl Client for RawClient {
    async fn publish(&mut self, messages: &[Message]) -> Result<()> {
        let mut pipeline = redis::pipe();
        for message in messages {
            pipeline.cmd("XADD").arg(&self.streams[shard(message)]).arg("*");
            with_fields(&mut pipeline, message);
        }
        store(&pipeline, &mut self.connection, messages.len()).await
    }

    async fn consume(&mut self, count: u64) -> Result<()> {
        while self.prefetched < count {
            match self.fetch().await? as u64 {
                0 => return Err("the streams have no more entries".into()),
                more => self.prefetched += more,
            }
        }
        self.prefetched -= count;
        if self.prefetched == 0 {
            self.acknowledgements().exec_async(&mut self.connection).await?;
        }
        Ok(())
    }
}
