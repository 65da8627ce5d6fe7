//! Asks a service over HTTP: `POST URL {id, business_type, business_id}`, answered by `{state}`.
//!
//! Everything but status 200 with one of the three states is unknown: no connection, another status, a body that is
//! too large or is no such object.

use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::{Response, StatusCode};
use landfall::HalfMessage;
use landfall::check_back::Answer;
use serde::Deserialize;
use serde_json::json;

use super::remote_target::{MAX_BODY_BYTES, Question};

pub(super) fn question(half: &HalfMessage) -> Question {
    let (business_type, business_id) = (&half.business_type, &half.business_id);
    let body = json!({ "id": half.message.id, "business_type": business_type, "business_id": business_id }).to_string();
    Question { content_type: "application/json", signed: body.clone().into_bytes(), body: body.into() }
}

pub(super) async fn answer(response: Response<Incoming>) -> Result<Answer, String> {
    if response.status() != StatusCode::OK {
        return Err(format!("the response was HTTP {}", response.status().as_u16()));
    }
    let body = Limited::new(response.into_body(), MAX_BODY_BYTES).collect().await;
    parse(&body.map_err(|error| format!("the response cannot be read: {error}"))?.to_bytes())
}

fn parse(body: &[u8]) -> Result<Answer, String> {
    #[derive(Deserialize)]
    struct Reply {
        state: String,
    }
    // serde would also accept an array with the value.
    if body.trim_ascii_start().first() != Some(&b'{') {
        return Err("the response is no JSON object".into());
    }
    let reply: Reply = serde_json::from_slice(body).map_err(|error| format!("the response has no state: {error}"))?;
    match reply.state.as_str() {
        "committed" => Ok(Answer::Committed),
        "rolled_back" => Ok(Answer::RolledBack),
        "unknown" => Ok(Answer::unknown("the service does not know")),
        _ => Err("the response has another state than committed, rolled_back, unknown".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_three_states_are_answers() {
        assert_eq!(parse(br#"{"state":"committed"}"#), Ok(Answer::Committed));
        assert_eq!(parse(br#" {"state": "rolled_back", "at": 5}"#), Ok(Answer::RolledBack));
        assert!(matches!(parse(br#"{"state":"unknown"}"#), Ok(Answer::Unknown(_))));
        for body in [
            "",
            "committed",
            "\"committed\"",
            "[\"committed\"]",
            "{}",
            "{\"state\":null}",
            "{\"state\":\"COMMITTED\"}",
            "{\"state\":\"commit\"}",
            "{\"status\":\"committed\"}",
            "{\"state\":\"committed\",\"state\":\"rolled_back\"}",
            "{\"state\":\"committed\"",
            "<html>committed</html>",
        ] {
            assert!(parse(body.as_bytes()).is_err(), "{body} was an answer");
        }
    }
}
