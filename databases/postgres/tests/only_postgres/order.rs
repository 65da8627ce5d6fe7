//! The order of a key if transaction ids, row ids and commits disagree; and windows that are read in several batches.

use landfall_core::adapter::{Decision, Shard};
use landfall_core::{Database, Leases, OutboxQueue, OutboxView, OutboxWriter};
use landfall_testkit::servers::private_postgres;

use crate::stage::{LONG, another, due, lease_all, message, migrated, open, publish_everything, settlement};

/// A transaction gets its transaction id first and writes the key last: a cursor over transaction ids would reorder
/// them.
#[tokio::test]
async fn order_of_row_locks_wins_over_transaction_order() {
    let Some(database) = migrated().await else { return };
    let leases = lease_all(&database, "one", LONG).await;
    let mut began_first = database.begin().await.unwrap();
    sqlx::query("SELECT pg_current_xact_id()").execute(&mut *began_first).await.unwrap();
    let (first, second) = (message("a", 1), message("a", 2));
    database.append(std::slice::from_ref(&first)).await.unwrap();
    database.enqueue(&mut began_first, std::slice::from_ref(&second)).await.unwrap();
    database.commit(began_first).await.unwrap();
    assert_eq!(publish_everything(&database, &leases).await, [first.id, second.id]);
}

/// Readers rely on row ids that are drawn in order, after the transaction got its transaction id.
#[tokio::test]
async fn writers_cannot_choose_ids() {
    let Some(database) = migrated().await else { return };
    let chosen = "INSERT INTO landfall_outbox (id, topic, payload) VALUES (500, 'orders', '')";
    let error = sqlx::query(chosen).execute(database.pool()).await.unwrap_err();
    assert_eq!(error.as_database_error().unwrap().code().as_deref(), Some("428C9"), "{error}");
    let first: String = sqlx::query_scalar(
        "SELECT attname::text FROM pg_attribute WHERE attrelid = 'landfall_outbox'::regclass AND attnum = 1",
    )
    .fetch_one(database.pool())
    .await
    .unwrap();
    assert_eq!(first, "xid", "columns get their values in order of definition");
}

#[tokio::test]
async fn rows_rolled_back_to_a_savepoint_are_not_sent() {
    let Some(database) = migrated().await else { return };
    let leases = lease_all(&database, "one", LONG).await;
    let mut transaction = database.begin().await.unwrap();
    let kept = [message("a", 1), message("a", 3), message("a", 4)];
    database.enqueue(&mut transaction, &kept[..1]).await.unwrap();
    for (statement, message) in [("ROLLBACK TO inner_part", message("a", 2)), ("RELEASE inner_part", kept[1].clone())] {
        sqlx::query("SAVEPOINT inner_part").execute(&mut *transaction).await.unwrap();
        database.enqueue(&mut transaction, &[message]).await.unwrap();
        sqlx::query(statement).execute(&mut *transaction).await.unwrap();
    }
    database.enqueue(&mut transaction, &kept[2..]).await.unwrap();
    assert!(due(&database, &leases).await.is_empty());
    database.commit(transaction).await.unwrap();
    assert_eq!(publish_everything(&database, &leases).await, kept.map(|message| message.id));
}

/// The window is too large to be listed. It is read range by range while others commit lower and higher ids.
#[tokio::test]
async fn large_window_is_read_in_order_across_a_takeover() {
    let Some(database) = migrated().await else { return };
    let mut late = database.begin().await.unwrap();
    let from_the_past = message("k1", 0);
    database.enqueue(&mut late, std::slice::from_ref(&from_the_past)).await.unwrap();
    let load = "INSERT INTO landfall_outbox (topic, key, sequence, payload)
                SELECT 'orders', 'k' || n % 50, n, '' FROM generate_series(1, 12000) n";
    sqlx::query(load).execute(database.pool()).await.unwrap();
    let leases = lease_all(&database, "one", LONG).await;
    let mut seen: Vec<i64> = Vec::new();
    for round in 0..3 {
        let entries = database.next(&leases, 700).await.unwrap();
        assert_eq!(entries.len(), 700, "round {round}");
        // Every tenth row is left unsettled and read again.
        let settled: Vec<_> = entries.iter().filter(|entry| entry.row % 10 != 0).collect();
        let settlements: Vec<_> = settled.iter().map(|entry| settlement(entry, Decision::Published)).collect();
        assert_eq!(database.settle(&leases, &settlements).await.unwrap().len(), settled.len());
        seen.extend(settled.iter().map(|entry| entry.message.as_ref().unwrap().sequence.unwrap()));
    }
    database.commit(late).await.unwrap();
    database.append(&[message("k2", 20_000)]).await.unwrap();

    database.release(&leases).await.unwrap();
    let successor = another(&database).await;
    let leases = lease_all(&successor, "two", LONG).await;
    let mut past = 0;
    loop {
        let entries = successor.next(&leases, 900).await.unwrap();
        if entries.is_empty() {
            break;
        }
        let settlements: Vec<_> = entries.iter().map(|entry| settlement(entry, Decision::Published)).collect();
        assert_eq!(successor.settle(&leases, &settlements).await.unwrap().len(), entries.len());
        past += entries.iter().filter(|entry| entry.message_id == from_the_past.id).count();
        seen.extend(entries.iter().filter_map(|entry| entry.message.as_ref().unwrap().sequence).filter(|n| *n > 0));
    }
    assert_eq!(past, 1, "the late commit came once");
    seen.sort_unstable();
    assert_eq!(seen, (1..=12_000).chain([20_000]).collect::<Vec<_>>(), "each once");
    assert_eq!(successor.stats().await.unwrap().published, 12_002);
}

