//! Idle connections must not take the file descriptors that the embedded log and the database need.

use landfall_testkit::eventually;
use tokio::net::TcpStream;
use tokio::process::Command;

use super::support::{Daemon, Sandbox, TIMEOUT};

/// Starts the daemon with the limits that `ulimit` sets.
async fn serve_with(sandbox: &Sandbox, ulimit: &str) -> Daemon {
    let serve = sandbox.command(&["serve", "--listen", "127.0.0.1:0"]);
    let program = serve.as_std().get_program().to_str().unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", &format!("{ulimit} && exec \"$0\" \"$@\""), program]).args(serve.as_std().get_args());
    command.current_dir(sandbox.path()).kill_on_drop(true);
    for (name, value) in serve.as_std().get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    Daemon::start(command).await
}

async fn is_published(sandbox: &Sandbox, topic: &str) -> bool {
    let finished = sandbox.run(&["topic", "tail", topic, "--json"]).await;
    finished.code == 0 && finished.stdout.contains(topic)
}

#[tokio::test]
async fn idle_connections_do_not_stop_the_log() {
    let sandbox = Sandbox::new();
    sandbox.configure("[http]\nrequest_timeout_ms = 500\n");
    let daemon = serve_with(&sandbox, "ulimit -n 128").await;
    daemon.send(r#"{"topic":"before","payload":1}"#).await;
    eventually(TIMEOUT, "the first topic", async || is_published(&sandbox, "before").await).await;

    let mut idle = Vec::new();
    for _ in 0..200 {
        idle.push(TcpStream::connect(daemon.address).await.unwrap());
    }
    // The relay opens a new topic while every connection is taken.
    sandbox.sql("INSERT INTO landfall_outbox (topic, payload) VALUES ('during', x'31')").await;
    eventually(TIMEOUT, "a topic during the flood", async || is_published(&sandbox, "during").await).await;
    // Silent connections are closed in time, so this request has its turn although they are still open here.
    let sent = tokio::time::timeout(TIMEOUT, daemon.send(r#"{"topic":"after","payload":1}"#)).await;
    sent.expect("the daemon must accept again");
    eventually(TIMEOUT, "a topic after the flood", async || is_published(&sandbox, "after").await).await;
    assert_eq!(daemon.get("/healthz").await.status, 200);
    drop(idle);
}

#[tokio::test]
async fn soft_limit_of_open_files_is_raised() {
    let sandbox = Sandbox::new();
    let daemon = serve_with(&sandbox, "ulimit -Sn 100").await;
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", daemon.pid())).unwrap();
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap();
    let [soft, hard, ..] = line.split_whitespace().collect::<Vec<_>>()[..] else { panic!("{line}") };
    assert_eq!(soft, hard);
}
