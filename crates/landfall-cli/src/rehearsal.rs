//! Runs the handlers of dead letters without effect: asks their consumers, and waits for the answers.

use std::collections::BTreeMap;
use std::time::Duration;

use landfall::{DeadLetterId, Predicted, Prediction, RehearsalResult, Rehearsals, Result, Skip};
use serde::Serialize;
use tokio::time::{Instant, sleep};

/// How long to wait for the consumers unless a request says otherwise, and at most.
pub(crate) const DEFAULT_WAIT: Duration = Duration::from_secs(10);
pub(crate) const MAX_WAIT: Duration = Duration::from_secs(60);

/// The most letters that are rehearsed together.
pub(crate) const MAX_LETTERS: usize = 100;

/// The pause between two looks for answers.
const POLL: Duration = Duration::from_millis(100);

/// What a consumer answered.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Answer {
    /// `unanswered` if no consumer has run the handler in time, such as one without rehearsals.
    pub(crate) outcome: &'static str,
    pub(crate) error_code: Option<String>,
    pub(crate) error: Option<String>,
    pub(crate) fingerprint: Option<String>,
}

impl Answer {
    fn new(result: Option<RehearsalResult>) -> Self {
        match result {
            None => Self { outcome: "unanswered", error_code: None, error: None, fingerprint: None },
            Some(RehearsalResult { outcome, error_code, error, fingerprint }) => {
                Self { outcome: outcome.as_str(), error_code, error, fingerprint }
            }
        }
    }
}

/// Returns whether the handler of such a letter can be run: it is parked, and no earlier message of its key is open.
pub(crate) fn can_run(prediction: &Prediction) -> bool {
    match prediction.outcome {
        Predicted::Ready => true,
        Predicted::Skipped(Skip::CoolDown | Skip::Blocked | Skip::Limit | Skip::TooOld) => {
            prediction.predecessor.is_none()
        }
        Predicted::Waits | Predicted::Skipped(_) | Predicted::Missing => false,
    }
}

/// Asks for a rehearsal of `letters`, and waits until each has an answer, at most `wait`. Letters that cannot be
/// rehearsed, such as those of the relay, are not in the result.
pub(crate) async fn run(
    rehearsals: &dyn Rehearsals,
    letters: &[DeadLetterId],
    actor: &str,
    wait: Duration,
) -> Result<BTreeMap<DeadLetterId, Answer>> {
    let deadline = Instant::now() + wait;
    if letters.is_empty() {
        return Ok(BTreeMap::new());
    }
    let id = rehearsals.request_rehearsal(letters, actor).await?;
    loop {
        let results = rehearsals.rehearsal(id).await?;
        let is_over = Instant::now() >= deadline || results.iter().all(|letter| letter.result.is_some());
        if is_over {
            return Ok(results.into_iter().map(|letter| (letter.id, Answer::new(letter.result))).collect());
        }
        sleep(POLL).await;
    }
}
