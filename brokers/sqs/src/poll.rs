//! Asking for messages: one call at a time while there is little, several while there is much, none that nobody waits
//! for, and less and less often while the service does not answer.

use std::time::{Duration, SystemTime};

use aws_sdk_sqs::config::Builder as ConfigBuilder;
use aws_sdk_sqs::types::{Message as Stored, MessageSystemAttributeName as System};
use landfall_core::{Backoff, MessageId, TopicName};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::client::timeouts;
use crate::error::{CallError, Effect};
use crate::plan::CALL_ENTRIES;
use crate::queues::Queues;

const BACKOFF: Backoff =
    Backoff { first: Duration::from_millis(100), cap: Duration::from_secs(5), max_attempts: u32::MAX };
/// Between two calls that brought nothing, where they do not wait by themselves.
const PAUSE: Duration = Duration::from_millis(200);

#[derive(Debug)]
pub(crate) struct Polls {
    queues: Queues,
    topic: TopicName,
    running: JoinSet<Polled>,
    /// Messages that the running calls may bring.
    expected: usize,
    /// Calls that are worth making at once.
    worthwhile: usize,
    /// Somebody waits, and there is nothing for them.
    pub(crate) wanted: bool,
    failures: u32,
    not_before: Instant,
    /// Calls whose answers were lost: asked under the same name, SQS gives the same answer.
    unanswered: Vec<CallName>,
}

#[derive(Debug)]
pub(crate) struct Polled {
    pub(crate) asked: Instant,
    most: usize,
    name: Option<CallName>,
    pub(crate) result: Result<Vec<Stored>, CallError>,
}

#[derive(Debug, Clone)]
struct CallName {
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

    /// When to look again whether to call; `None` if only an event can change that.
    pub(crate) fn wake_at(&self) -> Option<Instant> {
        let pausing = self.wanted && self.running.is_empty() && self.not_before > Instant::now();
        pausing.then_some(self.not_before)
    }

    /// Makes the calls that are worth making, with `held` and `ready` messages at hand.
    pub(crate) fn start(&mut self, held: usize, ready: usize) {
        let now = Instant::now();
        while now >= self.not_before && self.running.len() < self.worthwhile {
            let wanted = self.wanted && self.running.is_empty();
            let ahead = self.worthwhile > 1 && ready + self.expected < self.worthwhile * CALL_ENTRIES;
            let room = self.queues.options.in_flight.saturating_sub(held + self.expected);
            let most = room.min(CALL_ENTRIES);
            if most == 0 || !(wanted || ahead) {
                return;
            }
            self.expected += most;
            let name = self.queues.options.fifo.then(|| self.name(now));
            self.running.spawn(poll(self.queues.clone(), self.topic.clone(), most, name));
        }
    }

    /// The next call that ended. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Option<Polled> {
        loop {
            match self.running.join_next().await? {
                Ok(polled) => {
                    self.expected = self.expected.saturating_sub(polled.most);
                    self.learn(&polled);
                    return Some(polled);
                }
                // Only a runtime that ends takes a task away.
                Err(error) => tracing::warn!(%error, topic = %self.topic, "a call for messages ended"),
            }
        }
    }

    fn learn(&mut self, polled: &Polled) {
        let now = Instant::now();
        match &polled.result {
            Ok(messages) => {
                if self.failures > 0 {
                    tracing::info!(topic = %self.topic, failures = self.failures, "messages can be received again");
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
            Err(trouble) => {
                self.failures = self.failures.saturating_add(1);
                self.worthwhile = 1;
                let delay = BACKOFF.delay_after(self.failures, random()).unwrap_or(BACKOFF.cap);
                self.not_before = now + delay;
                self.wanted = true;
                if trouble.effect != Effect::Permanent {
                    self.unanswered.extend(polled.name.clone());
                }
                if trouble.is_missing() {
                    self.queues.forget(&self.topic);
                }
                tracing::warn!(%trouble, topic = %self.topic, failures = self.failures, ?delay, "cannot receive; trying again");
            }
        }
    }

    /// The name of the next call: that of one whose answer was lost, while it can still be given again.
    fn name(&mut self, now: Instant) -> CallName {
        let visibility = self.queues.options.visibility;
        self.unanswered.retain(|lost| now.duration_since(lost.first_used) < visibility);
        let new = || CallName { text: MessageId::new().to_string(), first_used: now };
        self.unanswered.pop().unwrap_or_else(new)
    }
}

async fn poll(queues: Queues, topic: TopicName, most: usize, name: Option<CallName>) -> Polled {
    let asked = Instant::now();
    let result = receive(&queues, &topic, most, name.as_ref()).await;
    Polled { asked, most, name, result }
}

async fn receive(
    queues: &Queues,
    topic: &TopicName,
    most: usize,
    name: Option<&CallName>,
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
        .set_receive_request_attempt_id(name.map(|name| name.text.clone()));
    let patient = ConfigBuilder::default().timeout_config(timeouts(options, options.wait + options.timeout));
    Ok(call.customize().config_override(patient).send().await?.messages.unwrap_or_default())
}

/// So that members who were all disturbed at once do not come back all at once.
fn random() -> f64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    f64::from(now.subsec_nanos() % 1_000) / 1_000.0
}
