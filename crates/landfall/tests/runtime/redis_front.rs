//! Redis in front of the inbox: whatever happens to it, effects happen once.

use std::time::Duration;

use landfall::consume::{Context, DedupCache, Options, RedisDedupCache, plain};
use landfall::{Failure, Message};
use landfall_testkit::servers::RedisServer;
use landfall_testkit::{current_test, eventually};

use crate::batches::many;
use crate::ground::{Ground, PATIENCE, group, options};
use crate::on_every_database;
use crate::place::Place;

on_every_database!(
    copies_are_turned_away_and_redis_may_be_flushed_paused_or_gone,
    what_redis_remembers_and_the_inbox_does_not_takes_effect,
);

async fn record<D: Place>(context: Context<'_, D>) -> Result<(), Failure> {
    D::record(context.connection, context.message).await?;
    Ok(())
}

fn front(redis: &RedisServer) -> RedisDedupCache {
    RedisDedupCache::new(&redis.url(), Duration::from_secs(600)).unwrap()
}

async fn copies_are_turned_away_and_redis_may_be_flushed_paused_or_gone<D: Place>(ground: Ground<D>) {
    let Some(redis) = RedisServer::start(&current_test()).await else { return };
    let batches = [1, 10].map(|batch| Options { batch, concurrency: 4, ..options() });
    let members = batches.map(|options| ground.consumer_behind(options, front(&redis), plain(record::<D>)));
    let mut sent: Vec<Message> = Vec::new();
    for trouble in ["none", "flushed", "paused", "resumed", "gone"] {
        match trouble {
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
        // All that was ever sent comes again, beside the new ones.
        ground.publish(&sent).await;
        ground.publish(&sent).await;
        ground.effects_become(sent.len()).await;
        ground.is_drained().await;
        if trouble == "none" {
            // A Redis that was slow once is left alone for a second; what was handled meanwhile is remembered with its
            // next copy.
            eventually(PATIENCE, "the ids are remembered", async || {
                ground.publish(&sent).await;
                ground.is_drained().await;
                redis.size().await == 30
            })
            .await;
        }
    }
    for member in members {
        member.stop().await;
    }
    assert_eq!(ground.database.effects().await.len(), sent.len(), "each once");
    assert!(ground.letters().await.is_empty());
}

/// As if whoever set the mark had crashed before its commit, or the database had been restored from a backup.
async fn what_redis_remembers_and_the_inbox_does_not_takes_effect<D: Place>(ground: Ground<D>) {
    let Some(redis) = RedisServer::start(&current_test()).await else { return };
    let messages = many(10, |_| "good");
    let ids: Vec<_> = messages.iter().map(|message| message.id).collect();
    // It has a tenth of a second to answer, the first connection included.
    eventually(PATIENCE, "Redis remembers them", async || {
        front(&redis).remember(&group(), &ids).await.is_ok()
            && front(&redis).probably_seen(&group(), &ids).await.is_ok_and(|seen| seen == ids)
    })
    .await;
    ground.publish(&messages).await;
    let running = ground.consumer_behind(options(), front(&redis), plain(record::<D>));
    ground.effects_become(10).await;
    running.stop().await;
    ground.all_is_acknowledged().await;
}
