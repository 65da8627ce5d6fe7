//! The tower layer, around axum handlers.
#![allow(clippy::result_large_err, reason = "the error is the response itself")]

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Path, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use futures_util::stream;
use landfall::ErrorKind;
use landfall::idempotency::layer::{Effect, IdempotencyLayer, KeyedRequest};
use landfall::idempotency::{
    Error, Idempotency, InTransaction, MemoryRecords, OnUnknown, OneTimeTokens, Policy, Scope, Token,
};
use landfall_sqlite::Sqlite;
use landfall_testkit::eventually;
use serde_json::Value;
use sqlx::SqliteConnection;
use tokio::sync::Semaphore;
use tower::ServiceExt;

use super::Effects;
use super::faults::Faulty;
use crate::fixture::{Fixture, TIMEOUT};

/// A shop whose handlers count their calls.
#[derive(Clone)]
struct Shop {
    effects: Effects,
    gate: Arc<Semaphore>,
}

impl Shop {
    fn open() -> Self {
        Self { effects: Effects::default(), gate: Arc::new(Semaphore::new(1000)) }
    }
}

async fn place(State(shop): State<Shop>, body: String) -> Response {
    shop.gate.acquire().await.unwrap().forget();
    let headers = [("location", "/orders/7"), ("set-cookie", "session=1"), ("x-request", "1")];
    (StatusCode::CREATED, headers, format!("order {}: {body}", shop.effects.add())).into_response()
}

async fn answer_with(State(shop): State<Shop>, Path(status): Path<u16>) -> Response {
    (StatusCode::from_u16(status).unwrap(), format!("call {}", shop.effects.add())).into_response()
}

async fn roll_back(State(shop): State<Shop>) -> Response {
    let mut response = StatusCode::INTERNAL_SERVER_ERROR.into_response();
    response.extensions_mut().insert(Effect::NothingDone);
    shop.effects.add();
    response
}

async fn large(State(shop): State<Shop>) -> Response {
    shop.effects.add();
    ([("location", "/reports/1")], "x".repeat(300_000)).into_response()
}

/// A stream of events that never ends.
async fn events(State(shop): State<Shop>) -> Response {
    shop.effects.add();
    let body = Body::from_stream(stream::pending::<Result<Vec<u8>, std::io::Error>>());
    ([("content-type", "text/event-stream"), ("location", "/events/1")], body).into_response()
}

async fn panics(State(shop): State<Shop>) -> Response {
    shop.effects.add();
    panic!("as the test wants");
}

/// The tenant that authentication has found.
fn tenant(parts: &Parts) -> Result<Scope, Response> {
    let refused = || StatusCode::FORBIDDEN.into_response();
    let name = parts.headers.get("x-tenant").map_or(Ok("a"), |value| value.to_str().map_err(|_| refused()))?;
    if name == "revoked" { Err(refused()) } else { Scope::principal(name).map_err(|_| refused()) }
}

fn app(shop: &Shop, engine: Idempotency, on_unknown: OnUnknown) -> Router {
    let policy = Policy::new(on_unknown).with_wait(Duration::from_secs(30));
    let layer = IdempotencyLayer::new(engine, "order", policy, tenant)
        .require_key()
        .with_body_limit(1000)
        // Refused: a cookie is never stored.
        .keep_header(axum::http::header::SET_COOKIE)
        .accept_tokens(|_| Some("7".into()));
    Router::new()
        .route("/orders", post(place).get(place))
        .route("/orders/{id}", post(place))
        .route("/status/{status}", post(answer_with))
        .route("/roll-back", post(roll_back))
        .route("/large", post(large))
        .route("/events", post(events))
        .route("/panics", post(panics))
        .route("/health", get(async || "ok"))
        .layer(layer)
        .with_state(shop.clone())
}

fn in_memory() -> (MemoryRecords, Idempotency) {
    let records = MemoryRecords::default();
    (records.clone(), Idempotency::new(Arc::new(records)))
}

struct Received {
    status: u16,
    headers: HeaderMap,
    body: String,
}

impl Received {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    fn problem(&self) -> (u16, String) {
        let body: Value = serde_json::from_str(&self.body).unwrap_or_default();
        (self.status, body["type"].as_str().unwrap_or_default().trim_start_matches("urn:landfall:problem:").to_owned())
    }

    fn is_replayed(&self) -> bool {
        self.header("idempotent-replayed") == Some("true")
    }
}

