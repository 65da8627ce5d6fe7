//! The order of a key, where transaction ids, ids and commits disagree; and windows that are read in several batches.

use landfall_core::{Database, Decision, Leases, OutboxQueue, OutboxView, OutboxWriter, Shard};
use landfall_testkit::servers::private_postgres;

use crate::stage::{LONG, another, due, lease_all, message, migrated, open, publish_everything, settlement};

/// One takes his transaction id first and writes the key last: a cursor over transaction ids would turn them round.
#[tokio::test]
async fn the_order_of_row_locks_is_kept_whoever_began_first() {
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

/// Readers rely on ids that were given out in order, after the transaction got its number.
#[tokio::test]
async fn nobody_chooses_an_id_himself() {
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
    assert_eq!(first, "xid", "columns get their values in their order");
}

#[tokio::test]
async fn what_a_savepoint_took_back_is_not_sent_and_the_rest_is() {
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

/// More than a window is known by: it is walked, while others commit with lower and higher ids, and some of it is left.
#[tokio::test]
async fn a_large_window_is_walked_in_order_and_taken_over_in_the_middle() {
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
        // Every tenth is left for later, and read again.
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
    assert_eq!(past, 1, "what committed late came once");
    seen.sort_unstable();
    assert_eq!(seen, (1..=12_000).chain([20_000]).collect::<Vec<_>>(), "each once");
    assert_eq!(successor.stats().await.unwrap().published, 12_002);
}

/// Half of the shards change hands while they stand at different places, and come together again.
#[tokio::test]
async fn shards_that_were_apart_come_together_again() {
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
    assert!(!publish_everything(&database, &leases).await.is_empty(), "what the other one left");
    assert!(due(&database, &leases).await.is_empty());
    assert_eq!(database.stats().await.unwrap().published, expected);
    database.append(&[message("k1", 7)]).await.unwrap();
    assert_eq!(publish_everything(&database, &leases).await.len(), 1);
    let places: i64 = sqlx::query_scalar("SELECT count(DISTINCT n) FROM landfall_outbox_place")
        .fetch_one(database.pool())
        .await
        .unwrap();
    assert_eq!(places, 1, "one place for all of them");
}

/// A settlement that only said that something was sent need not survive a crash of the server; what follows from a loss
/// is a copy. That something failed does survive.
#[tokio::test]
async fn after_a_crash_of_the_server_nothing_is_lost_and_failures_are_known() {
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
    // The first look may only find out that the server has crashed.
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

/// Two keys whose shards were left in the middle of a window each, and a relay that gets both and settles nothing for a
/// while, as when the broker is away: whatever it is handed, no key comes without what it has left.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_handed_out_before_what_another_window_has_left() {
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
            // Its first message is settled by a relay that has only this shard: its window stays open.
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
