//! A running `landfall serve`.

use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use landfall_testkit::eventually;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use super::{Answer, PATIENCE, get, post};

/// Killed when dropped.
pub(crate) struct Daemon {
    child: Child,
    pub(crate) address: SocketAddr,
    /// What it wrote to stderr so far.
    lines: Arc<Mutex<Vec<String>>>,
}

impl Daemon {
    /// Waits for the ready line, which names the address.
    pub(crate) async fn start(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = Arc::new(Mutex::new(Vec::new()));
        let mut stderr = BufReader::new(child.stderr.take().unwrap()).lines();
        let collected = lines.clone();
        tokio::spawn(async move {
            while let Ok(Some(line)) = stderr.next_line().await {
                collected.lock().unwrap().push(line);
            }
        });
        let ready = || lines.lock().unwrap().iter().find_map(|line| address_of(line));
        eventually(PATIENCE, "the ready line", async || {
            let ended = child.try_wait().unwrap();
            assert!(ended.is_none(), "the daemon ended with {ended:?}: {:?}", lines.lock().unwrap());
            ready().is_some()
        })
        .await;
        let address = ready().unwrap();
        Self { child, address, lines }
    }

    pub(crate) fn stderr(&self) -> String {
        self.lines.lock().unwrap().join("\n")
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        get(self.address, path).await
    }

    pub(crate) async fn post(&self, path: &str, body: impl AsRef<[u8]>) -> Answer {
        post(self.address, path, body).await
    }

    /// Sends a message that must be taken, and answers with its id.
    pub(crate) async fn send(&self, body: &str) -> String {
        let answer = self.post("/v1/messages", body).await;
        assert_eq!(answer.status, 202, "{answer:?}");
        answer.json()["id"].as_str().unwrap().to_owned()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().unwrap() as i32), signal).unwrap();
    }

    /// The exit code.
    pub(crate) async fn ended(mut self) -> Option<i32> {
        let status = tokio::time::timeout(PATIENCE, self.child.wait()).await.expect("the daemon must end").unwrap();
        status.code()
    }
}

fn address_of(line: &str) -> Option<SocketAddr> {
    line.strip_prefix("landfall: ready on http://")?.split(' ').next()?.parse().ok()
}
