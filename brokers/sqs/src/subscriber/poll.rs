//! Long polls for messages: one at a time while messages are few, several while they are many. There is none while the
//! subscriber does not wait. While SQS is unavailable, polls back off.

use std::time::{Duration, SystemTime};

use aws_sdk_sqs::config::Builder as ConfigBuilder;
use aws_sdk_sqs::types::{Message as Stored, MessageSystemAttributeName as System};
use landfall_core::{Backoff, MessageId, TopicName};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::client::timeouts;
use crate::error::{CallError, Effect};
use crate::publisher::CALL_ENTRIES;
use crate::queues::Queues;

const BACKOFF: Backoff =
    Backoff { first: Duration::from_millis(100), cap: Duration::from_secs(5), max_attempts: u32::MAX };
/// The least time between two calls that return nothing, for queues whose calls do not wait.
const PAUSE: Duration = Duration::from_millis(200);

#[derive(Debug)]
pub(crate) struct Polls {
    queues: Queues,
    topic: TopicName,
    running: JoinSet<Polled>,
    /// The most messages that the running calls may return.
    expected: usize,
    /// How many concurrent calls pay off.
    worthwhile: usize,
    /// The subscriber waits, and no message is there.
    pub(crate) wanted: bool,
    failures: u32,
    not_before: Instant,
    /// Calls whose responses were lost. SQS repeats its response to a call with the same attempt id.
    unanswered: Vec<AttemptId>,
}

#[derive(Debug)]
pub(crate) struct Polled {
    pub(crate) asked: Instant,
    most: usize,
    attempt: Option<AttemptId>,
    pub(crate) result: Result<Vec<Stored>, CallError>,
}

#[derive(Debug, Clone)]
struct AttemptId {
    text: String,
    first_used: Instant,
}

impl Polls {
    pub(crate) fn new(queues: Queues, topic: TopicName) -> Self {
        Self {
            queues,
            topic,
            running: JoinSet::new(),
            expected: 0,
            worthwhile: 1,
            wanted: false,
            failures: 0,
            not_before: Instant::now(),
            unanswered: Vec::new(),
        }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.running.is_empty()
    }

    /// When the next call may be made; `None` if only an event can change that.
    pub(crate) fn wake_at(&self) -> Option<Instant> {
        let pausing = self.wanted && self.running.is_empty() && self.not_before > Instant::now();
        pausing.then_some(self.not_before)
    }

    /// Makes the calls that pay off while `in_flight` messages are unsettled and `waiting` of them undelivered.
    pub(crate) fn start(&mut self, in_flight: usize, waiting: usize) {
        let now = Instant::now();
        while now >= self.not_before && self.running.len() < self.worthwhile {
            let wanted = self.wanted && self.running.is_empty();
            let ahead = self.worthwhile > 1 && waiting + self.expected < self.worthwhile * CALL_ENTRIES;
            let room = self.queues.options.in_flight.saturating_sub(in_flight + self.expected);
            let most = room.min(CALL_ENTRIES);
            if most == 0 || !(wanted || ahead) {
                return;
            }
            self.expected += most;
            let attempt = self.queues.options.fifo.then(|| self.attempt_id(now));
            self.running.spawn(poll(self.queues.clone(), self.topic.clone(), most, attempt));
        }
    }

    /// Waits for a call to end. Cancellation-safe.
    pub(crate) async fn next(&mut self) -> Option<Polled> {
        loop {
            match self.running.join_next().await? {
                Ok(polled) => {
                    self.expected = self.expected.saturating_sub(polled.most);
                    self.learn(&polled);
                    return Some(polled);
                }
                // Only a runtime that shuts down cancels a task.
                Err(error) => tracing::warn!(%error, topic = %self.topic, "poll cancelled"),
            }
        }
    }

    fn learn(&mut self, polled: &Polled) {
        let now = Instant::now();
        match &polled.result {
            Ok(messages) => {
                if self.failures > 0 {
                    tracing::info!(topic = %self.topic, failures = self.failures, "SQS available again");
                }
                self.failures = 0;
                match messages.len() {
                    0 => {
                        self.worthwhile = 1;
                        self.not_before = (polled.asked + PAUSE).max(now);
                    }
                    count if count == polled.most => {
                        self.worthwhile = (self.worthwhile * 2).min(self.queues.options.pollers);
                    }
                    _ => {}
                }
            }
            Err(error) => {
                self.failures = self.failures.saturating_add(1);
                self.worthwhile = 1;
                let delay = BACKOFF.delay_after(self.failures, random()).unwrap_or(BACKOFF.cap);
                self.not_before = now + delay;
                self.wanted = true;
                if error.effect != Effect::Permanent {
                    self.unanswered.extend(polled.attempt.clone());
                }
                if error.is_missing() {
                    self.queues.forget(&self.topic);
                }
                let failures = self.failures;
                tracing::warn!(%error, topic = %self.topic, failures, ?delay, "SQS unavailable, backing off");
            }
        }
    }

    /// The attempt id of the next call: that of a call whose response was lost, while SQS can still repeat it.
    fn attempt_id(&mut self, now: Instant) -> AttemptId {
        let visibility = self.queues.options.visibility;
        self.unanswered.retain(|lost| now.duration_since(lost.first_used) < visibility);
        let new = || AttemptId { text: MessageId::new().to_string(), first_used: now };
        self.unanswered.pop().unwrap_or_else(new)
    }
}

async fn poll(queues: Queues, topic: TopicName, most: usize, attempt: Option<AttemptId>) -> Polled {
    let asked = Instant::now();
    let result = receive(&queues, &topic, most, attempt.as_ref()).await;
    Polled { asked, most, attempt, result }
}

async fn receive(
    queues: &Queues,
    topic: &TopicName,
    most: usize,
    attempt: Option<&AttemptId>,
) -> Result<Vec<Stored>, CallError> {
    let options = &queues.options;
    let seconds = |time: Duration| i32::try_from(time.as_secs()).unwrap_or(i32::MAX);
    let call = queues
        .client
        .receive_message()
        .queue_url(queues.url(topic).await?)
        .max_number_of_messages(i32::try_from(most).unwrap_or(1))
        .visibility_timeout(seconds(options.visibility))
        .wait_time_seconds(seconds(options.wait))
        .message_attribute_names("All")
        .message_system_attribute_names(System::MessageGroupId)
        .message_system_attribute_names(System::SentTimestamp)
        .set_receive_request_attempt_id(attempt.map(|attempt| attempt.text.clone()));
    let patient = ConfigBuilder::default().timeout_config(timeouts(options, options.wait + options.timeout));
    Ok(call.customize().config_override(patient).send().await?.messages.unwrap_or_default())
}

/// Jitter, so that members which failed together do not retry together.
fn random() -> f64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    f64::from(now.subsec_nanos() % 1_000) / 1_000.0
}