async fn send(app: &Router, uri: &str, headers: &[(&str, &str)], body: &str) -> Received {
    let mut request = Request::post(uri).header("content-type", "application/json");
    for (name, value) in headers {
        request = request.header(*name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
    }
    receive(app, request.body(Body::from(body.to_owned())).unwrap()).await
}

async fn receive(app: &Router, request: Request) -> Received {
    let response = app.clone().oneshot(request).await.unwrap();
    let (parts, body) = response.into_parts();
    let body = to_bytes(body, usize::MAX).await.unwrap();
    Received { status: parts.status.as_u16(), headers: parts.headers, body: String::from_utf8(body.into()).unwrap() }
}

const KEY: (&str, &str) = ("idempotency-key", "k1");

#[tokio::test]
async fn repeat_replays_the_answer_without_cookies() {
    let (shop, (_, engine)) = (Shop::open(), in_memory());
    let app = app(&shop, engine, OnUnknown::Uncertain);
    let first = send(&app, "/orders?b=2&a=1", &[KEY], "{}").await;
    assert_eq!((first.status, first.body.as_str(), first.is_replayed()), (201, "order 1: {}", false));
    assert_eq!(first.header("set-cookie"), Some("session=1"), "the first caller gets all of it");
    // Quoted, and with the parameters in another order: the same request.
    let repeat = send(&app, "/orders?a=1&b=2", &[("idempotency-key", "\"k1\"")], "{}").await;
    assert_eq!((repeat.status, repeat.body.as_str(), repeat.is_replayed()), (201, "order 1: {}", true));
    assert_eq!((repeat.header("location"), repeat.header("cache-control")), (Some("/orders/7"), Some("no-store")));
    assert_eq!((repeat.header("set-cookie"), repeat.header("x-request")), (None, None));
    assert_eq!(repeat.header("idempotency-key"), Some("\"k1\""));
    assert_eq!(shop.effects.count(), 1);
}

#[tokio::test]
async fn other_requests_under_a_used_key_are_refused() {
    let (shop, (_, engine)) = (Shop::open(), in_memory());
    let app = app(&shop, engine, OnUnknown::Uncertain);
    send(&app, "/orders/1?a=1&a=2", &[KEY], "[1,2]").await;
    for (uri, body) in [
        ("/orders/1?a=1&a=2", "[2,1]"),
        ("/orders/1?a=2&a=1", "[1,2]"),
        ("/orders/2?a=1&a=2", "[1,2]"),
        ("/orders/1", "[1,2]"),
    ] {
        assert_eq!(send(&app, uri, &[KEY], body).await.problem(), (422, "different-request".into()), "{uri} {body}");
    }
    // Another tenant has its own keys, and a revoked one gets no replay.
    let other = send(&app, "/orders/1?a=1&a=2", &[KEY, ("x-tenant", "b")], "[1,2]").await;
    assert_eq!((other.status, other.is_replayed()), (201, false));
    assert_eq!(send(&app, "/orders/1?a=1&a=2", &[KEY, ("x-tenant", "revoked")], "[1,2]").await.status, 403);
    assert_eq!(shop.effects.count(), 2);
}

#[tokio::test]
async fn missing_and_malformed_keys_are_refused() {
    let (shop, (_, engine)) = (Shop::open(), in_memory());
    let app = app(&shop, engine, OnUnknown::Uncertain);
    let long = "x".repeat(256);
    for headers in [
        &[][..],
        &[("idempotency-key", "")],
        &[("idempotency-key", "a b")],
        &[("idempotency-key", "\u{e4}")],
        &[("idempotency-key", "a\tb")],
        &[("idempotency-key", "\"a")],
        &[("idempotency-key", &long)],
        &[KEY, ("idempotency-key", "k2")],
        &[KEY, ("idempotent-token", "0123456789abcdef0123456789abcdef")],
    ] {
        assert_eq!(
            send(&app, "/orders", headers, "{}").await.problem(),
            (400, "invalid-request".into()),
            "{headers:?}"
        );
    }
    let large = send(&app, "/orders", &[KEY], &"x".repeat(1001)).await;
    assert_eq!(large.problem(), (413, "too-large".into()));
    assert_eq!(shop.effects.count(), 0);
    // Safe methods need no key.
    let health = receive(&app, Request::get("/health").body(Body::empty()).unwrap()).await;
    assert_eq!((health.status, health.body.as_str()), (200, "ok"));
}

#[tokio::test]
async fn statuses_free_the_key_store_the_answer_or_wait_for_a_person() {
    let (shop, (_, engine)) = (Shop::open(), in_memory());
    let app = app(&shop, engine, OnUnknown::Uncertain);
    for (status, repeat) in [
        (200, "replayed"),
        (303, "replayed"),
        (404, "replayed"),
        (409, "replayed"),
        (422, "replayed"),
        (400, "runs"),
        (401, "runs"),
        (415, "runs"),
        (429, "runs"),
        (500, "uncertain"),
        (503, "uncertain"),
    ] {
        let (uri, key) = (format!("/status/{status}"), format!("key-{status}"));
        let headers = [("idempotency-key", key.as_str())];
        let before = shop.effects.count();
        assert_eq!(send(&app, &uri, &headers, "").await.status, status);
        let again = send(&app, &uri, &headers, "").await;
        let calls = shop.effects.count() - before;
        match repeat {
            "replayed" => assert_eq!((again.status, again.is_replayed(), calls), (status, true, 1), "{status}"),
            "runs" => assert_eq!((again.status, again.is_replayed(), calls), (status, false, 2), "{status}"),
            _ => assert_eq!((again.problem(), calls), ((409, "uncertain".into()), 1), "{status}"),
        }
    }
    // A handler that has rolled back says so.
    let before = shop.effects.count();
    for _ in 0..2 {
        assert_eq!(send(&app, "/roll-back", &[KEY], "").await.status, 500);
    }
    assert_eq!(shop.effects.count() - before, 2);
    let panicked = send(&app, "/panics", &[("idempotency-key", "panics")], "").await;
    assert_eq!(panicked.problem(), (500, "internal".into()));
    let again = send(&app, "/panics", &[("idempotency-key", "panics")], "").await;
    assert_eq!((again.problem(), again.header("retry-after")), ((409, "uncertain".into()), None));
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_requests_share_one_call() {
    let (mut shop, (records, engine)) = (Shop::open(), in_memory());
    shop.gate = Arc::new(Semaphore::new(0));
    let other = app(&shop, Idempotency::new(Arc::new(records)), OnUnknown::Uncertain);
    let app = app(&shop, engine, OnUnknown::Uncertain);
    let requests: Vec<_> = (0..50)
        .map(|number| {
            let app = if number % 2 == 0 { app.clone() } else { other.clone() };
            tokio::spawn(async move { send(&app, "/orders", &[KEY], "{}").await })
        })
        .collect();
    shop.gate.add_permits(50);
    for request in requests {
        let received = request.await.unwrap();
        assert_eq!((received.status, received.body.as_str()), (201, "order 1: {}"));
    }
    assert_eq!(shop.effects.count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn disconnected_client_does_not_stop_the_handler() {
    let (mut shop, (records, engine)) = (Shop::open(), in_memory());
    shop.gate = Arc::new(Semaphore::new(0));
    let app = app(&shop, engine, OnUnknown::Uncertain);
    let client = tokio::spawn({
        let app = app.clone();
        async move { send(&app, "/orders", &[KEY], "{}").await.status }
    });
    let stats = async || landfall::idempotency::IdempotencyRecords::record_stats(&records).await.unwrap();
    eventually(TIMEOUT, "the attempt", async || stats().await.in_flight == 1).await;
    client.abort();
    shop.gate.add_permits(1);
    let repeat = send(&app, "/orders", &[KEY], "{}").await;
    assert_eq!((repeat.status, repeat.body.as_str(), shop.effects.count()), (201, "order 1: {}", 1));
}

#[tokio::test]
async fn large_answer_is_sent_once_and_never_run_again() {
    let (shop, (_, engine)) = (Shop::open(), in_memory());
    let app = app(&shop, engine, OnUnknown::Uncertain);
    let first = send(&app, "/large", &[KEY], "").await;
    assert_eq!((first.status, first.body.len()), (200, 300_000));
    let repeat = send(&app, "/large", &[KEY], "").await;
    assert_eq!((repeat.problem(), repeat.header("location")), ((409, "result-not-kept".into()), Some("/reports/1")));
    assert_eq!(shop.effects.count(), 1);
}

#[tokio::test]
async fn event_stream_is_passed_on_as_it_arrives_and_not_kept() {
    let (shop, (_, engine)) = (Shop::open(), in_memory());
    let app = app(&shop, engine, OnUnknown::Uncertain);
    let request = Request::post("/events").header(KEY.0, KEY.1).body(Body::empty()).unwrap();
    let first = tokio::time::timeout(TIMEOUT, app.clone().oneshot(request)).await;
    assert_eq!(first.expect("the head does not wait for the end").unwrap().status(), StatusCode::OK);
    let request = Request::post("/events").header(KEY.0, KEY.1).body(Body::empty()).unwrap();
    let repeat = receive(&app, request).await;
    assert_eq!((repeat.problem(), repeat.header("location")), ((409, "result-not-kept".into()), Some("/events/1")));
    assert_eq!(shop.effects.count(), 1);
}

#[tokio::test]
async fn unavailable_store_is_503_and_nothing_runs() {
    let (shop, store) = (Shop::open(), Faulty::default());
    store.fail_claims(1);
    let app = app(&shop, Idempotency::new(Arc::new(store)), OnUnknown::Uncertain);
    let refused = send(&app, "/orders", &[KEY], "{}").await;
    assert_eq!((refused.problem(), refused.header("retry-after")), ((503, "unavailable".into()), Some("1")));
    assert!(!refused.body.contains("store is down"), "the reason is for the log: {}", refused.body);
    assert_eq!(shop.effects.count(), 0);
    assert_eq!(send(&app, "/orders", &[KEY], "{}").await.status, 201);
}

#[tokio::test]
async fn token_header_runs_the_handler_once() {
    let (shop, (records, engine)) = (Shop::open(), in_memory());
    let app = app(&shop, engine, OnUnknown::Uncertain);
    let token = Token::generate().unwrap();
    let text = token.to_string();
    let header = [("idempotent-token", text.as_str())];
    assert_eq!(send(&app, "/orders", &header, "{}").await.problem(), (409, "token-invalid".into()));
    let identity = token.identity(Scope::principal("a").unwrap(), "order", "7").unwrap();
    records.issue_token(&identity, Duration::from_secs(300)).await.unwrap();
    assert_eq!(send(&app, "/orders", &[("idempotent-token", "x")], "{}").await.problem().0, 409);
    assert_eq!(send(&app, "/orders", &header, "{}").await.status, 201);
    let repeat = send(&app, "/orders", &header, "{}").await;
    assert_eq!((repeat.status, repeat.is_replayed(), shop.effects.count()), (201, true, 1));
}

/// Layers with one bug each: they store what they should not, and replay it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Bug {
    ReplaysCookies,
    StoresServerErrors,
}

type Stored = Arc<Mutex<HashMap<String, (StatusCode, HeaderMap, Bytes)>>>;

async fn naive(State((bug, stored)): State<(Bug, Stored)>, request: Request, next: Next) -> Response {
    let key = request.headers().get("idempotency-key").unwrap().to_str().unwrap().to_owned();
    let replayed = [("idempotent-replayed", "true"), ("cache-control", "no-store")];
    if let Some(answer) = stored.lock().unwrap().get(&key).cloned() {
        return (replayed, answer).into_response();
    }
    let (parts, body) = next.run(request).await.into_parts();
    let body = to_bytes(body, usize::MAX).await.unwrap();
    let mut kept = parts.headers.clone();
    if bug != Bug::ReplaysCookies {
        kept.remove("set-cookie");
    }
    if bug == Bug::StoresServerErrors || !parts.status.is_server_error() {
        stored.lock().unwrap().insert(key, (parts.status, kept, body.clone()));
    }
    (parts.status, parts.headers, body).into_response()
}

fn naive_app(shop: &Shop, bug: Bug) -> Router {
    let layer = from_fn_with_state((bug, Stored::default()), naive);
    Router::new()
        .route("/orders", post(place))
        .route("/status/{status}", post(answer_with))
        .layer(layer)
        .with_state(shop.clone())
}

async fn assert_no_cookie_is_replayed(app: &Router) {
    let first = send(app, "/orders", &[KEY], "{}").await;
    assert_eq!(first.header("set-cookie"), Some("session=1"), "the first caller gets all of it");
    let repeat = send(app, "/orders", &[KEY], "{}").await;
    assert!(repeat.is_replayed());
    assert_eq!(repeat.header("set-cookie"), None, "a cookie was replayed");
}

async fn assert_no_server_error_is_stored(app: &Router) {
    for uri in ["/status/500", "/status/503"] {
        let headers = [("idempotency-key", uri)];
        send(app, uri, &headers, "").await;
        let repeat = send(app, uri, &headers, "").await;
        assert!(!repeat.is_replayed(), "a server error was stored: {} of {uri}", repeat.status);
    }
}

#[tokio::test]
async fn layer_replays_no_cookie_and_stores_no_server_error() {
    for on_unknown in [OnUnknown::Rerun, OnUnknown::Uncertain] {
        let app = app(&Shop::open(), in_memory().1, on_unknown);
        assert_no_cookie_is_replayed(&app).await;
        assert_no_server_error_is_stored(&app).await;
    }
    // Each bug is found by its own check only.
    assert_no_server_error_is_stored(&naive_app(&Shop::open(), Bug::ReplaysCookies)).await;
    assert_no_cookie_is_replayed(&naive_app(&Shop::open(), Bug::StoresServerErrors)).await;
}

#[tokio::test]
#[should_panic(expected = "a cookie was replayed")]
async fn layer_that_replays_cookies_is_caught() {
    assert_no_cookie_is_replayed(&naive_app(&Shop::open(), Bug::ReplaysCookies)).await;
}

#[tokio::test]
#[should_panic(expected = "a server error was stored")]
async fn layer_that_stores_server_errors_is_caught() {
    assert_no_server_error_is_stored(&naive_app(&Shop::open(), Bug::StoresServerErrors)).await;
}

/// A handler that keeps the record in its own transaction, with the rules of the layer.
async fn place_in_transaction(
    State((orders, effects)): State<(InTransaction<Sqlite>, Effects)>,
    request: KeyedRequest,
) -> Result<Response, Response> {
    let identity = request.identity(Scope::principal("a").unwrap(), "order")?;
    let work = async |_: &mut SqliteConnection| match effects.add() {
        1 => Err("out of stock"),
        number => Ok(format!("order {number}")),
    };
    let placed = orders.run(&identity, request.fingerprint(), work).await;
    let cookie = [("set-cookie", "session=1"), ("location", "/orders/7")];
    let placed = placed
        .map(|answer| answer.map(|text| (StatusCode::CREATED, cookie, text)))
        .map_err(|error| error.map_work(|text| (StatusCode::CONFLICT, text)));
    Ok(request.respond(placed))
}

#[tokio::test]
async fn handler_with_its_own_transaction_follows_the_rules_of_the_layer() {
    let (fixture, effects) = (Fixture::new().await, Effects::default());
    let orders = InTransaction::new(fixture.database.clone());
    let state = (orders, effects.clone());
    let app = Router::new().route("/orders", post(place_in_transaction)).with_state(state);
    for headers in [&[][..], &[("idempotency-key", "a b")], &[KEY, ("idempotency-key", "k2")]] {
        assert_eq!(send(&app, "/orders", headers, "{}").await.problem(), (400, "invalid-request".into()));
    }
    let failed = send(&app, "/orders", &[KEY], "{}").await;
    assert_eq!((failed.status, failed.body.as_str()), (409, "out of stock"));
    let first = send(&app, "/orders?b=2&a=1", &[KEY], "{}").await;
    assert_eq!((first.status, first.body.as_str(), first.is_replayed()), (201, "order 2", false));
    assert_eq!((first.header("set-cookie"), first.header("idempotency-key")), (Some("session=1"), None));
    let repeat = send(&app, "/orders?a=1&b=2", &[("idempotency-key", "\"k1\"")], "{}").await;
    assert_eq!((repeat.status, repeat.body.as_str(), repeat.is_replayed()), (201, "order 2", true));
    assert_eq!((repeat.header("location"), repeat.header("cache-control")), (Some("/orders/7"), Some("no-store")));
    assert_eq!((repeat.header("set-cookie"), repeat.header("idempotency-key")), (None, Some("\"k1\"")));
    for (uri, body) in [("/orders?a=1&b=2", "[]"), ("/orders", "{}")] {
        assert_eq!(send(&app, uri, &[KEY], body).await.problem(), (422, "different-request".into()));
    }
    assert_eq!(effects.count(), 2);
}

#[test]
fn error_response_says_whether_the_work_was_begun() {
    let error = |kind| landfall::Error::new(kind, "the store is down");
    let status = |error: Error<StatusCode>| error.into_response().status().as_u16();
    let unavailable = ErrorKind::Unavailable;
    assert_eq!(status(Error::Store(error(unavailable))), 503);
    assert_eq!(status(Error::Store(error(ErrorKind::Invalid))), 500, "it never succeeds");
    assert_eq!(status(Error::Unconfirmed(error(ErrorKind::Unknown))), 503);
    assert_eq!(status(Error::Value(error(ErrorKind::Corrupt))), 500);
    assert_eq!(status(Error::Uncertain), 409);
    assert_eq!(status(Error::Work(StatusCode::GONE)), 410);
    let said = |error: Error<StatusCode>| error.map_work(|_| "").to_string();
    assert!(said(Error::Store(error(unavailable))).contains("not begun"));
    assert!(!said(Error::Unconfirmed(error(unavailable))).contains("not begun"));
    // Clients of an API have no such command.
    assert!(!said(Error::Uncertain).contains("landfall "));
}
