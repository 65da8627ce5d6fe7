//! Hostile HTTP, byte by byte over TCP. Each request has one defined answer, and nothing of a refused one is written.
//! No byte of a body becomes a second request. The daemon keeps serving others.

use std::net::SocketAddr;

use landfall_testkit::eventually;
use nix::sys::signal::Signal;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::support::{Daemon, Sandbox, TIMEOUT};

/// How a request ends.
#[derive(Debug, Clone, Copy)]
enum Answer {
    /// Exactly these responses, in this order.
    Statuses(&'static [u16]),
    /// One response with a status from 400 to 499, or the connection is closed without one.
    Refused,
}

use Answer::{Refused, Statuses};

const ACCEPTED: Answer = Statuses(&[202]);

/// Messages of this topic must never be written.
const BAD: &str = r#"{"topic":"refused","payload":1}"#;
const GOOD: &str = r#"{"topic":"accepted","payload":1}"#;

/// A POST of a message: its own header lines, then the body as given.
fn post(lines: &str, body: &str) -> Vec<u8> {
    format!("POST /v1/messages HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n{body}").into_bytes()
}

/// A POST with a correct length.
fn sized(lines: &str, body: &str) -> Vec<u8> {
    post(&format!("Content-Length: {}\r\n{lines}", body.len()), body)
}

fn chunked(body: &str) -> String {
    format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len())
}

/// A complete request that must not be found inside another one.
fn smuggled() -> String {
    String::from_utf8(sized("", BAD)).unwrap()
}

/// Disagreement about where a body ends.
fn framing() -> Vec<(&'static str, Vec<u8>, Answer)> {
    let (length, two) = (BAD.len(), chunked(GOOD) + &smuggled());
    let both = |lines: &str| post(lines, &two);
    vec![
        // The chunks count, as RFC 9112 says, and the connection is closed, so that the rest is no request.
        ("length and chunks", both("Content-Length: 4\r\nTransfer-Encoding: chunked\r\n"), ACCEPTED),
        ("chunks and length", both("Transfer-Encoding: chunked\r\nContent-Length: 4\r\n"), ACCEPTED),
        ("two lengths", post(&format!("Content-Length: {length}\r\nContent-Length: 1\r\n"), BAD), Refused),
        ("list of lengths", post(&format!("Content-Length: 1, {length}\r\n"), BAD), Refused),
        ("signed length", post(&format!("Content-Length: +{length}\r\n"), BAD), Refused),
        ("negative length", post("Content-Length: -1\r\n", BAD), Refused),
        ("hexadecimal length", post("Content-Length: 0x1f\r\n", BAD), Refused),
        ("length beyond 64 bits", post("Content-Length: 18446744073709551616\r\n", BAD), Refused),
        ("highest length", post("Content-Length: 18446744073709551615\r\n", BAD), Refused),
        ("unknown coding", post("Transfer-Encoding: xchunked\r\n", &chunked(BAD)), Refused),
        ("chunked is not last", post("Transfer-Encoding: chunked, identity\r\n", &chunked(BAD)), Refused),
        ("coding of two lines", post("Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n", &chunked(BAD)), Refused),
        ("space before the colon", post(&format!("Content-Length : {length}\r\n"), BAD), Refused),
        ("folded coding", post("Transfer-Encoding:\r\n chunked\r\n", &chunked(BAD)), Refused),
        ("vertical tab before chunked", post("Transfer-Encoding: \x0bchunked\r\n", &chunked(BAD)), Refused),
        ("chunks in HTTP/1.0", post_1_0("Transfer-Encoding: chunked\r\n", &chunked(BAD)), Refused),
        ("no length", post("", "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"), Statuses(&[400, 200])),
    ]
}

fn post_1_0(lines: &str, body: &str) -> Vec<u8> {
    format!("POST /v1/messages HTTP/1.0\r\nHost: localhost\r\n{lines}\r\n{body}").into_bytes()
}

