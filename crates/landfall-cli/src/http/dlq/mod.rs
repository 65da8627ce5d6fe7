//! Dead letters, redrive jobs and the audit trail.
//!
//! | route | file |
//! |---|---|
//! | `GET /v1/dead-letters…`, `/v1/dead-letter-groups` | [`letters`] |
//! | `POST /v1/dead-letters/{id}/redrive`, `…/ignore`, `…/release` | [`actions`] |
//! | `POST /v1/dead-letters/{id}/rehearse` | [`rehearse`] |
//! | `POST /v1/dead-letter-groups/{fingerprint}` | [`groups`] |
//! | `/v1/redrives…`, `POST /ops/dlq/redrive` | [`redrives`] |
//! | `/v1/key-rules` | [`keys`] |
//! | `GET /v1/audit` | [`audit`] |
//!
//! Viewers see neither payloads nor headers, and cannot search payloads.

pub(super) mod actions;
pub(super) mod audit;
pub(super) mod filter;
pub(super) mod groups;
pub(super) mod keys;
pub(super) mod letters;
pub(super) mod redrives;
pub(super) mod rehearse;
pub(super) mod request;

use landfall::{DeadLetterId, MessageId, RedriveId};

use super::auth::Caller;
use super::problem::Problem;

/// The longest name of a person in a request.
const MAX_ACTOR_CHARACTERS: usize = 100;

/// The longest reason in a request.
pub(super) const MAX_REASON_CHARACTERS: usize = 1000;

/// Parses the id of a dead letter: digits only, so that every id has one notation.
pub(super) fn letter_id(text: &str) -> Result<DeadLetterId, Problem> {
    let id = text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten();
    id.filter(|id| *id > 0).ok_or_else(|| Problem::invalid(format!("{text:?} is not the id of a dead letter")))
}

pub(super) fn redrive_id(text: &str) -> Result<RedriveId, Problem> {
    Ok(text.parse::<MessageId>()?)
}

/// Returns the name for the audit trail: the one that the caller gives, else its role.
pub(super) fn actor(given: Option<&str>, caller: &Caller) -> Result<String, Problem> {
    match given {
        Some(name) => words("actor", name, MAX_ACTOR_CHARACTERS).map(str::to_owned),
        None => Ok(format!("http:{}", caller.role.as_str())),
    }
}

/// Returns a text of one line that is not empty.
pub(super) fn words<'a>(field: &str, text: &'a str, most: usize) -> Result<&'a str, Problem> {
    let is_valid = !text.trim().is_empty() && text.chars().count() <= most && !text.chars().any(char::is_control);
    is_valid.then_some(text).ok_or_else(|| {
        Problem::invalid(format!("{field} must have 1 to {most} characters, without control characters"))
    })
}

/// Runs a change to its end, also if the client disconnects: a cancelled statement desyncs some drivers.
pub(super) async fn detached<T: Send + 'static>(
    change: impl Future<Output = landfall::Result<T>> + Send + 'static,
) -> Result<T, Problem> {
    let ended = tokio::spawn(change).await.map_err(|error| {
        landfall::Error::new(landfall::ErrorKind::Internal, "the change was not made").with_source(error)
    })?;
    Ok(ended?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Role;

    #[test]
    fn id_of_a_letter_has_one_notation() {
        assert_eq!(letter_id("17").unwrap(), 17);
        for wrong in ["", "0", "-1", "+1", "1.0", "x", "99999999999999999999"] {
            assert!(letter_id(wrong).is_err(), "{wrong:?} was accepted");
        }
    }

    #[test]
    fn actor_is_the_given_name_or_the_role() {
        let caller = Caller { role: Role::Operator };
        assert_eq!(actor(Some("maria"), &caller).unwrap(), "maria");
        assert_eq!(actor(None, &caller).unwrap(), "http:operator");
        for wrong in ["", " ", "a\nb", &"x".repeat(101)] {
            assert!(actor(Some(wrong), &caller).is_err(), "{wrong:?} was accepted");
        }
    }
}
