//! Retries of failed messages: how many attempts, how long between them, and where a message waits meanwhile.

mod attempt_count;
mod lane;
mod pause;
mod record;
mod topic;
mod topic_reader;

pub(crate) use attempt_count::{AttemptCount, MAX_RETRY_AFTER};
pub use lane::RetryLane;
pub(crate) use lane::{RetryRouter, Route};
pub(crate) use pause::{DatabaseBackoff, sleep_unless_stopped};
pub(crate) use record::RetryRecord;
pub(crate) use topic::RetryTopic;
pub(crate) use topic_reader::RetryTopicReader;
