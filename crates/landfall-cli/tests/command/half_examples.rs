//! Runs the programs of `examples/half-messages`: services in other languages, killed at each boundary.

use std::path::{Path, PathBuf};

use landfall_testkit::servers::{KafkaOptions, KafkaServer, services_folder};
use landfall_testkit::{Process, current_test, eventually, not_run};
use serde_json::Value;
use tokio::process::Command;

use super::support::{Daemon, Sandbox, TIMEOUT, finish};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// Short pauses. The immunity period outlasts the example's own steps.
const SETTINGS: &str = "[check_back]\ninterval_ms = 20\nimmunity_ms = 500\nbackoff_first_ms = 10\nbackoff_cap_ms = 99\n\
                        max_checks = 1000\nallow_private_addresses = true\n";

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/half-messages").join(name)
}

/// Returns whether the interpreter or compiler is there; reports the test as not run otherwise.
async fn has(tool: &str, version: &str) -> bool {
    let found = Command::new(tool).arg(version).output().await.is_ok();
    if !found {
        not_run(&current_test(), &format!("{tool} is not installed"));
    }
    found
}

async fn published(sandbox: &Sandbox) -> Vec<i64> {
    let tail = sandbox.run(&["topic", "tail", "orders", "--json"]).await;
    let lines: Vec<Value> = if tail.code == 0 { tail.objects() } else { Vec::new() };
    let mut orders: Vec<i64> = lines.iter().map(|line| line["payload"]["order"].as_i64().unwrap()).collect();
    orders.sort_unstable();
    orders
}

/// Waits until all three half messages are decided, and checks that orders 1 and 2 were published and 3 was not.
async fn orders_1_and_2_are_published(sandbox: &Sandbox) {
    let in_state = async |state: &str| {
        let list = sandbox.run(&["half", "list", "--state", state, "--json"]).await;
        if list.code == 0 { list.objects() } else { Vec::new() }
    };
    eventually(TIMEOUT, "every half message is decided", async || {
        in_state("committed").await.len() + in_state("rolled_back").await.len() >= 3
    })
    .await;
    eventually(TIMEOUT, "orders 1 and 2", async || published(sandbox).await.len() >= 2).await;
    assert_eq!(published(sandbox).await, [1, 2]);
    let discarded = in_state("rolled_back").await;
    assert_eq!(discarded.len(), 1, "{discarded:?}");
    assert_eq!((&discarded[0]["business_id"], &discarded[0]["decided_by"]), (&"3".into(), &"check-back".into()));
}

/// Runs a program that places one order: for three orders, killed after the commit of the second and before the commit
/// of the third. `configure` adds to the `[check_back]` section, where the shop's database is named.
async fn program_is_resolved_by_its_barrier(configure: &str, program: impl AsyncFn(&Sandbox, &Daemon) -> Command) {
    let sandbox = Sandbox::new();
    let shop = format!("sqlite:{}", sandbox.path().join("shop.db").display());
    assert_eq!(sandbox.run(&["migrate", "--database-url", &shop]).await.code, 0);
    sandbox.configure(&format!("{SETTINGS}databases = {{ shop = \"{shop}\" }}\n{configure}"));
    let daemon = sandbox.serve().await;
    for (order, crash) in [("1", None), ("2", Some("after-commit")), ("3", Some("before-commit"))] {
        let mut place = program(&sandbox, &daemon).await;
        place.arg(order).current_dir(sandbox.path()).kill_on_drop(true);
        place.args(crash.iter().flat_map(|step| ["--crash", step]));
        let finished = finish(place).await;
        assert_eq!(finished.code == 0, crash.is_none(), "{}{}", finished.stdout, finished.stderr);
    }
    orders_1_and_2_are_published(&sandbox).await;
}

#[tokio::test]
async fn python_service_is_resolved_by_its_barrier() {
    if !has("python3", "--version").await {
        return;
    }
    program_is_resolved_by_its_barrier("", async |_, daemon| {
        let mut place = Command::new("python3");
        place.arg(example("orders.py")).env("LANDFALL_URL", format!("http://{}", daemon.address));
        place
    })
    .await;
}

