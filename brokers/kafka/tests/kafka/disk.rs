//! A node whose disk is full: it stops, and what it accepted is there once it has room again.

use std::collections::HashSet;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use landfall_core::{Broker, Key, Message, Outcome, StartAt};
use landfall_testkit::servers::{KafkaOptions, KafkaServer};
use landfall_testkit::traffic::{assert_keys_wait, orders};
use landfall_testkit::{SMALL_DISK, current_test, eventually, not_run};

use crate::support::kafka;

const CHILD: &str = "disk::child_fills_the_disk_of_a_node";
const DISK_MEGABYTES: usize = 96;
/// In the way from the beginning, and then taken away.
const BALLAST_BYTES: usize = 32 * 1024 * 1024;
const PAYLOAD_BYTES: usize = 100 * 1024;
/// What a relay hands over at a time.
const BATCH: usize = 20;

#[test]
fn a_node_whose_disk_is_full_keeps_all_that_it_accepted_and_goes_on_once_there_is_room() {
    // Not as `run_on_a_small_disk` does it: the server runs under another account, which has to exist in there.
    let folder = tempfile::tempdir().unwrap();
    let mount = format!("mount -t tmpfs -o size={DISK_MEGABYTES}m,mode=0777 none \"${SMALL_DISK}\"");
    let alone = |script: &str| {
        let binary = std::env::current_exe().unwrap();
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", script]).arg(binary).arg(CHILD).env(SMALL_DISK, folder.path()).output()
    };
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    match alone(&mount) {
        Ok(output) if output.status.success() => {}
        Ok(output) => return not_run(&current_test(), String::from_utf8_lossy(&output.stderr).trim()),
        Err(error) => return not_run(&current_test(), &format!("there is no unshare: {error}")),
    }
    let output = alone(&format!("{mount} && exec \"$0\" --ignored --exact --nocapture \"$1\"")).unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}{}", String::from_utf8_lossy(&output.stderr));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "runs on a small disk, in a process of its own"]
async fn child_fills_the_disk_of_a_node() {
    let disk = PathBuf::from(std::env::var_os(SMALL_DISK).unwrap());
    let data = disk.join("data");
    std::fs::create_dir(&data).unwrap();
    std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o777)).unwrap();
    std::fs::write(data.join("meta.properties"), "version=1\ncluster.id=landfallAAAAAAAAAAAAAA\nnode.id=1\n").unwrap();
    std::fs::write(disk.join("ballast"), vec![1; BALLAST_BYTES]).unwrap();
    let settings = vec![("log.dirs", data.display().to_string()), ("log.segment.bytes", "4194304".into())];
    let options = KafkaOptions { settings, ..KafkaOptions::default() };
    let Some(server) = KafkaServer::start(&current_test(), options).await else { return };
    let broker = kafka(&format!("{}?partitions=1&timeout=5s&connect_timeout=4s", server.url().await)).await;
    let publisher = broker.publisher();
    let first = large(0);
    let ready = async || publisher.publish(std::slice::from_ref(&first)).await[0].is_accepted();
    eventually(Duration::from_secs(60), "the topic is there", ready).await;

    let (mut accepted, mut number) = (vec![first.id], 1);
    let refused = loop {
        assert!(number < DISK_MEGABYTES * 1024 * 1024 / PAYLOAD_BYTES, "more than fits was accepted");
        let batch: Vec<Message> = (number..number + BATCH).map(large).collect();
        let outcomes = publisher.publish(&batch).await;
        assert_keys_wait(&batch, &outcomes);
        let taken = outcomes.iter().take_while(|outcome| outcome.is_accepted()).count();
        accepted.extend(batch[..taken].iter().map(|message| message.id));
        number += BATCH;
        if taken < batch.len() {
            break batch[taken..].to_vec();
        }
    };
    std::fs::remove_file(disk.join("ballast")).unwrap();
    server.restart().await.unwrap();
    let sent = async || publisher.publish(&refused).await.iter().all(Outcome::is_accepted);
    eventually(Duration::from_secs(60), "the rest is accepted", sent).await;

    let expected: Vec<_> = accepted.into_iter().chain(refused.iter().map(|message| message.id)).collect();
    let mut reader = broker.read(&orders(), StartAt::Beginning).await.unwrap();
    let (mut seen, mut effects) = (HashSet::new(), Vec::new());
    loop {
        let stored = reader.read(100).await.unwrap();
        if stored.is_empty() {
            break;
        }
        // Copies are harmless, as everywhere.
        let ids = stored.into_iter().map(|stored| stored.message.unwrap().id);
        effects.extend(ids.filter(|id| seen.insert(*id)));
    }
    assert_eq!(effects, expected, "everything that was accepted, in order");
}

fn large(number: usize) -> Message {
    Message::new(orders(), vec![7; PAYLOAD_BYTES]).with_key(Key::new("a").unwrap()).with_sequence(number as i64)
}
