//! The service behind the proxy, and requests to it.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::response::Response as Answer;
use futures_util::{StreamExt, stream};
use landfall_testkit::eventually;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::super::support::{Daemon, Response, Sandbox, TIMEOUT, request};

pub(super) const ANN: &str = "Bearer ann";
pub(super) const BOB: &str = "Bearer bob";

/// A shop without any deduplication: each request is one more effect. The header `x-behave` says how it answers.
pub(super) struct Shop {
    pub(super) address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
    gate: watch::Sender<bool>,
    _server: tokio::task::JoinSet<()>,
}

#[derive(Debug, Clone)]
pub(super) struct Seen {
    pub(super) target: String,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl Seen {
    pub(super) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

#[derive(Clone)]
struct Inside {
    seen: Arc<Mutex<Vec<Seen>>>,
    gate: watch::Receiver<bool>,
}

impl Shop {
    pub(super) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, seen) = (listener.local_addr().unwrap(), Arc::<Mutex<Vec<Seen>>>::default());
        let (gate, receiver) = watch::channel(false);
        let router = Router::new().fallback(answer).with_state(Inside { seen: seen.clone(), gate: receiver });
        let mut server = tokio::task::JoinSet::new();
        server.spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { address, seen, gate, _server: server }
    }

    pub(super) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    /// How many requests took effect.
    pub(super) fn effects(&self) -> usize {
        self.seen.lock().unwrap().len()
    }

    pub(super) async fn wait_for_effects(&self, count: usize) {
        eventually(TIMEOUT, "the request arrives", async || self.effects() >= count).await;
    }

    /// Lets the requests that are held answer, and later ones too.
    pub(super) fn open_gate(&self) {
        self.gate.send_replace(true);
    }

    /// The configuration of one route with more `lines`.
    pub(super) fn route(&self, lines: &str) -> String {
        route_to(self.address, lines)
    }
}

pub(super) fn route_to(address: SocketAddr, lines: &str) -> String {
    let on_unknown = if lines.contains("on_unknown") { "" } else { "on_unknown = \"uncertain\"\n" };
    format!(
        "[proxy]\nlisten = \"127.0.0.1:0\"\n[[idempotent_route]]\nmatch = \"POST /orders/{{id}}/pay\"\n\
         upstream = \"http://{address}/shop/\"\nbusiness_type = \"payment\"\n{on_unknown}{lines}\n"
    )
}

async fn answer(State(inside): State<Inside>, request: Request) -> Answer {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, 64 << 20).await.unwrap_or_default();
    let behave = parts.headers.get("x-behave").map(|value| value.to_str().unwrap().to_owned()).unwrap_or_default();
    let number = {
        let mut seen = inside.seen.lock().unwrap();
        seen.push(Seen { target: parts.uri.to_string(), headers: parts.headers, body });
        seen.len()
    };
    let done = |body: Body| {
        let answer = Answer::builder().status(201).header("location", format!("/payments/{number}"));
        let answer = answer.header("etag", "\"1\"").header("set-cookie", "session=secret").header("x-trace", "t");
        answer.header("content-type", "application/json").body(body).unwrap()
    };
    let mut gate = inside.gate;
    match behave.split_once(':').unwrap_or((&behave, "")) {
        ("status", status) => Answer::builder().status(status.parse::<u16>().unwrap()).body("no".into()).unwrap(),
        ("held", _) => {
            gate.wait_for(|open| *open).await.unwrap();
            done(json!({"paid": number}).to_string().into())
        }
        ("large", length) => done("x".repeat(length.parse().unwrap()).into()),
        ("events", _) => {
            let rest = async move {
                gate.wait_for(|open| *open).await.unwrap();
                Ok::<_, std::io::Error>(Bytes::from("data: last\n\n"))
            };
            let events = stream::iter([Ok(Bytes::from("data: first\n\n"))]).chain(stream::once(rest));
            let answer = Answer::builder().header("content-type", "text/event-stream; charset=utf-8");
            answer.body(Body::from_stream(events)).unwrap()
        }
        ("half", _) => {
            let broken = Err(std::io::Error::other("the service crashed"));
            done(Body::from_stream(stream::iter([Ok(Bytes::from("half")), broken])))
        }
        _ => done(json!({"paid": number}).to_string().into()),
    }
}

