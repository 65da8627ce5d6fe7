//! The daemon or the service is killed or paused at the worst moment.

use std::path::Path;

use landfall_testkit::{Process, eventually};
use nix::sys::signal::Signal;
use tokio::process::Command;

use super::super::support::{Sandbox, TIMEOUT, on_each};
use super::fixture::{Pay, Shop, refused, replayed, route_to, second, serve, until_status};

on_each! {
    async fn killed_daemon_leaves_its_request_to_the_policy(sandbox: &Sandbox) {
        for (policy, effects) in [("rerun", 2), ("uncertain", 1)] {
            let shop = Shop::start().await;
            let lines = format!("on_unknown = \"{policy}\"\nlease_ms = 1500\nwait_ms = 0\n");
            let daemon = serve(sandbox, &shop.route(&lines)).await;
            let held = Pay { key: Some(policy), behave: "held", ..Pay::default() };
            let call = held.spawn(daemon.proxy());
            shop.wait_for_effects(1).await;
            daemon.kill().await;
            // The connection of the client ends without an answer.
            assert!(call.await.is_err());
            shop.open_gate();
            let daemon = sandbox.serve_as("push").await;
            let status = if policy == "rerun" { 201 } else { 409 };
            let answer = if policy == "rerun" {
                until_status(daemon.proxy(), &held, status).await
            } else {
                let mut answer = None;
                eventually(TIMEOUT, "the lease expires", async || {
                    answer = Some(held.to(daemon.proxy()).await);
                    answer.as_ref().is_some_and(|answer| answer.header("retry-after").is_none())
                })
                .await;
                answer.unwrap()
            };
            if policy == "uncertain" {
                refused(&answer, 409, "uncertain");
            }
            assert_eq!(shop.effects(), effects, "{policy}");
            daemon.kill().await;
        }
    }

    async fn paused_daemon_answers_as_the_winner_or_not_at_all(sandbox: &Sandbox) {
        let shop = Shop::start().await;
        let lines = "on_unknown = \"rerun\"\nlease_ms = 1500\nwait_ms = 60000\n";
        let first = serve(sandbox, &shop.route(lines)).await;
        let second = second(sandbox).await;
        let late = Pay { behave: "held", ..Pay::default() }.spawn(first.proxy());
        shop.wait_for_effects(1).await;
        first.signal(Signal::SIGSTOP);
        // The lease of the paused daemon expires, and the other one runs.
        let winner = Pay::default().to(second.proxy()).await;
        assert_eq!((winner.status, winner.body.as_str()), (201, "{\"paid\":2}"), "{winner:?}");
        shop.open_gate();
        first.signal(Signal::SIGCONT);
        let late = late.await.unwrap();
        assert!((late.status, &late.body) == (201, &winner.body) || late.status == 409, "{late:?}");
        for daemon in [&first, &second] {
            replayed(&Pay::default().to(daemon.proxy()).await, &winner);
        }
        assert_eq!(shop.effects(), 2);
    }
}

/// A daemon that stops finishes what it has forwarded, for a client that waits and for one that went away.
#[tokio::test]
async fn stopping_daemon_finishes_what_it_forwarded() {
    for is_waiting in [true, false] {
        let (sandbox, shop) = (Sandbox::new(), Shop::start().await);
        let daemon = serve(&sandbox, &shop.route("")).await;
        let call = Pay { behave: "held", ..Pay::default() }.spawn(daemon.proxy());
        shop.wait_for_effects(1).await;
        if !is_waiting {
            call.abort();
        }
        daemon.signal(Signal::SIGTERM);
        shop.open_gate();
        let answer = call.await;
        assert_eq!(answer.is_ok_and(|answer| answer.status == 201), is_waiting);
        assert_eq!(daemon.exit_code().await, Some(0));
        let daemon = sandbox.serve_as("push").await;
        let repeat = Pay::default().to(daemon.proxy()).await;
        assert_eq!((repeat.header("idempotent-replayed"), shop.effects()), (Some("true"), 1), "{repeat:?}");
    }
}

/// A service in another language, with the standard library only.
async fn python_shop(folder: &Path) -> Option<(Process, std::net::SocketAddr)> {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/command/proxy/shop.py");
    let mut command = Command::new("python3");
    command.arg(program).current_dir(folder).kill_on_drop(true);
    if Command::new("python3").arg("--version").output().await.is_err() {
        landfall_testkit::not_run(&landfall_testkit::current_test(), "python3 is not installed");
        return None;
    }
    let mut shop = Process::spawn(command).unwrap();
    let line = shop.wait_for_line(TIMEOUT, |line| line.starts_with("listening on ")).await.unwrap();
    let address = line.strip_prefix("listening on ").unwrap().parse().unwrap();
    Some((shop, address))
}

fn effects(folder: &Path) -> usize {
    std::fs::read_to_string(folder.join("effects.txt")).unwrap_or_default().lines().count()
}

#[tokio::test]
async fn service_in_python_gets_each_key_once() {
    let sandbox = Sandbox::new();
    let Some((_shop, address)) = python_shop(sandbox.path()).await else { return };
    let daemon = serve(&sandbox, &route_to(address, "")).await;
    let first = Pay::default().to(daemon.proxy()).await;
    assert_eq!((first.status, first.body.as_str()), (201, "{\"paid\": 1, \"key\": \"k1\"}"), "{first:?}");
    replayed(&Pay::default().to(daemon.proxy()).await, &first);
    assert_eq!(effects(sandbox.path()), 1);
}

/// A service that is killed by SIGKILL before or after its effect: the policy decides, and nothing is sent twice.
#[tokio::test]
async fn killed_service_leaves_its_request_to_the_policy() {
    for (policy, moment) in [("uncertain", "before"), ("uncertain", "after"), ("rerun", "before"), ("rerun", "after")] {
        let sandbox = Sandbox::new();
        let Some((_shop, address)) = python_shop(sandbox.path()).await else { return };
        let daemon = serve(&sandbox, &route_to(address, &format!("on_unknown = \"{policy}\"\n"))).await;
        let killing = Pay { behave: &format!("die-{moment}"), ..Pay::default() };
        refused(&killing.to(daemon.proxy()).await, 502, "bad-gateway");
        let known = usize::from(moment == "after");
        assert_eq!(effects(sandbox.path()), known, "{policy} {moment}");
        let repeat = Pay::default().to(daemon.proxy()).await;
        match policy {
            "uncertain" => refused(&repeat, 409, "uncertain"),
            // It runs again. The service is gone, so nothing is sent, and the key is free.
            _ => refused(&repeat, 502, "bad-gateway"),
        }
        assert_eq!(effects(sandbox.path()), known, "{policy} {moment}");
    }
}
