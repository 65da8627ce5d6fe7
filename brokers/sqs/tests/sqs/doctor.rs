//! Every finding, provoked on a real server, and none for queues that the adapter creates.

use std::net::SocketAddr;

use landfall_core::adapter::Demands;
use landfall_core::{Broker, Diagnose, Finding, MessageId, Rank, Span};
use landfall_sqs::{Options, Sqs};
use landfall_testkit::current_test;
use landfall_testkit::servers::{Moto, SharedGuard, SharedServer, python_sqs};
use landfall_testkit::traffic::{orders, stock};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::accounts::Accounts;

async fn server() -> Option<SharedGuard<Moto>> {
    static SERVER: SharedServer<Moto> = SharedServer::new();
    SERVER.shared_with(async || Moto::start(&current_test()).await).await
}

async fn connect(endpoint: &str, prefix: &str, parameters: &str) -> Sqs {
    let url = format!("sqs://key:secret@us-east-1?endpoint={endpoint}&prefix={prefix}{parameters}");
    Sqs::connect(Options::from_url(&url).unwrap()).await.unwrap()
}

async fn create_queue(sqs: &Sqs) {
    sqs.subscribe(&orders(), &stock()).await.unwrap().close().await.unwrap();
}

async fn diagnose(sqs: &Sqs) -> Vec<Finding> {
    sqs.diagnose(&Demands { window: Span::days(30) }).await.unwrap()
}

fn found(findings: &[Finding]) -> Vec<(&str, Rank)> {
    findings.iter().map(|finding| (finding.check, finding.rank)).collect()
}

