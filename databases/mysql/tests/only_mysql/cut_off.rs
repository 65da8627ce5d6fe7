//! A call whose caller is gone in the middle of it: whatever the driver had read of the answer by then, nobody who comes
//! later gets the rest of it, and the pool has its connection back.

use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use landfall_mysql::{MySql, Options};
use landfall_testkit::servers::fresh_mysql_database;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

use crate::stage::SOON;

/// Polls `call` at most so many times, and drops it. Answers with how often that was, if it came to its end.
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

/// A way to the server on which the answers come byte by byte, so that a call can be cut off anywhere in one.
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
    // Encrypted, every place would be one in the middle of a record, and the certificate alone would take seconds.
    format!("{before}@{address}/{path}?ssl-mode=disabled")
}

async fn forward(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, at_a_time: usize, pause: Duration) {
    let mut bytes = vec![0; at_a_time];
    while let Ok(count @ 1..) = from.read(&mut bytes).await {
        if to.write_all(&bytes[..count]).await.is_err() {
            return;
        }
        // Not a wait for anything: it is a slow wire, on which one byte has been read before the next one comes.
        tokio::time::sleep(pause).await;
    }
}

/// So many places of the answer are tried, all at the same time: a connection that is out of step is given some time.
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

/// The driver takes the answer to a `PREPARE` for that of a statement if whoever asked is gone, waits for what never
/// comes, and the pool with it.
#[tokio::test(flavor = "multi_thread")]
async fn a_statement_that_is_cut_off_anywhere_leaves_the_pool_in_step() {
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
            let answer = answer.unwrap_or_else(|_| panic!("nobody gets a connection after {polls} polls"));
            assert_eq!(answer.unwrap(), 1000 + polls as i64, "after {polls} of {whole} polls");
        });
    }
    while let Some(place) = places.join_next().await {
        place.unwrap();
    }
}
