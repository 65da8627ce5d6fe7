//! Concurrent requests to `POST /v1/messages`, which share commits, and a daemon that is killed under them.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use landfall_testkit::eventually;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;

use super::support::{Sandbox, TIMEOUT, on_each};

const SENDERS: usize = 12;
const EACH: usize = 25;
const KILLS: usize = 3;

/// Sends once and returns the status, or `None` if the daemon went away first.
async fn try_post(address: SocketAddr, id: &str, body: &str) -> Option<u16> {
    let mut stream = TcpStream::connect(address).await.ok()?;
    let head = format!(
        "POST /v1/messages HTTP/1.1\r\nconnection: close\r\nhost: {address}\r\nidempotency-key: {id}\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.ok()?;
    let mut response = String::new();
    stream.read_to_string(&mut response).await.ok()?;
    response.split(' ').nth(1)?.parse().ok()
}

/// Sends its messages one after the other, each until it is accepted.
async fn send_all(sender: usize, mut daemon: watch::Receiver<SocketAddr>, accepted: watch::Sender<usize>) {
    for n in 0..EACH {
        let id = format!("sender-{sender}-{n}");
        let body = json!({"topic": "orders", "key": format!("k{sender}"), "payload": n}).to_string();
        loop {
            let address = *daemon.borrow_and_update();
            match try_post(address, &id, &body).await {
                Some(202) => break,
                // Killed: wait for its successor. Any other answer is temporary.
                None if tokio::time::timeout(TIMEOUT, daemon.changed()).await.is_err() => {
                    panic!("no daemon for sender {sender}")
                }
                _ => {}
            }
        }
        accepted.send_modify(|count| *count += 1);
    }
}

on_each! {
    async fn killed_daemon_delivers_every_accepted_message_once(sandbox: &Sandbox) {
        let mut daemon = sandbox.serve().await;
        let (address, addresses) = watch::channel(daemon.address);
        let (accepted, count) = watch::channel(0);
        let mut senders = tokio::task::JoinSet::new();
        for sender in 0..SENDERS {
            senders.spawn(send_all(sender, addresses.clone(), accepted.clone()));
        }
        for kill in 1..=KILLS {
            let enough = kill * SENDERS * EACH / (KILLS + 1);
            eventually(TIMEOUT, "messages are accepted", async || *count.borrow() >= enough).await;
            daemon.kill().await;
            daemon = sandbox.serve().await;
            address.send_replace(daemon.address);
        }
        senders.join_all().await;
        let total = SENDERS * EACH;
        assert_eq!(sandbox.count("SELECT count(*) FROM landfall_enqueued_id").await, total as i64);

        let tail = async || sandbox.run(&["topic", "tail", "orders", "--json"]).await.objects();
        eventually(TIMEOUT, "every message is delivered", async || tail().await.len() >= total).await;
        eventually(TIMEOUT, "the outbox is settled", async || {
            sandbox.run(&["outbox", "stats", "--json"]).await.objects()[0]["pending"] == json!(0)
        })
        .await;
        let delivered = tail().await;
        let ids: BTreeSet<String> = delivered.iter().map(|line| line["id"].to_string()).collect();
        assert_eq!((delivered.len(), ids.len()), (total, total), "a message was delivered twice");
        for sender in 0..SENDERS {
            let of_key = delivered.iter().filter(|line| line["key"] == json!(format!("k{sender}")));
            let payloads: Vec<_> = of_key.map(|line| line["payload"].as_u64().unwrap()).collect();
            assert_eq!(payloads, (0..EACH as u64).collect::<Vec<_>>(), "sender {sender}");
        }
    }
}
