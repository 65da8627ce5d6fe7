//! Runs the programs of `examples/quickstart` as its page tells a newcomer to.

use std::path::{Path, PathBuf};

use landfall_testkit::{Process, current_test, not_run};
use tokio::process::Command;

use super::support::{Daemon, Finished, Sandbox, TIMEOUT, finish};

fn quickstart() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/quickstart")
}

/// `interpreter examples/quickstart/program` in the sandbox; `None` without the interpreter.
async fn program(sandbox: &Sandbox, interpreter: &str, program: &str) -> Option<Command> {
    let Ok(_) = Command::new(interpreter).arg("--version").output().await else {
        not_run(&current_test(), &format!("{interpreter} is not installed"));
        return None;
    };
    let mut command = Command::new(interpreter);
    command.arg(quickstart().join(program)).current_dir(sandbox.path()).kill_on_drop(true);
    Some(command)
}

/// Starts a receiver on a free port, and the daemon with the quickstart's configuration, which posts to it.
async fn start(sandbox: &Sandbox, mut receiver: Command) -> (Process, Daemon) {
    receiver.env("PORT", "0");
    let mut receiver = Process::spawn(receiver).unwrap();
    let line = receiver.wait_for_line(TIMEOUT, |line| line.starts_with("listening on ")).await.unwrap();
    let address = line.strip_prefix("listening on ").unwrap();
    let configuration = std::fs::read_to_string(quickstart().join("landfall.toml")).unwrap();
    assert!(configuration.contains("127.0.0.1:8080"), "{configuration}");
    sandbox.configure(&configuration.replace("127.0.0.1:8080", address));
    let daemon = sandbox.serve().await;
    (receiver, daemon)
}

async fn output(command: Command) -> String {
    let Finished { code, stdout, stderr } = finish(command).await;
    assert_eq!(code, 0, "{stdout}{stderr}");
    stdout
}

#[tokio::test]
async fn python_sends_in_its_transaction_and_receives_once() {
    let sandbox = Sandbox::new();
    let Some(receiver) = program(&sandbox, "python3", "receive.py").await else { return };
    let (mut receiver, _daemon) = start(&sandbox, receiver).await;
    for order in 1..=2 {
        let send = program(&sandbox, "python3", "send.py").await.unwrap();
        assert_eq!(output(send).await, format!("placed order {order}\n"));
        let line = receiver.wait_for_line(TIMEOUT, |_| true).await.unwrap();
        assert_eq!(line, format!("order {order}: reserved, {} left", 10 - order));
    }
}

#[tokio::test]
async fn node_sends_over_http_and_receives_once() {
    let sandbox = Sandbox::new();
    let Some(receiver) = program(&sandbox, "node", "receive.mjs").await else { return };
    let (mut receiver, daemon) = start(&sandbox, receiver).await;
    let send = async |order: &str| {
        let mut send = program(&sandbox, "node", "send.mjs").await.unwrap();
        send.arg(order).env("LANDFALL_URL", format!("http://{}", daemon.address));
        output(send).await
    };
    for order in ["1", "2"] {
        let accepted = send(order).await;
        assert_eq!(send(order).await, accepted, "a repeated order is the same message");
        assert!(accepted.starts_with(&format!("accepted order {order} as ")), "{accepted}");
        let line = receiver.wait_for_line(TIMEOUT, |_| true).await.unwrap();
        assert_eq!(line, format!("order {order}: receipt written"));
    }
}
