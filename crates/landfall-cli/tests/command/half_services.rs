//! Services are found in the DNS: SRV records of a name server in the test's process.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use landfall_testkit::eventually;
use serde_json::{Value, json};
use tokio::net::UdpSocket;
use tokio::task::JoinSet;

use super::support::{Daemon, GrpcServer, Receiver, Sandbox, TIMEOUT, frame, reply, response};

const QUICK: &str = "[check_back]\ninterval_ms = 20\nimmunity_ms = 0\ntimeout_ms = 2000\nbackoff_first_ms = 10\n\
                     backoff_cap_ms = 20\nmax_checks = 2\nallow_private_addresses = true\n\
                     srv_name = \"_{service}._tcp.shop.test\"\n";
/// The name of SRV records in an answer: that of the question.
const SAME_NAME: [u8; 2] = [0xc0, 12];
const SRV: u16 = 33;

/// Priority, weight and port of a target on this machine.
type Target = (u16, u16, u16);

/// A name server with SRV records. Stops when dropped.
struct NameServer {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
    _task: JoinSet<()>,
}

impl NameServer {
    async fn start(records: Vec<(&'static str, Vec<Target>)>) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let (seen, mut task) = (asked.clone(), JoinSet::new());
        task.spawn(async move {
            let mut query = [0; 1500];
            while let Ok((length, client)) = socket.recv_from(&mut query).await {
                let (name, question) = question(&query[..length]);
                seen.lock().unwrap().push(name.clone());
                let found = records.iter().find(|(known, _)| *known == name).map(|(_, targets)| &targets[..]);
                let _ = socket.send_to(&answer(&query[..2], question, found), client).await;
            }
        });
        Self { address, asked, _task: task }
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

/// Returns the name that a query asks for, and the bytes of its question.
fn question(query: &[u8]) -> (String, &[u8]) {
    let (mut at, mut labels) = (12, Vec::new());
    while query[at] != 0 {
        let length = usize::from(query[at]);
        labels.push(String::from_utf8(query[at + 1..=at + length].to_vec()).unwrap().to_lowercase());
        at += 1 + length;
    }
    let question = &query[12..at + 5];
    assert_eq!(question[question.len() - 4..], [0, SRV as u8, 0, 1], "only SRV records are asked for");
    (labels.join("."), question)
}

/// Returns a response with these targets; without any, the name does not exist.
fn answer(id: &[u8], question: &[u8], targets: Option<&[Target]>) -> Vec<u8> {
    let found = targets.unwrap_or_default();
    let code = if targets.is_some() { 0 } else { 3 };
    let mut bytes = [id, &[0x85, 0x80 | code, 0, 1, 0, found.len() as u8, 0, 0, 0, 0], question].concat();
    for (priority, weight, port) in found {
        let target = [&[9][..], b"localhost", &[0]].concat();
        bytes.extend(SAME_NAME);
        bytes.extend(SRV.to_be_bytes());
        bytes.extend([0, 1, 0, 0, 0, 60]);
        bytes.extend((6 + target.len() as u16).to_be_bytes());
        for number in [priority, weight, port] {
            bytes.extend(number.to_be_bytes());
        }
        bytes.extend(target);
    }
    bytes
}

async fn prepare(daemon: &Daemon, number: u32, check_back: Value) -> String {
    let half = json!({
        "topic": "orders", "payload": number, "business_type": "order", "business_id": number.to_string(),
        "check_back": check_back
    });
    let response = daemon.post("/v1/half-messages", half.to_string()).await;
    assert_eq!(response.status, 201, "{response:?}");
    response.json()["id"].as_str().unwrap().to_owned()
}

async fn wait_for_state(daemon: &Daemon, id: &str, wanted: &str) -> Value {
    let path = format!("/v1/half-messages/{id}");
    eventually(TIMEOUT, wanted, async || daemon.get(&path).await.json()["state"] == wanted).await;
    daemon.get(&path).await.json()
}

#[tokio::test]
async fn service_is_found_in_the_dns_in_the_order_of_its_priorities() {
    let orders = Receiver::start(|_, _| response(200, "", r#"{"state":"committed"}"#)).await;
    let later = Receiver::start(|_, _| response(200, "", r#"{"state":"rolled_back"}"#)).await;
    let billing = GrpcServer::scripted(|_| reply(frame(&[8, 2]), Some("0"))).await;
    let names = NameServer::start(vec![
        // The first target refuses connections, so the next priority is asked.
        ("_orders._tcp.shop.test", vec![(30, 9, later.address.port()), (20, 1, orders.address.port()), (10, 1, 9)]),
        ("_billing._tcp.shop.test", vec![(1, 1, billing.address.port())]),
        ("_none._tcp.shop.test", vec![]),
    ])
    .await;
    let sandbox = Sandbox::new();
    sandbox.configure(&format!(
        "{QUICK}srv_servers = [\"{}\"]\nservices = {{ fixed = \"http://{}\" }}\n",
        names.address, later.address
    ));
    let daemon = sandbox.serve().await;

    let first = prepare(&daemon, 1, json!({"http": "service:orders/state"})).await;
    wait_for_state(&daemon, &first, "committed").await;
    assert_eq!(orders.requests()[0].header("request-line"), "POST /state HTTP/1.1");
    let second = prepare(&daemon, 2, json!({"grpc": "service:billing"})).await;
    wait_for_state(&daemon, &second, "rolled_back").await;
    // The configuration comes before the DNS.
    let third = prepare(&daemon, 3, json!({"http": "service:fixed"})).await;
    wait_for_state(&daemon, &third, "rolled_back").await;
    assert_eq!((later.requests().len(), billing.calls().len()), (1, 1));

    for (service, reason) in [
        ("nowhere", "the DNS has no address"),
        ("none", "the DNS has no address"),
        ("orders.evil", "is no name of a service"),
    ] {
        let id = prepare(&daemon, 4, json!({"http": format!("service:{service}")})).await;
        let row = wait_for_state(&daemon, &id, "parked").await;
        assert!(row["last_answer"].as_str().unwrap().contains(reason), "{row}");
    }
    assert!(names.asked().iter().all(|name| name.ends_with("._tcp.shop.test") && !name.contains("evil")));
    // Each answer is remembered for its time.
    assert_eq!(names.asked().iter().filter(|name| *name == "_orders._tcp.shop.test").count(), 1);
}

/// A name server that is down, and one that answers later: unknown is asked again.
#[tokio::test]
async fn name_server_that_is_down_decides_nothing() {
    let orders = Receiver::start(|_, _| response(200, "", r#"{"state":"committed"}"#)).await;
    let free = UdpSocket::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let sandbox = Sandbox::new();
    sandbox.configure(&format!("{QUICK}srv_servers = [\"{free}\"]\n"));
    let daemon = sandbox.serve().await;
    let id = prepare(&daemon, 1, json!({"http": "service:orders"})).await;
    wait_for_state(&daemon, &id, "parked").await;
    assert_eq!(orders.requests().len(), 0);
}

/// The doctor tries each host that undecided half messages name once, and asks it nothing.
#[tokio::test]
async fn targets_of_undecided_messages_are_examined() {
    let orders = Receiver::start(|_, _| response(200, "", r#"{"state":"committed"}"#)).await;
    let names = NameServer::start(vec![
        ("_orders._tcp.shop.test", vec![(10, 1, 9), (20, 1, orders.address.port())]),
        ("_billing._tcp.shop.test", vec![(1, 1, 9)]),
    ])
    .await;
    let sandbox = Sandbox::new();
    let services = "services = { fixed = \"http://127.0.0.1:9\" }";
    sandbox.configure(&format!("{QUICK}srv_servers = [\"{}\"]\n{services}\n", names.address));
    let daemon = sandbox.serve().await;
    for (number, check_back) in [
        json!({"http": "service:orders/state"}),
        json!({"http": format!("http://{}/state", orders.address)}),
        json!({"http": "http://127.0.0.1:9/one", "grpc": "service:billing"}),
        json!({"http": "http://127.0.0.1:9/two"}),
        json!({"http": "service:nowhere"}),
        json!({"http": "service:fixed"}),
    ]
    .into_iter()
    .enumerate()
    {
        let half = json!({
            "topic": "orders", "payload": number, "business_type": "order", "business_id": number.to_string(),
            "check_back": check_back, "check_after_s": 3600
        });
        assert_eq!(daemon.post("/v1/half-messages", half.to_string()).await.status, 201);
    }
    let found = sandbox.run(&["doctor", "--json"]).await.objects().remove(0);
    let found = found["findings"].as_array().unwrap();
    let about: Vec<_> = found
        .iter()
        .filter(|one| one["check"].as_str().unwrap().starts_with("check-back."))
        .map(|one| (one["check"].as_str().unwrap(), one["about"].as_str().unwrap()))
        .collect();
    assert_eq!(
        about,
        [
            ("check-back.service", "check_back.services.fixed"),
            ("check-back.target", "http://127.0.0.1:9"),
            ("check-back.target", "service:billing"),
            ("check-back.target", "service:nowhere"),
        ],
        "{found:?}"
    );
    assert_eq!(orders.requests().len(), 0, "the doctor asks nothing");
}