fn chunks() -> Vec<(&'static str, Vec<u8>, Answer)> {
    let chunks = |body: &str| post("Transfer-Encoding: chunked\r\n", body);
    let framed = |size: &str| chunks(&format!("{size}\r\n{BAD}\r\n0\r\n\r\n"));
    let extensions = format!("{:x};a=b;c=\"d\"\r\n{GOOD}\r\n0;e\r\n\r\n", GOOD.len());
    let long_extension = format!("{:x};{}\r\n{BAD}\r\n0\r\n\r\n", BAD.len(), "x".repeat(20_000));
    let trailers = format!("{:x}\r\n{GOOD}\r\n0\r\nHost: evil.example\r\nContent-Length: 9\r\n\r\n", GOOD.len());
    let long_trailers = format!("{:x}\r\n{BAD}\r\n0\r\nx: {}\r\n\r\n", BAD.len(), "x".repeat(20_000));
    vec![
        ("size beyond 64 bits", framed("10000000000000001f"), Refused),
        ("highest size", framed("ffffffffffffffff"), Refused),
        ("size larger than the chunk", framed("ffff"), Refused),
        ("size smaller than the chunk", framed("1"), Refused),
        ("no hexadecimal size", framed("zz"), Refused),
        ("negative size", framed("-1f"), Refused),
        ("empty size", framed(""), Refused),
        ("size with 0x", framed("0x1f"), Refused),
        ("size that ends in LF", chunks(&format!("{:x}\n{BAD}\r\n0\r\n\r\n", BAD.len())), Refused),
        ("LF in an extension", chunks(&format!("{:x};\n{BAD}\r\n0\r\n\r\n", BAD.len())), Refused),
        ("extensions", chunks(&extensions), ACCEPTED),
        ("long extension", chunks(&long_extension), Refused),
        ("trailers", chunks(&trailers), ACCEPTED),
        ("long trailers", chunks(&long_trailers), Refused),
        ("missing end", chunks(&format!("{:x}\r\n{BAD}\r\n", BAD.len())), Refused),
    ]
}