/// Changes a queue's attributes with boto3.
async fn set(endpoint: &str, queue: &str, attributes: &str) {
    let script = "import boto3, json, sys\n\
        sqs = boto3.client('sqs', endpoint_url=sys.argv[1], region_name='us-east-1', aws_access_key_id='key', \
                           aws_secret_access_key='secret')\n\
        attributes = json.loads(sys.argv[3])\n\
        dead = {'FifoQueue': 'true', 'MessageRetentionPeriod': '86400'}\n\
        if 'RedrivePolicy' in attributes: sqs.create_queue(QueueName='dead.fifo', Attributes=dead)\n\
        url = sqs.get_queue_url(QueueName=sys.argv[2])['QueueUrl']\n\
                sqs.set_queue_attributes(QueueUrl=url, Attributes=attributes)";
    let python = python_sqs().unwrap();
    let arguments = ["-c", script, endpoint, queue, attributes];
    let output = tokio::process::Command::new(python).args(arguments).output().await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[tokio::test(flavor = "multi_thread")]
async fn created_queues_have_no_findings() {
    let Some(server) = server().await else { return };
    let sqs = connect(&server.endpoint(), &format!("{}-", MessageId::new()), "").await;
    assert_eq!(diagnose(&sqs).await, []);
    create_queue(&sqs).await;
    assert_eq!(sqs.topics().await.unwrap().len(), 1);
    assert_eq!(diagnose(&sqs).await, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_finds_every_unsafe_setting() {
    let Some(server) = server().await else { return };
    let (endpoint, prefix) = (server.endpoint(), format!("{}-", MessageId::new()));
    let sqs = connect(&endpoint, &prefix, "").await;
    create_queue(&sqs).await;
    let queue = format!("{prefix}orders.fifo");
    let policy =
        r#"{\"deadLetterTargetArn\": \"arn:aws:sqs:us-east-1:123456789012:dead.fifo\", \"maxReceiveCount\": 3}"#;
    for (attributes, check, rank, mend) in [
        (r#"{"MessageRetentionPeriod": "345600"}"#, "sqs.retention", Rank::Loss, "MessageRetentionPeriod=1209600"),
        (r#"{"ContentBasedDeduplication": "true"}"#, "sqs.content-deduplication", Rank::Loss, "=false"),
        (r#"{"FifoThroughputLimit": "perQueue"}"#, "sqs.throughput", Rank::Latency, "perMessageGroupId"),
        (r#"{"DelaySeconds": "5"}"#, "sqs.delay", Rank::Latency, "DelaySeconds=0"),
        (r#"{"MaximumMessageSize": "262144"}"#, "sqs.message-size", Rank::Latency, "MaximumMessageSize=1048576"),
        (&format!("{{\"RedrivePolicy\": \"{policy}\"}}"), "sqs.redrive-policy", Rank::Loss, "RedrivePolicy"),
    ] {
        let before = diagnose(&sqs).await;
        assert!(before.iter().all(|finding| finding.check != check), "{check} is reported too early: {before:?}");
        set(&endpoint, &queue, attributes).await;
        let findings = diagnose(&sqs).await;
        let finding = findings.iter().find(|finding| finding.check == check);
        let finding = finding.unwrap_or_else(|| panic!("{check} is missing in {findings:?}"));
        assert_eq!((finding.rank, finding.about.as_str()), (rank, queue.as_str()));
        assert!(finding.mend.contains(mend), "{finding:?}");
    }
    // The dead-letter queue of the last setting is checked too.
    let findings = diagnose(&sqs).await;
    let dead = findings.iter().find(|finding| finding.check == "sqs.dead-letter-retention").unwrap();
    assert_eq!((dead.rank, dead.about.as_str()), (Rank::Loss, "dead.fifo"));
    assert_eq!(findings.len(), 7, "{findings:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn unsafe_url_parameters_are_findings() {
    let Some(server) = server().await else { return };
    let prefix = format!("{}-", MessageId::new());
    let sqs = connect(&server.endpoint(), &prefix, "&fifo=false&visibility=5s").await;
    assert_eq!(
        found(&diagnose(&sqs).await),
        [("sqs.standard-queue", Rank::Order), ("sqs.visibility", Rank::Duplicates)]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn clock_skew_is_a_finding() {
    let Some(server) = server().await else { return };
    let proxy = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = proxy.local_addr().unwrap();
    tokio::spawn(proxy_with_wrong_year(proxy, server.address()));
    let sqs = connect(&format!("http://{address}"), &format!("{}-", MessageId::new()), "").await;
    create_queue(&sqs).await;
    assert_eq!(found(&diagnose(&sqs).await), [("sqs.clock", Rank::Latency)]);
}

/// Proxies to the server, and changes the year in its answers.
async fn proxy_with_wrong_year(listener: TcpListener, server: SocketAddr) {
    loop {
        let (mut client, _) = listener.accept().await.unwrap();
        let mut server = TcpStream::connect(server).await.unwrap();
        tokio::spawn(async move {
            let (mut from_client, mut to_client) = client.split();
            let (mut from_server, mut to_server) = server.split();
            let responses = async {
                let mut buffer = vec![0; 64 * 1024];
                while let Ok(length @ 1..) = from_server.read(&mut buffer).await {
                    let (start, end) = (position(&buffer[..length], b"Date: "), length);
                    if let Some(start) = start {
                        // `Date: Sun, 15 Nov 2026 …`
                        buffer[start + 18..start + 22].copy_from_slice(b"2020");
                    }
                    to_client.write_all(&buffer[..end]).await.unwrap();
                }
            };
            tokio::select! {
                _ = tokio::io::copy(&mut from_client, &mut to_server) => {}
                () = responses => {}
            }
        });
    }
}

fn position(text: &[u8], word: &[u8]) -> Option<usize> {
    text.windows(word.len()).position(|found| found == word)
}

#[tokio::test(flavor = "multi_thread")]
async fn unreadable_settings_are_a_finding() {
    // A server of its own, because authentication stays on.
    let Some(server) = Moto::start(&current_test()).await else { return };
    let accounts = Accounts::create(&server).await;
    let (key, secret) = (&accounts.shop.key, accounts.shop.secret.replace('/', "%2F").replace('+', "%2B"));
    let url = format!("sqs://{key}:{secret}@us-east-1?endpoint={}", server.endpoint());
    let sqs = Sqs::connect(Options::from_url(&url).unwrap()).await.unwrap();
    create_queue(&sqs).await;
    assert_eq!(diagnose(&sqs).await, []);
    for (allowed, about, mend) in [
        (&["sqs:ListQueues"][..], "orders.fifo", "allow sqs:GetQueueAttributes for this account"),
        (&[], "the queues", "allow sqs:ListQueues for this account"),
    ] {
        accounts.allow(allowed).await;
        let findings = diagnose(&sqs).await;
        assert_eq!(found(&findings), [("sqs.hidden", Rank::Loss)]);
        assert_eq!((findings[0].about.as_str(), findings[0].mend.as_str()), (about, mend));
    }
}
