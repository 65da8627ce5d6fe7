//! The receiver of the daemons' pushes: an HTTP server in this process, which applies each message id once.

use std::collections::{BTreeMap, HashSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use landfall::{Error, ErrorKind, Result};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufStream};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

use super::handler::parse;
use super::ledger::Entry;
use crate::setup::TOPIC;

/// The group of the subscription.
pub const PUSH_GROUP: &str = "mailer";

/// Stops when dropped, together with its connections.
#[derive(Debug)]
pub struct PushReceiver {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
    accepting: JoinHandle<()>,
}

#[derive(Debug)]
struct State {
    random: StdRng,
    fails: bool,
    posts: usize,
    seen: HashSet<String>,
    applied: Vec<Entry>,
}

#[derive(Debug)]
struct Post {
    /// Names in lower case.
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

impl PushReceiver {
    pub async fn start(seed: u64) -> Result<Self> {
        let failed = |error| Error::new(ErrorKind::Unavailable, "cannot listen on 127.0.0.1").with_source(error);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let random = StdRng::seed_from_u64(seed);
        let state = State { random, fails: true, posts: 0, seen: HashSet::new(), applied: Vec::new() };
        let state = Arc::new(Mutex::new(state));
        let accepting = tokio::spawn(accept(listener, state.clone()));
        Ok(Self { address, state, accepting })
    }

    /// Writes the configuration of the daemons into their folder: a subscription with this receiver.
    pub fn configure(&self, folder: &Path) -> Result<()> {
        let config = format!(
            "[[subscription]]\ntopic = {TOPIC:?}\ngroup = {PUSH_GROUP:?}\nurl = \"http://{}/\"\n\n\
             [push]\nallow_private_addresses = true\n",
            self.address
        );
        std::fs::write(folder.join("landfall.toml"), config).map_err(|error| {
            Error::new(ErrorKind::Unavailable, "cannot write the configuration of the daemons").with_source(error)
        })
    }

    /// Ends refusals and lost responses.
    pub fn heal(&self) {
        self.state().fails = false;
    }

    /// The number of requests, duplicates and refused ones included.
    pub fn posts(&self) -> usize {
        self.state().posts
    }

    pub fn applied_count(&self) -> usize {
        self.state().applied.len()
    }

    /// The effects in the order in which they happened.
    pub fn applied(&self) -> Vec<Entry> {
        self.state().applied.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl Drop for PushReceiver {
    /// Closes all connections too: the accept task owns them.
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// Ignores poisoning: a test that panicked has failed already.
fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn accept(listener: TcpListener, state: Arc<Mutex<State>>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        connections.spawn(serve(stream, state.clone()));
        while connections.try_join_next().is_some() {}
    }
}

async fn serve(stream: TcpStream, state: Arc<Mutex<State>>) {
    let mut stream = BufStream::new(stream);
    while let Some(post) = read(&mut stream).await {
        // Without a response the sender cannot know whether the message took effect.
        let Some(status) = lock(&state).apply(&post) else { return };
        let response = format!("HTTP/1.1 {status} Because\r\ncontent-length: 0\r\n\r\n");
        if stream.write_all(response.as_bytes()).await.is_err() || stream.flush().await.is_err() {
            return;
        }
    }
}

impl State {
    /// Returns the status of the response, or `None` to close the connection without one.
    fn apply(&mut self, post: &Post) -> Option<u16> {
        self.posts += 1;
        let fault = if self.fails { self.random.random_range(0..100) } else { 100 };
        match fault {
            0 => return Some(500),
            1 => return Some(503),
            _ => {}
        }
        let header = |name: &str| post.headers.get(name).cloned().unwrap_or_default();
        let Some((_, token, number)) = parse(&post.body) else { return Some(400) };
        if self.seen.insert(header("idempotency-key")) {
            self.applied.push(Entry { token, account: header("ce-partitionkey"), number });
        }
        (fault != 2).then_some(200)
    }
}

async fn read(stream: &mut BufStream<TcpStream>) -> Option<Post> {
    let mut line = String::new();
    stream.read_line(&mut line).await.ok().filter(|read| *read > 0)?;
    let mut headers = BTreeMap::new();
    loop {
        line.clear();
        stream.read_line(&mut line).await.ok().filter(|read| *read > 0)?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let mut body = vec![0; headers.get("content-length").and_then(|length| length.parse().ok()).unwrap_or(0)];
    stream.read_exact(&mut body).await.ok()?;
    Some(Post { headers, body })
}