/// Half of the shards get another holder while their progress differs, and then make equal progress again.
#[tokio::test]
async fn shards_with_different_progress_converge() {
    let Some(database) = migrated().await else { return };
    let other = another(&database).await;
    let leases = lease_all(&database, "one", LONG).await;
    let (mine, given_away) = leases.split_at(8);
    let mut expected = 0;
    for round in 0..6 {
        let messages: Vec<_> = (0..40).map(|n| message(&format!("k{n}"), round)).collect();
        database.append(&messages).await.unwrap();
        expected += messages.len() as u64;
        publish_everything(&database, mine).await;
        if round % 2 == 0 {
            publish_everything(&other, given_away).await;
        }
    }
    assert!(!publish_everything(&database, &leases).await.is_empty(), "the other relay's rest");
    assert!(due(&database, &leases).await.is_empty());
    assert_eq!(database.stats().await.unwrap().published, expected);
    database.append(&[message("k1", 7)]).await.unwrap();
    assert_eq!(publish_everything(&database, &leases).await.len(), 1);
    let places: i64 = sqlx::query_scalar("SELECT count(DISTINCT n) FROM landfall_outbox_place")
        .fetch_one(database.pool())
        .await
        .unwrap();
    assert_eq!(places, 1, "one row of progress for all shards");
}

/// A settlement of published messages need not survive a crash of the server: losing it causes duplicates. A settlement
/// of a failure survives.
#[tokio::test]
async fn server_crash_loses_no_message_and_no_failure() {
    let Some(server) = private_postgres().await else { return };
    let database = open(&server.fresh_database().await.unwrap()).await;
    landfall_core::Schema::migrate(&database).await.unwrap();
    let leases = lease_all(&database, "one", LONG).await;
    let messages: Vec<_> = (1..=6).map(|n| message(&format!("k{n}"), n)).collect();
    database.append(&messages[..5]).await.unwrap();
    let entries = database.next(&leases, 10).await.unwrap();
    let retry = Decision::Retry { after: LONG, error: "busy".into() };
    database.settle(&leases, &[settlement(&entries[0], retry)]).await.unwrap();
    let sent: Vec<_> = entries[1..4].iter().map(|entry| settlement(entry, Decision::Published)).collect();
    assert_eq!(database.settle(&leases, &sent).await.unwrap().len(), 3);
    server.kill_9().await.unwrap();
    server.restart().await.unwrap();
    landfall_testkit::eventually(crate::stage::SOON, "the server answers", async || {
        database.append(&messages[5..]).await.is_ok()
    })
    .await;

    let stats = database.stats().await.unwrap();
    assert_eq!((stats.retrying, stats.pending + stats.published), (1, 5));
    // The first call may only detect the crash.
    let left = match database.next(&leases, 10).await {
        Ok(entries) => entries.iter().map(|entry| entry.message_id).collect(),
        Err(error) => {
            assert!(error.is_temporary(), "{error}");
            due(&database, &leases).await
        }
    };
    assert!(left.contains(&messages[4].id) && left.contains(&messages[5].id) && !left.contains(&messages[0].id));
    assert_eq!(left.len() as u64, stats.pending);
}

/// Two keys are in shards that were each left in the middle of a window. A relay gets both and settles nothing for a
/// while, as during an outage of the broker. No batch may contain a key without the rest of its older window.
#[tokio::test(flavor = "multi_thread")]
async fn newer_rows_wait_for_the_rest_of_an_older_window() {
    let Some(database) = migrated().await else { return };
    let leases = lease_all(&database, "one", LONG).await;
    let mut keys: Vec<(String, Shard)> = Vec::new();
    for number in 0.. {
        let key = format!("key-{number}");
        database.append(&[message(&key, 1), message(&key, 2)]).await.unwrap();
        let entries = database.next(&leases, 1000).await.unwrap();
        let shard =
            entries.iter().find(|entry| entry.message.as_ref().unwrap().payload == format!("{key}/1")).unwrap().shard;
        if keys.iter().all(|(_, other)| *other != shard) {
            // A relay with only this shard settles its first message, so its window stays open.
            let alone = another(&database).await;
            let lease = leases.iter().filter(|lease| lease.name == shard.lease_name()).cloned().collect::<Vec<_>>();
            let entries = alone.next(&lease, 1000).await.unwrap();
            let first =
                entries.iter().find(|entry| entry.message.as_ref().unwrap().payload == format!("{key}/1")).unwrap();
            alone.settle(&lease, &[settlement(first, Decision::Published)]).await.unwrap();
            keys.push((key, shard));
        } else {
            publish_everything(&database, &leases).await;
        }
        if keys.len() == 2 {
            break;
        }
    }

    let both = another(&database).await;
    for round in 0..12 {
        let entries = both.next(&leases, 1000).await.unwrap();
        for (key, _) in &keys {
            let mut numbers = entries.iter().filter_map(|entry| {
                let message = entry.message.as_ref().unwrap();
                (message.key.as_ref().unwrap().as_str() == key).then(|| message.sequence.unwrap())
            });
            let first = numbers.next();
            assert!(first.is_none_or(|first| first == 2), "round {round}: {key}/{first:?} came before {key}/2");
            assert!(numbers.is_sorted(), "round {round}");
        }
        if round == 3 {
            for (key, _) in &keys {
                both.append(&[message(key, 3)]).await.unwrap();
            }
        }
    }
}