fn heads() -> Vec<(&'static str, Vec<u8>, Answer)> {
    let get = |target: &str, lines: &str| format!("GET {target} HTTP/1.1\r\n{lines}\r\n").into_bytes();
    let local = |lines: &str| get("/healthz", &format!("Host: localhost\r\n{lines}"));
    let many: String = (0..200).map(|number| format!("x-{number}: y\r\n")).collect();
    let large = format!("x: {}\r\n", "y".repeat(2 << 20));
    vec![
        ("folded header", local("x: a\r\n b\r\n"), Refused),
        ("NUL in a value", local("x: a\0b\r\n"), Refused),
        ("NUL in a name", local("a\0b: x\r\n"), Refused),
        ("control character in a value", local("x: a\x01b\r\n"), Refused),
        ("DEL in a value", local("x: a\x7fb\r\n"), Refused),
        ("CR in a value", local("x: a\rb\r\n"), Refused),
        ("line without a colon", local("nothing\r\n"), Refused),
        ("empty name", local(": x\r\n"), Refused),
        ("name in other letters", local("größe: x\r\n"), Refused),
        ("200 headers", local(&many), Statuses(&[431])),
        ("header of 2 MiB", local(&large), Refused),
        ("target of 100 KiB", get(&format!("/{}", "x".repeat(100_000)), "Host: localhost\r\n"), Refused),
        // RFC 9112 lets a server take LF for the end of a line; the body is unaffected.
        ("LF instead of CRLF", b"GET /healthz HTTP/1.1\nHost: localhost\n\n".to_vec(), Statuses(&[200])),
        ("no host", get("/healthz", ""), Statuses(&[400])),
        ("two hosts", get("/healthz", "Host: localhost\r\nHost: localhost\r\n"), Statuses(&[400])),
        ("empty host", get("/healthz", "Host:\r\n"), Statuses(&[400])),
        ("host with a user", get("/healthz", "Host: x@localhost\r\n"), Statuses(&[400])),
        ("host with a path", get("/healthz", "Host: localhost/x\r\n"), Statuses(&[400])),
        ("other host", get("/metrics", "Host: evil.example\r\n"), Statuses(&[403])),
        ("target with another host", get("http://evil.example/metrics", "Host: localhost\r\n"), Statuses(&[400])),
        ("target with the same host", get("http://localhost/healthz", "Host: localhost\r\n"), Statuses(&[200])),
        ("tunnel", b"CONNECT localhost:22 HTTP/1.1\r\nHost: localhost:22\r\n\r\n".to_vec(), Refused),
        ("options of the server", b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec(), Refused),
        ("trace", b"TRACE /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec(), Statuses(&[405])),
        ("path upwards", get("/v1/../metrics", "Host: localhost\r\n"), Statuses(&[404])),
        ("encoded path", get("/%6d%65trics", "Host: localhost\r\n"), Statuses(&[404])),
        ("two slashes", get("//metrics", "Host: localhost\r\n"), Statuses(&[404])),
        ("target with a space", get("/healthz x", "Host: localhost\r\n"), Refused),
        ("unknown version", b"GET /healthz HTTP/3.0\r\nHost: localhost\r\n\r\n".to_vec(), Refused),
        ("no version", b"GET /healthz\r\n\r\n".to_vec(), Refused),
        // A whole preface begins HTTP/2, see the tests of gRPC.
        ("half a preface of HTTP/2", b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec(), Refused),
        ("handshake of TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec(), Refused),
        ("random bytes", (0..=255_u8).cycle().take(4096).collect(), Refused),
    ]
}

fn bodies() -> Vec<(&'static str, Vec<u8>, Answer)> {
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    let message = |fields: &str| sized("", &format!(r#"{{"topic":"refused",{fields}}}"#));
    let payload = |json: &str| sized("", &format!(r#"{{"topic":"accepted","payload":{json}}}"#));
    let mut invalid = sized("", r#"{"topic":"refused","payload":"??"}"#);
    let end = invalid.len();
    invalid[end - 4..end - 2].copy_from_slice(b"\xc3\x28");
    vec![
        // A payload is opaque: its bytes are kept, whatever a parser would make of them.
        ("deep payload", payload(&nested(200_000)), ACCEPTED),
        ("huge number", payload(&format!("1e{}", "9".repeat(1000))), ACCEPTED),
        ("deep headers", message(&format!(r#""payload":1,"headers":{{"a":{}}}"#, nested(200_000))), Refused),
        ("deep topic", sized("", &format!(r#"{{"topic":{},"payload":1}}"#, nested(200_000))), Refused),
        ("unclosed nesting", message(&format!(r#""payload":{}"#, "[".repeat(500_000))), Refused),
        ("sequence beyond 64 bits", message(r#""payload":1,"sequence":9223372036854775808"#), Refused),
        ("sequence with exponent", message(r#""payload":1,"sequence":1e999"#), Refused),
        ("invalid UTF-8", invalid, Refused),
        ("lone surrogate", message(r#""payload":1,"key":"\ud800""#), Refused),
        ("NUL in a key", message(r#""payload":1,"key":"a\u0000""#), Refused),
        ("byte order mark", sized("", &format!("\u{feff}{BAD}")), Refused),
        ("two values", sized("", &format!("{BAD}{BAD}")), Refused),
        ("repeated field", message(r#""payload":1,"payload":2"#), Refused),
        ("10000 headers", message(&format!(r#""payload":1,"headers":{{{}}}"#, numbered(10_000))), Refused),
        ("compressed", sized("Content-Encoding: gzip\r\n", "\u{1f}\u{8b}"), Refused),
    ]
}

fn numbered(count: usize) -> String {
    (0..count).map(|number| format!(r#""{number}":"""#)).collect::<Vec<_>>().join(",")
}

fn sequences_of_requests() -> Vec<(&'static str, Vec<u8>, Answer)> {
    let get = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let hidden = smuggled();
    let carrier = |target: &str| {
        let length = hidden.len();
        format!("POST {target} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n{hidden}").into_bytes()
    };
    let with_body =
        format!("GET /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{hidden}", hidden.len());
    let upgrade = "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade, HTTP2-Settings\r\n\
                   Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n";
    let expecting = |value: &str| sized(&format!("Expect: {value}\r\n"), GOOD);
    vec![
        ("pipelined", [sized("", GOOD), get.into(), sized("", GOOD)].concat(), Statuses(&[202, 200, 202])),
        ("request in a body", carrier("/v1/messages"), Refused),
        ("request in the body of an unknown route", carrier("/nowhere"), Refused),
        ("request in the body of a wrong method", carrier("/metrics"), Refused),
        ("request in the body of a GET", with_body.into_bytes(), Statuses(&[200])),
        ("after an error", [sized("", "{"), sized("", GOOD)].concat(), Statuses(&[400, 202])),
        ("upgrade to HTTP/2", upgrade.into(), Statuses(&[200])),
        ("expectation", expecting("100-continue"), Statuses(&[100, 202])),
        ("unknown expectation", expecting("200-maybe"), ACCEPTED),
        ("blank lines first", ["\r\n\r\n", get].concat().into_bytes(), Statuses(&[200])),
    ]
}

/// Sends `bytes` and returns the statuses of all responses. The daemon closes the connection, at the latest when it has
/// been idle for the time of a request.
async fn exchange(address: SocketAddr, bytes: &[u8]) -> Vec<u16> {
    let (mut reader, mut writer) = TcpStream::connect(address).await.unwrap().into_split();
    let mut received = Vec::new();
    let write = async {
        // Fails if the daemon refuses and closes early; its response may then be lost too.
        let _ = writer.write_all(bytes).await;
    };
    let read = async { drop(reader.read_to_end(&mut received).await) };
    tokio::time::timeout(TIMEOUT, async { tokio::join!(write, read) }).await.expect("the connection is closed in time");
    statuses(&received)
}

fn statuses(mut received: &[u8]) -> Vec<u16> {
    let mut statuses = Vec::new();
    while !received.is_empty() {
        let end = received.windows(4).position(|bytes| bytes == b"\r\n\r\n").expect("a complete head") + 4;
        let head = std::str::from_utf8(&received[..end]).unwrap().to_ascii_lowercase();
        let status = head.strip_prefix("http/1.1 ").or_else(|| head.strip_prefix("http/1.0 "));
        statuses.push(status.and_then(|rest| rest.get(..3)?.parse().ok()).unwrap_or_else(|| panic!("{head}")));
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok()).unwrap_or(0);
        received = received.get(end + length..).unwrap_or_default();
    }
    statuses
}

fn matches(answer: Answer, statuses: &[u16]) -> bool {
    match answer {
        Statuses(expected) => statuses == expected,
        Refused => matches!(statuses, [] | [400..=499]),
    }
}

async fn assert_healthy(daemon: &Daemon) {
    assert_eq!(daemon.get("/healthz").await.status, 200);
    assert_eq!(daemon.get("/readyz").await.status, 200);
    assert!(!daemon.stderr().contains("panicked"), "{}", daemon.stderr());
}

#[tokio::test]
async fn hostile_requests_have_one_answer_and_write_nothing() {
    let sandbox = Sandbox::new();
    sandbox.configure("[http]\nrequest_timeout_ms = 1000\n");
    let daemon = sandbox.serve().await;
    let address = daemon.address;
    let mut running = JoinSet::new();
    let cases = [framing(), chunks(), heads(), bodies(), sequences_of_requests()].concat();
    let accepted = |answer: &Answer| match answer {
        Statuses(expected) => expected.iter().filter(|status| **status == 202).count(),
        Refused => 0,
    };
    let accepted: usize = cases.iter().map(|(_, _, answer)| accepted(answer)).sum();
    for (name, bytes, answer) in cases {
        running.spawn(async move { (name, answer, exchange(address, &bytes).await) });
    }
    let answered = running.join_all().await;
    let wrong: Vec<_> = answered.iter().filter(|(_, answer, statuses)| !matches(*answer, statuses)).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");

    assert_healthy(&daemon).await;
    let tail = async |topic| sandbox.run(&["topic", "tail", topic, "--json"]).await;
    let published = async || tail("accepted").await.stdout.lines().count();
    eventually(TIMEOUT, "all accepted messages", async || published().await >= accepted).await;
    assert_eq!(published().await, accepted);
    assert_eq!(tail("refused").await.stdout, "");
    assert_eq!(sandbox.count("SELECT count(*) FROM landfall_outbox").await, 0);
}

/// Each sends a part and then nothing.
#[tokio::test]
async fn slow_requests_are_cut_off() {
    let sandbox = Sandbox::new();
    sandbox.configure("[http]\nrequest_timeout_ms = 300\n");
    let daemon = sandbox.serve().await;
    for (bytes, answer) in [
        (&b""[..], Statuses(&[])),
        (b"POST /v1/messages HTTP/1.1\r\nHost: local", Refused),
        (b"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 31\r\n\r\n{", Statuses(&[408])),
        (b"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nf", Statuses(&[408])),
        (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nGET", Statuses(&[200])),
    ] {
        let statuses = exchange(daemon.address, bytes).await;
        assert!(matches(answer, &statuses), "{:?}: {statuses:?}", String::from_utf8_lossy(bytes));
    }
    assert_healthy(&daemon).await;
}

/// A byte now and then keeps neither a head nor a body alive beyond its time.
#[tokio::test]
async fn dripping_requests_are_cut_off() {
    let sandbox = Sandbox::new();
    sandbox.configure("[http]\nrequest_timeout_ms = 500\n");
    let daemon = sandbox.serve().await;
    let head = "POST /v1/messages HTTP/1.1\r\nHost: localhost\r\n";
    for start in [head.to_owned(), format!("{head}Content-Length: 100000\r\n\r\n")] {
        let (mut reader, mut writer) = TcpStream::connect(daemon.address).await.unwrap().into_split();
        writer.write_all(start.as_bytes()).await.unwrap();
        let drip = async {
            let mut interval = tokio::time::interval(std::time::Duration::from_millis(20));
            while writer.write_all(b"x").await.is_ok() {
                interval.tick().await;
            }
        };
        let read = async { reader.read_to_end(&mut Vec::new()).await };
        let ended = async { tokio::select!(() = drip => (), _ = read => ()) };
        tokio::time::timeout(TIMEOUT, ended).await.expect("the connection is closed while it still sends");
    }
    assert_healthy(&daemon).await;
}

/// Many clients connect at once, send half a request and stay.
#[tokio::test]
async fn flood_of_unfinished_requests_delays_but_does_not_stop_others() {
    let sandbox = Sandbox::new();
    sandbox.configure("[http]\nrequest_timeout_ms = 500\n");
    let daemon = sandbox.serve().await;
    let address = daemon.address;
    let mut flood = JoinSet::new();
    for number in 0..400 {
        flood.spawn(async move {
            let part = post("Content-Length: 1000\r\n", BAD);
            let part = &part[..part.len() * (number % 4) / 4];
            exchange(address, part).await
        });
    }
    let sent = tokio::time::timeout(TIMEOUT, daemon.send(GOOD)).await;
    sent.expect("a complete request has its turn");
    for statuses in flood.join_all().await {
        assert!(matches(Refused, &statuses), "{statuses:?}");
    }
    assert_healthy(&daemon).await;
    let published = async || sandbox.count("SELECT sum(count) FROM landfall_outbox_published").await;
    eventually(TIMEOUT, "the complete request", async || published().await == 1).await;
    assert_eq!(sandbox.count("SELECT count(*) FROM landfall_outbox").await, 0);
}

/// The kernel keeps a burst of connections while the daemon is busy. It refuses none, and forgets none that is silent.
#[tokio::test]
async fn burst_of_connections_waits_for_a_busy_daemon() {
    const BURST: usize = 400;
    let sandbox = Sandbox::new();
    sandbox.configure("[http]\nrequest_timeout_ms = 500\n");
    let daemon = sandbox.serve().await;
    daemon.signal(Signal::SIGSTOP);
    let mut connections = Vec::new();
    for number in 0..BURST {
        let connecting = tokio::time::timeout(TIMEOUT, TcpStream::connect(daemon.address)).await;
        connections.push(connecting.unwrap_or_else(|_| panic!("connection {number} is not queued")).unwrap());
    }
    daemon.signal(Signal::SIGCONT);
    let closed = async {
        for connection in &mut connections {
            let _ = connection.read_to_end(&mut Vec::new()).await;
        }
    };
    tokio::time::timeout(TIMEOUT, closed).await.expect("the daemon closes silent connections");
    assert_healthy(&daemon).await;
}
