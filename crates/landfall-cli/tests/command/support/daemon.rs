//! A running `landfall serve`.

use std::net::SocketAddr;

use landfall_testkit::{Process, eventually};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::Command;

use super::{Response, TIMEOUT, get, post};

/// Killed when dropped.
pub(crate) struct Daemon {
    process: Process,
    pub(crate) address: SocketAddr,
}

impl Daemon {
    /// Starts the daemon and waits for the ready line, which names the address.
    pub(crate) async fn start(command: Command) -> Self {
        let process = Process::spawn(command).unwrap();
        let mut address = None;
        eventually(TIMEOUT, "the ready line", async || {
            address = process.stderr().iter().find_map(|line| address_of(line));
            let failed = process.stderr().into_iter().find(|line| line.starts_with("landfall: ") && address.is_none());
            assert_eq!(failed, None, "the daemon did not start");
            address.is_some()
        })
        .await;
        Self { process, address: address.unwrap() }
    }

    /// Returns where the proxy listens, which the ready line names.
    pub(crate) fn proxy(&self) -> SocketAddr {
        let lines = self.process.stderr();
        let address = lines.iter().find_map(|line| line.split_once(", proxy on ")?.1.split_once("://"));
        address.unwrap().1.trim_end_matches(')').parse().unwrap()
    }

    /// Returns stderr so far.
    pub(crate) fn stderr(&self) -> String {
        self.process.stderr().join("\n")
    }

    pub(crate) async fn get(&self, path: &str) -> Response {
        get(self.address, path).await
    }

    pub(crate) async fn post(&self, path: &str, body: impl AsRef<[u8]>) -> Response {
        post(self.address, path, body).await
    }

    /// Sends a message, asserts that it is accepted, and returns its id.
    pub(crate) async fn send(&self, body: &str) -> String {
        let response = self.post("/v1/messages", body).await;
        assert_eq!(response.status, 202, "{response:?}");
        response.json()["id"].as_str().unwrap().to_owned()
    }

    pub(crate) fn pid(&self) -> i32 {
        self.process.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.process.id()), signal).unwrap();
    }

    /// Kills the process with SIGKILL and waits for its exit.
    pub(crate) async fn kill(self) {
        self.signal(Signal::SIGKILL);
        self.exit_code().await;
    }

    /// Waits for the exit and returns the exit code.
    pub(crate) async fn exit_code(mut self) -> Option<i32> {
        self.process.wait(TIMEOUT).await.unwrap().code()
    }
}

fn address_of(line: &str) -> Option<SocketAddr> {
    let rest = line.strip_prefix("landfall: ready on ")?;
    rest.strip_prefix("http://").or_else(|| rest.strip_prefix("https://"))?.split(' ').next()?.parse().ok()
}