/// The endpoint answers from the barrier row, and inserts a missing one as rolled back.
#[tokio::test]
async fn python_service_answers_from_its_barrier() {
    if has("python3", "--version").await && has("curl", "--version").await {
        let (program, serve) = (example("orders.py"), Path::new("serve"));
        service_is_asked_after_its_restart(&[Path::new("python3"), &program, serve]).await;
    }
}

/// The sender knows Kafka and SQL only; the half messages are in its own topic.
#[tokio::test]
async fn kafka_client_is_resolved_by_its_barrier() {
    let python = services_folder().join("python-kafka/bin/python");
    if !python.exists() {
        return not_run(&current_test(), "the Python client of Kafka is not installed; run scripts/services");
    }
    let Some(kafka) = KafkaServer::start(&current_test(), KafkaOptions::default()).await else { return };
    let configure = format!("topic = \"look_back_msg\"\n[broker]\nurl = {:?}\n", kafka.url().await);
    program_is_resolved_by_its_barrier(&configure, async |sandbox, _| {
        let created = sandbox.run(&["topic", "create", "look_back_msg"]).await;
        assert_eq!(created.code, 0, "{created:?}");
        let mut place = Command::new(&python);
        place.arg(example("orders_kafka.py")).env("KAFKA_SERVERS", kafka.address());
        place
    })
    .await;
}

/// Starts the service on `port` and returns it with its address.
async fn start(sandbox: &Sandbox, daemon: &Daemon, command: &[&Path], port: &str) -> (Process, String) {
    let mut service = Command::new(command[0]);
    service.args(&command[1..]).current_dir(sandbox.path()).kill_on_drop(true);
    service.env("PORT", port).env("SECRET", SECRET).env("LANDFALL_URL", format!("http://{}", daemon.address));
    let mut service = Process::spawn(service).unwrap();
    let line = service.wait_for_line(TIMEOUT, |line| line.starts_with("listening on ")).await.unwrap();
    let address = line.strip_prefix("listening on ").unwrap().to_owned();
    (service, address)
}

/// Places three orders, and kills the service after the commit of the second and before the commit of the third.
async fn service_is_asked_after_its_restart(command: &[&Path]) {
    let sandbox = Sandbox::new();
    // For the service that has a barrier.
    let shop = format!("sqlite:{}", sandbox.path().join("shop.db").display());
    assert_eq!(sandbox.run(&["migrate", "--database-url", &shop]).await.code, 0);
    sandbox.configure(&format!("{SETTINGS}secret = \"{SECRET}\"\n"));
    let daemon = sandbox.serve().await;
    let (mut service, address) = start(&sandbox, &daemon, command, "0").await;
    let port = address.rsplit_once(':').unwrap().1.to_owned();
    for path in ["orders/1", "orders/2?crash=after-commit", "orders/3?crash=before-commit"] {
        let mut post = Command::new("curl");
        post.args(["--silent", "--show-error", "--fail", "-X", "POST", &format!("http://{address}/{path}")]);
        let posted = finish(post).await;
        if path.contains("crash") {
            assert_ne!(posted.code, 0, "the service was not killed");
            service = start(&sandbox, &daemon, command, &port).await.0;
        } else {
            assert_eq!(posted.code, 0, "{}", posted.stderr);
        }
    }
    orders_1_and_2_are_published(&sandbox).await;
    drop(service);
}

#[tokio::test]
async fn node_service_is_asked_after_its_restart() {
    if has("node", "--version").await && has("curl", "--version").await {
        service_is_asked_after_its_restart(&[Path::new("node"), &example("orders.mjs")]).await;
    }
}

#[tokio::test]
async fn go_service_is_asked_after_its_restart() {
    if !has("go", "version").await || !has("curl", "--version").await {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("orders");
    let built = Command::new("go").arg("build").arg("-o").arg(&program).arg(example("orders.go")).output().await;
    let built = built.unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    service_is_asked_after_its_restart(&[&program]).await;
}