/// Serves the proxy, and no relay.
pub(super) async fn serve(sandbox: &Sandbox, configuration: &str) -> Daemon {
    sandbox.configure(configuration);
    sandbox.serve_as("push").await
}

/// A second daemon on the same database. The first one has the log.
pub(super) async fn second(sandbox: &Sandbox) -> Daemon {
    let arguments = ["serve", "--listen", "127.0.0.1:0", "--roles", "push", "--broker-url", "log:./second-log"];
    Daemon::start(sandbox.command(&arguments)).await
}

/// One payment request. The defaults are Ann's first one.
#[derive(Debug, Clone)]
pub(super) struct Pay<'a> {
    pub(super) target: &'a str,
    pub(super) key: Option<&'a str>,
    pub(super) caller: Option<&'a str>,
    pub(super) behave: &'a str,
    pub(super) body: &'a str,
}

impl Default for Pay<'_> {
    fn default() -> Self {
        Self { target: "/orders/7/pay", key: Some("k1"), caller: Some(ANN), behave: "", body: "{\"euro\":10}" }
    }
}

impl Pay<'_> {
    pub(super) async fn to(&self, proxy: SocketAddr) -> Response {
        let mut headers = vec![("content-type", "application/json")];
        headers.extend(self.key.map(|key| ("idempotency-key", key)));
        headers.extend(self.caller.map(|caller| ("authorization", caller)));
        if !self.behave.is_empty() {
            headers.push(("x-behave", self.behave));
        }
        request(proxy, "POST", self.target, &headers, self.body.as_bytes()).await
    }

    /// Sends it in a task of its own.
    pub(super) fn spawn(&self, proxy: SocketAddr) -> tokio::task::JoinHandle<Response> {
        let [target, behave, body] = [self.target, self.behave, self.body].map(str::to_owned);
        let [key, caller] = [self.key, self.caller].map(|text| text.map(str::to_owned));
        tokio::spawn(async move {
            let (key, caller) = (key.as_deref(), caller.as_deref());
            Pay { target: &target, key, caller, behave: &behave, body: &body }.to(proxy).await
        })
    }
}

pub(super) fn refused(response: &Response, status: u16, name: &str) {
    response.problem(status);
    assert_eq!(response.json()["type"], json!(format!("urn:landfall:problem:{name}")), "{response:?}");
}

/// Asserts a stored answer, byte for byte, and that nothing of the caller's session is in it.
pub(super) fn replayed(response: &Response, first: &Response) {
    assert_eq!((response.status, &response.body), (first.status, &first.body), "{response:?}");
    assert_eq!(response.header("idempotent-replayed"), Some("true"), "{response:?}");
    assert_eq!(response.header("cache-control"), Some("no-store"), "{response:?}");
    for name in ["content-type", "location", "etag"] {
        assert_eq!(response.header(name), first.header(name), "{response:?}");
    }
    assert_eq!(response.header("set-cookie"), None, "{response:?}");
}

/// Repeats the request until it is answered with this status.
pub(super) async fn until_status(proxy: SocketAddr, pay: &Pay<'_>, status: u16) -> Response {
    let mut last = None;
    eventually(TIMEOUT, "the status", async || {
        let response = pay.to(proxy).await;
        let found = response.status == status;
        last = Some(response);
        if !found {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        found
    })
    .await;
    last.unwrap()
}

/// The values of a metric by its result, of the business type `payment`.
pub(super) async fn counted(daemon: &Daemon) -> HashMap<String, u64> {
    let metrics = daemon.get("/metrics").await.body;
    let results = metrics.lines().filter_map(|line| {
        let rest = line.strip_prefix("landfall_idempotency_total{result=\"")?;
        let (result, rest) = rest.split_once("\",business_type=\"payment\"} ")?;
        Some((result.to_owned(), rest.parse().ok()?))
    });
    results.collect()
}
