//! The dedup cache in Redis: effects happen once, whatever happens to Redis.

use std::time::Duration;

use landfall::consume::{Context, DedupCache, Options, RedisDedupCache, plain};
use landfall::{ErrorKind, Failure, Message};
use landfall_testkit::servers::RedisServer;
use landfall_testkit::{current_test, eventually};

use crate::batches::many;
use crate::database::TestDatabase;
use crate::fixture::{Fixture, TIMEOUT, group, options};
use crate::on_every_database;

on_every_database!(
    duplicates_are_discarded_with_redis_flushed_paused_or_gone,
    id_known_to_redis_but_not_to_the_inbox_takes_effect,
);

async fn record<D: TestDatabase>(context: Context<'_, D>) -> Result<(), Failure> {
    D::record(context.connection, context.message).await?;
    Ok(())
}

fn cache(redis: &RedisServer) -> RedisDedupCache {
    RedisDedupCache::new(&redis.url(), Duration::from_secs(600)).unwrap()
}

async fn duplicates_are_discarded_with_redis_flushed_paused_or_gone<D: TestDatabase>(fixture: Fixture<D>) {
    let Some(redis) = RedisServer::start(&current_test()).await else { return };
    let batches = [1, 10].map(|batch| Options { batch, concurrency: 4, ..options() });
    let members = batches.map(|options| fixture.consumer_behind(options, cache(&redis), plain(record::<D>)));
    let mut sent: Vec<Message> = Vec::new();
    for fault in ["none", "flushed", "paused", "resumed", "gone"] {
        match fault {
            "flushed" => redis.flush().await.unwrap(),
            "paused" => redis.pause().await.unwrap(),
            "resumed" => redis.resume().await.unwrap(),
            "gone" => redis.kill_9().await.unwrap(),
            _ => {}
        }
        let first = sent.len() as i64;
        sent.extend(many(30, |_| "good").into_iter().map(|message| {
            let sequence = message.sequence.map(|n| n + first);
            Message { sequence, ..message }
        }));
        // Everything sent so far is delivered again, with the new messages.
        fixture.publish(&sent).await;
        fixture.publish(&sent).await;
        fixture.effects_become(sent.len()).await;
        fixture.is_drained().await;
        if fault == "none" {
            // The cache bypasses Redis for a second after a slow reply. Ids handled meanwhile are added with their next
            // duplicate.
            eventually(TIMEOUT, "the ids are remembered", async || {
                fixture.publish(&sent).await;
                fixture.is_drained().await;
                redis.size().await == 30
            })
            .await;
        }
    }
    for member in members {
        member.stop().await;
    }
    assert_eq!(fixture.database.effects().await.len(), sent.len(), "each once");
    assert!(fixture.letters().await.is_empty());
}

/// As if a consumer had crashed between the cache and its commit, or the database had been restored from a backup.
async fn id_known_to_redis_but_not_to_the_inbox_takes_effect<D: TestDatabase>(fixture: Fixture<D>) {
    let Some(redis) = RedisServer::start(&current_test()).await else { return };
    let messages = many(10, |_| "good");
    let ids: Vec<_> = messages.iter().map(|message| message.id).collect();
    // Redis has 100 ms to answer, including the first connection.
    eventually(TIMEOUT, "Redis remembers them", async || {
        cache(&redis).remember(&group(), &ids).await.is_ok()
            && cache(&redis).probably_seen(&group(), &ids).await.is_ok_and(|seen| seen == ids)
    })
    .await;
    fixture.publish(&messages).await;
    let running = fixture.consumer_behind(options(), cache(&redis), plain(record::<D>));
    fixture.effects_become(10).await;
    running.stop().await;
    fixture.all_is_acknowledged().await;
}

#[test]
fn period_below_a_second_is_refused_by_name() {
    let error = RedisDedupCache::new("redis://127.0.0.1:1/0", Duration::from_millis(999)).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("keep is 999ms"), "{error}");
}
