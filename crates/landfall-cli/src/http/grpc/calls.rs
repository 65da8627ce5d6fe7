//! `landfall.v1.HalfMessages`: the calls of senders, in terms of the routes.

use std::sync::Arc;

use landfall::{CheckBack, HalfMessageRow, HalfState, HalfVerdict, MessageId, Timestamp};
use landfall_grpc::half_messages_server::HalfMessages;
use landfall_grpc::{self as wire, CheckBackTarget, DecideRequest, GetRequest, HalfMessageReply, PrepareRequest};
use tonic::{Request, Response, Status};

use super::super::half_messages::{self, Decision};
use super::super::problem::Problem;
use super::super::{State, idempotency};
use crate::check_back::request::Given;

pub(super) struct Calls {
    state: Arc<State>,
}

impl Calls {
    pub(super) fn new(state: Arc<State>) -> Self {
        Self { state }
    }

    async fn decide(&self, id: &str, verdict: HalfVerdict) -> Result<Response<HalfMessageReply>, Status> {
        let decision = half_messages::decide(&self.state, id, verdict).await?;
        Ok(Response::new(reply(&decision)))
    }
}

#[tonic::async_trait]
impl HalfMessages for Calls {
    async fn prepare(&self, request: Request<PrepareRequest>) -> Result<Response<HalfMessageReply>, Status> {
        let (metadata, _, call) = request.into_parts();
        let headers = metadata.into_headers();
        let id = idempotency::message_id(call.id.as_deref(), &headers)?.unwrap_or_else(MessageId::new);
        let half = given(call)?.half_message(id, self.state.immunity).map_err(Problem::invalid)?;
        Ok(Response::new(reply(&half_messages::store(&self.state, half).await?)))
    }

    async fn commit(&self, request: Request<DecideRequest>) -> Result<Response<HalfMessageReply>, Status> {
        self.decide(&request.get_ref().id, HalfVerdict::Committed).await
    }

    async fn rollback(&self, request: Request<DecideRequest>) -> Result<Response<HalfMessageReply>, Status> {
        self.decide(&request.get_ref().id, HalfVerdict::RolledBack).await
    }

    async fn get(&self, request: Request<GetRequest>) -> Result<Response<wire::HalfMessage>, Status> {
        Ok(Response::new(row(half_messages::find(&self.state, &request.get_ref().id).await?)))
    }
}

fn given(call: PrepareRequest) -> Result<Given, Problem> {
    let CheckBackTarget { database, http, grpc } = call.check_back.unwrap_or_default();
    Ok(Given {
        topic: call.topic,
        key: call.key,
        kind: call.kind,
        sequence: call.sequence,
        headers: call.headers.try_into()?,
        mode: call.mode,
        payload: call.payload,
        business_type: call.business_type,
        business_id: call.business_id,
        check_back: CheckBack { database, http, grpc },
        check_after_s: call.check_after_s,
    })
}

fn reply(decision: &Decision) -> HalfMessageReply {
    HalfMessageReply { id: decision.id.to_string(), state: state(decision.state).into(), fresh: decision.fresh }
}

fn state(state: HalfState) -> wire::HalfState {
    match state {
        HalfState::Prepared => wire::HalfState::Prepared,
        HalfState::Committed => wire::HalfState::Committed,
        HalfState::RolledBack => wire::HalfState::RolledBack,
        HalfState::Parked => wire::HalfState::Parked,
    }
}

fn row(row: HalfMessageRow) -> wire::HalfMessage {
    let millis = |time: Option<Timestamp>| time.map(Timestamp::as_millis);
    let CheckBack { database, http, grpc } = row.check_back;
    wire::HalfMessage {
        id: row.id.to_string(),
        state: state(row.state).into(),
        topic: row.topic.map(|topic| topic.to_string()),
        key: row.key,
        kind: row.kind,
        business_type: row.business_type,
        business_id: row.business_id,
        check_back: Some(CheckBackTarget { database, http, grpc }),
        prepared_at_ms: row.prepared_at.as_millis(),
        decided_at_ms: millis(row.decided_at),
        decided_by: row.decided_by,
        checks: row.checks,
        next_check_ms: millis(row.next_check),
        last_answer: row.last_answer,
        contradicted_at_ms: millis(row.contradicted_at),
        contradicted_by: row.contradicted_by,
        acknowledged_at_ms: millis(row.acknowledged_at),
        acknowledged_by: row.acknowledged_by,
    }
}
