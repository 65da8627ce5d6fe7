//! A call is cancelled in the middle of its answer. No later caller gets the rest of the answer, and the pool gets its
//! connection back.

use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use landfall_mysql::{MySql, Options};
use landfall_testkit::servers::fresh_mysql_database;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

use crate::stage::SOON;

/// Polls `call` at most `polls` times, and drops it. Returns the number of polls if it has ended.
async fn cut_off_after(polls: usize, call: impl Future) -> Option<usize> {
    let mut call = pin!(call);
    let mut done = 0;
    std::future::poll_fn(|context| {
        done += 1;
        match call.as_mut().poll(context) {
            Poll::Ready(_) => Poll::Ready(Some(done)),
            Poll::Pending if done >= polls => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// A proxy that delivers answers byte by byte, so that a call can be cancelled at any byte.
async fn dribbling(url: &str) -> String {
    let (before, rest) = url.split_once('@').unwrap();
    let (server, path) = rest.split_once('/').unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = server.to_owned();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let Ok(server) = TcpStream::connect(&server).await else { return };
            client.set_nodelay(true).unwrap();
            server.set_nodelay(true).unwrap();
            let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
            tokio::spawn(forward(from_client, to_server, 4096, Duration::ZERO));
            tokio::spawn(forward(from_server, to_client, 1, Duration::from_millis(1)));
        }
    });
    // With TLS, every byte would be in the middle of a record, and the certificate alone would take seconds.
    format!("{before}@{address}/{path}?ssl-mode=disabled")
}

async fn forward(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, at_a_time: usize, pause: Duration) {
    let mut bytes = vec![0; at_a_time];
    while let Ok(count @ 1..) = from.read(&mut bytes).await {
        if to.write_all(&bytes[..count]).await.is_err() {
            return;
        }
        // A slow wire: each byte is read before the next one arrives.
        tokio::time::sleep(pause).await;
    }
}

/// Number of bytes at which calls are cancelled, all at the same time: checking a desynced connection takes a while.
const PLACES: usize = 60;

async fn one_connection(url: &str) -> MySql {
    MySql::connect(url, Options { max_connections: 1, ..Options::default() }).await.unwrap()
}

async fn select(database: &MySql, polls: usize) -> Option<usize> {
    let call = sqlx::query_as::<_, (i64, String)>("SELECT CAST(? AS SIGNED) AS first, ? AS second")
        .bind(7_i64)
        .bind("a text of some length, so that there are places in the middle of it")
        .fetch_all(database.pool());
    cut_off_after(polls, call).await
}

/// After a cancellation, the driver takes the answer to a `PREPARE` for that of a statement. It would wait for ever,
/// and the pool with it.
#[tokio::test(flavor = "multi_thread")]
async fn statement_cancelled_anywhere_leaves_the_pool_in_sync() {
    let Some(url) = fresh_mysql_database().await else { return };
    let url = dribbling(&url).await;
    let whole = select(&one_connection(&url).await, usize::MAX).await.unwrap();
    assert!(whole > PLACES, "the answer can be cut off at {whole} places only");
    let mut places = tokio::task::JoinSet::new();
    for polls in (1..=whole).step_by(whole / PLACES) {
        let url = url.clone();
        places.spawn(async move {
            let database = one_connection(&url).await;
            select(&database, polls).await;
            let answer = sqlx::query_scalar::<_, i64>("SELECT 1000 + ?").bind(polls as i64).fetch_one(database.pool());
            let answer = tokio::time::timeout(SOON, answer).await;
            let answer = answer.unwrap_or_else(|_| panic!("no connection is free after {polls} polls"));
            assert_eq!(answer.unwrap(), 1000 + polls as i64, "after {polls} of {whole} polls");
        });
    }
    while let Some(place) = places.join_next().await {
        place.unwrap();
    }
}
