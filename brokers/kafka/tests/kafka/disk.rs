//! A node whose disk is full stops. After space is freed, all accepted messages are still there.

use std::collections::HashSet;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use landfall_core::{Broker, Key, Message, Outcome, StartAt};
use landfall_testkit::servers::{KafkaOptions, KafkaServer};
use landfall_testkit::traffic::{assert_keys_wait, orders};
use landfall_testkit::{SMALL_DISK, current_test, eventually, not_possible_here};

use crate::support::kafka;

const CHILD: &str = "disk::child_fills_the_disk";
const DISK_MEGABYTES: usize = 96;
/// Occupies disk space from the start, and is deleted to free it.
const BALLAST_BYTES: usize = 32 * 1024 * 1024;
const PAYLOAD_BYTES: usize = 100 * 1024;
/// Messages per publish call, as a relay sends them.
const BATCH: usize = 20;

#[test]
fn full_disk_loses_no_accepted_message() {
    // `run_on_a_small_disk` does not fit: the server runs under another account, which must exist in the namespace.
    let folder = tempfile::tempdir().unwrap();
    let mount = format!("mount -t tmpfs -o size={DISK_MEGABYTES}m,mode=0777 none \"${SMALL_DISK}\"");
    let run_isolated = |script: &str| {
        let binary = std::env::current_exe().unwrap();
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", script]).arg(binary).arg(CHILD).env(SMALL_DISK, folder.path()).output()
    };
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    match run_isolated(&mount) {
        Ok(output) if output.status.success() => {}
        Ok(output) => return not_possible_here(&current_test(), String::from_utf8_lossy(&output.stderr).trim()),
        Err(error) => return not_possible_here(&current_test(), &format!("unshare is not available: {error}")),
    }
    let output = run_isolated(&format!("{mount} && exec \"$0\" --ignored --exact --nocapture \"$1\"")).unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && stdout.contains("1 passed"), "{stdout}{stderr}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "runs on a small disk, in a process of its own"]
async fn child_fills_the_disk() {
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
    eventually(Duration::from_secs(60), "the topic accepts messages", ready).await;

    let (mut accepted, mut number) = (vec![first.id], 1);
    let refused = loop {
        assert!(number < DISK_MEGABYTES * 1024 * 1024 / PAYLOAD_BYTES, "the node accepted more than its disk can hold");
        let batch: Vec<Message> = (number..number + BATCH).map(large).collect();
        let outcomes = publisher.publish(&batch).await;
        assert_keys_wait(&batch, &outcomes);
        let count = outcomes.iter().take_while(|outcome| outcome.is_accepted()).count();
        accepted.extend(batch[..count].iter().map(|message| message.id));
        number += BATCH;
        if count < batch.len() {
            break batch[count..].to_vec();
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
        // Duplicates are allowed; consumers deduplicate.
        let ids = stored.into_iter().map(|stored| stored.message.unwrap().id);
        effects.extend(ids.filter(|id| seen.insert(*id)));
    }
    assert_eq!(effects, expected, "all accepted messages are stored, in order");
}

fn large(number: usize) -> Message {
    Message::new(orders(), vec![7; PAYLOAD_BYTES]).with_key(Key::new("a").unwrap()).with_sequence(number as i64)
}
