//! The calls of senders have the meaning of the routes.

use landfall_grpc::{CheckBackTarget, DecideRequest, GetRequest, HalfState, PrepareRequest};
use landfall_testkit::eventually;
use serde_json::Value;
use tonic::{Code, Status};

use crate::support::{Daemon, Sandbox, TIMEOUT, half_messages, on_each};

const EARLY: &str = "0190d2a7-6a4e-7bbb-8a6d-3c1f0a9b1c2d";

/// A half message about order `number`, whose check-back is an address that refuses connections.
pub(super) fn half(number: u32) -> PrepareRequest {
    PrepareRequest {
        topic: "orders".into(),
        key: Some(format!("order-{number}")),
        kind: Some("OrderPlaced".into()),
        payload: format!("{{\"n\":{number}}}").into(),
        business_type: "order".into(),
        business_id: number.to_string(),
        check_back: Some(CheckBackTarget { http: Some("http://127.0.0.1:9/".into()), ..Default::default() }),
        ..Default::default()
    }
}

pub(super) async fn prepare(daemon: &Daemon, half: PrepareRequest) -> Result<String, Status> {
    let reply = half_messages(daemon.address).prepare(half).await?.into_inner();
    assert_eq!(reply.state(), HalfState::Prepared);
    Ok(reply.id)
}

async fn commit(daemon: &Daemon, id: &str) -> Result<HalfState, Status> {
    let reply = half_messages(daemon.address).commit(DecideRequest { id: id.into() }).await?.into_inner();
    assert_eq!(reply.id, id);
    Ok(reply.state())
}

async fn rollback(daemon: &Daemon, id: &str) -> Result<HalfState, Status> {
    Ok(half_messages(daemon.address).rollback(DecideRequest { id: id.into() }).await?.into_inner().state())
}

async fn tail(sandbox: &Sandbox) -> Vec<Value> {
    let finished = sandbox.run(&["topic", "tail", "orders", "--json"]).await;
    if finished.code == 1 { Vec::new() } else { finished.objects() }
}

/// Asserts the code and the name of the problem.
pub(super) fn assert_refused(result: Result<impl std::fmt::Debug, Status>, code: Code, name: &str) -> String {
    let status = result.unwrap_err();
    let problem = status.metadata().get("landfall-problem").map(|name| name.to_str().unwrap());
    assert_eq!((status.code(), problem), (code, Some(name)), "{status:?}");
    status.message().to_owned()
}

on_each! {
    async fn half_messages_over_grpc_have_the_meaning_of_the_routes(sandbox: &Sandbox) {
        let daemon = sandbox.serve().await;
        let mut first = half(1);
        first.id = Some("order-1-placed".into());
        first.headers.insert("tenant".into(), "a".into());
        first.sequence = Some(7);
        first.mode = Some("at-least-once".into());
        let kept = prepare(&daemon, first.clone()).await.unwrap();
        assert_eq!(prepare(&daemon, first.clone()).await.unwrap(), kept, "an equal prepare has the same answer");
        let other = PrepareRequest { payload: "other".into(), ..first.clone() };
        assert_refused(prepare(&daemon, other).await, Code::AlreadyExists, "different-message");
        let discarded = prepare(&daemon, half(2)).await.unwrap();

        for _ in 0..2 {
            assert_eq!(commit(&daemon, &kept).await.unwrap(), HalfState::Committed);
            assert_eq!(rollback(&daemon, &discarded).await.unwrap(), HalfState::RolledBack);
        }
        let refusal = assert_refused(rollback(&daemon, &kept).await, Code::FailedPrecondition, "other-verdict");
        assert!(refusal.contains("is committed already"), "{refusal}");
        assert_refused(commit(&daemon, &discarded).await, Code::FailedPrecondition, "other-verdict");

        // Both protocols reach the same row.
        let row = daemon.get(&format!("/v1/half-messages/{kept}")).await.json();
        let got = half_messages(daemon.address).get(GetRequest { id: kept.clone() }).await.unwrap().into_inner();
        assert_eq!((got.state(), row["state"].as_str()), (HalfState::Committed, Some("committed")));
        assert_eq!((got.key.as_deref(), got.decided_by.as_deref()), (Some("order-1"), Some("sender")));
        assert_eq!((got.contradicted_by.as_deref(), row["contradicted_by"].as_str()), (Some("sender"), Some("sender")));

        assert_eq!(commit(&daemon, EARLY).await.unwrap(), HalfState::Committed, "before its prepare");
        let late = PrepareRequest { id: Some(EARLY.into()), ..half(3) };
        let reply = half_messages(daemon.address).prepare(late).await.unwrap().into_inner();
        assert_eq!(reply.state(), HalfState::Committed);

        let ids = async || {
            let lines = tail(sandbox).await;
            let mut ids: Vec<_> = lines.iter().map(|line| line["id"].as_str().unwrap().to_owned()).collect();
            ids.sort_unstable();
            ids
        };
        let mut expected = [kept.clone(), EARLY.to_owned()];
        expected.sort_unstable();
        eventually(TIMEOUT, "both committed messages", async || ids().await == expected).await;
        let lines = tail(sandbox).await;
        let line = lines.iter().find(|line| line["id"] == kept.as_str()).unwrap();
        assert_eq!((&line["kind"], &line["payload"]["n"]), (&"OrderPlaced".into(), &1.into()));
        assert_eq!((&line["headers"]["tenant"], &line["sequence"]), (&"a".into(), &7.into()), "{line}");
        let mode = "SELECT count(*) FROM landfall_half_message WHERE mode = 'at-least-once'";
        assert_eq!(sandbox.count(mode).await, 1);
    }
}

#[tokio::test]
async fn invalid_calls_are_refused_like_requests() {
    let sandbox = Sandbox::new();
    sandbox.configure("[limits]\npayload_bytes = 1000\n");
    let daemon = sandbox.serve().await;
    for (change, word) in [
        ((|half: &mut PrepareRequest| half.topic = "a b".into()) as fn(&mut PrepareRequest), "topic"),
        (|half| half.topic.clear(), "topic"),
        (|half| half.business_type.clear(), "business_type is empty"),
        (|half| half.check_back = None, "check_back names no target"),
        (|half| half.check_back.as_mut().unwrap().http = Some("nonsense".into()), "check_back.http must begin with"),
        (
            |half| half.check_back.as_mut().unwrap().grpc = Some("http://a/x".into()),
            "check_back.grpc must have no path",
        ),
        (|half| half.check_after_s = Some(u64::MAX), "check_after_s is invalid"),
        (|half| half.id = Some(String::new()), "the field id is invalid: it is empty"),
        (|half| half.kind = Some("a\nb".into()), "kind"),
        (|half| half.sequence = Some(-1), "sequence is invalid: it is negative"),
        (|half| half.mode = Some("twice".into()), "mode"),
        (|half| drop(half.headers.insert("ce_id".into(), "x".into())), "ce_id"),
    ] {
        let mut wrong = half(1);
        change(&mut wrong);
        let refusal = assert_refused(prepare(&daemon, wrong).await, Code::InvalidArgument, "invalid-request");
        assert!(refusal.contains(word), "{word}: {refusal}");
    }
    let large = PrepareRequest { payload: vec![b'x'; 1001].into(), ..half(1) };
    assert_refused(prepare(&daemon, large).await, Code::ResourceExhausted, "too-large");
    let huge = PrepareRequest { payload: vec![b'x'; 1 << 20].into(), ..half(1) };
    assert_refused(prepare(&daemon, huge).await, Code::ResourceExhausted, "too-large");
    assert_refused(commit(&daemon, "order-1").await, Code::InvalidArgument, "invalid-request");
    let get = half_messages(daemon.address).get(GetRequest { id: EARLY.into() }).await;
    assert_refused(get, Code::NotFound, "not-found");
    assert_eq!(sandbox.count("SELECT count(*) FROM landfall_half_message").await, 0);
}
