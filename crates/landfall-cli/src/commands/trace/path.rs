//! The path of one message, put together from what each part knows of it. Pure.

use std::fmt;

use landfall::{
    DeadLetter, DeadLetterStatus, GroupName, HalfMessageRow, HalfState, Key, Message, MessageId, OutboxRow,
    OutboxState, Position, RetryingDelivery, Timestamp, TopicName,
};
use serde::Serialize;

/// Everything that is known about a message.
pub(super) struct Path {
    pub(super) id: MessageId,
    pub(super) topic: Option<TopicName>,
    pub(super) key: Option<Key>,
    steps: Vec<Step>,
    /// When a half message was decided. Its own time is earlier, and it was in no outbox and no broker before.
    decided_at: Option<Timestamp>,
    /// Where it is now, apart from the groups that handled it.
    now: Vec<String>,
    /// Groups with a dead letter or a failing delivery: their inbox row does not mean that they handled it.
    failed_in: Vec<GroupName>,
    positions: Vec<Position>,
    handled_by: Vec<GroupName>,
}

/// Something that happened to the message, or is due.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Step {
    pub(super) time: Timestamp,
    pub(super) what: What,
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<GroupName>,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
}

/// In the order in which they happen, for steps with the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum What {
    Prepared,
    Decided,
    Enqueued,
    Stored,
    Published,
    FirstFailure,
    LastAttempt,
    Handled,
    NextAttempt,
}

/// The object that `--json` prints.
#[derive(Serialize)]
pub(super) struct Report<'a> {
    id: MessageId,
    topic: Option<&'a TopicName>,
    key: Option<&'a Key>,
    pub(super) now: Vec<String>,
    pub(super) steps: Vec<Step>,
}

impl Path {
    pub(super) fn new(id: MessageId) -> Self {
        Self {
            id,
            topic: None,
            key: None,
            steps: Vec::new(),
            decided_at: None,
            now: Vec::new(),
            failed_in: Vec::new(),
            positions: Vec::new(),
            handled_by: Vec::new(),
        }
    }

    pub(super) fn is_known(&self) -> bool {
        !self.steps.is_empty()
    }

    /// Returns the time of its first step; now, if there is none.
    pub(super) fn first_seen(&self) -> Timestamp {
        self.steps.iter().map(|step| step.time).min().unwrap_or_else(Timestamp::now)
    }

    pub(super) fn half(&mut self, row: &HalfMessageRow) {
        if let Some(topic) = &row.topic {
            self.named(topic, row.key.as_deref().and_then(|key| Key::new(key).ok()).as_ref());
            self.add(row.prepared_at, What::Prepared, None, None);
        }
        self.decided_at = row.decided_at;
        if let Some(at) = row.decided_at {
            let by = row.decided_by.as_deref().unwrap_or("unknown");
            self.add(at, What::Decided, None, Some(format!("{} by {by}", row.state.as_str())));
        }
        match row.state {
            HalfState::Prepared => self.now.push("a half message without a verdict".into()),
            HalfState::Parked => self.now.push("a half message that is parked for a person".into()),
            HalfState::RolledBack => self.now.push("a half message that was rolled back; it is never published".into()),
            HalfState::Committed if row.topic.is_none() => {
                self.now.push("a half message that was committed and never prepared".into());
            }
            // From here on it is a message like any other.
            HalfState::Committed => {}
        }
    }

    pub(super) fn in_outbox(&mut self, row: &OutboxRow) {
        self.named(&row.topic, row.key.as_ref());
        self.add(self.not_before_decision(row.created_at), What::Enqueued, None, Some(format!("row {}", row.row)));
        if let Some(sent_at) = row.sent_at {
            self.add(sent_at, What::Published, None, None);
        }
        let error = || row.last_error.clone().unwrap_or_else(|| "unknown error".to_owned());
        match row.state {
            OutboxState::Pending => self.now.push("pending in the outbox".into()),
            OutboxState::Waiting => self.now.push("in the outbox, behind a failed message of its key".into()),
            OutboxState::Retrying => {
                self.now.push(format!("in the outbox after {} failed attempts: {}", row.attempts, error()));
                if let Some(next) = row.next_attempt {
                    self.add(next, What::NextAttempt, None, Some("publish".into()));
                }
            }
            // The dead letter says more, and the broker or a group has a sent message.
            OutboxState::Parked | OutboxState::Sent => {}
        }
    }

    pub(super) fn stored(&mut self, message: &Message, position: Position) {
        self.named(&message.topic, message.key.as_ref());
        let Position { partition, offset } = position;
        let detail = format!("partition {partition}, offset {offset}");
        self.add(self.not_before_decision(message.time), What::Stored, None, Some(detail));
        self.positions.push(position);
    }

    pub(super) fn retrying(&mut self, delivery: &RetryingDelivery) {
        let RetryingDelivery { group, attempts, error_code, error, .. } = delivery;
        self.named(&delivery.topic, delivery.key.as_ref());
        self.add(delivery.first_failed, What::FirstFailure, Some(group), None);
        let detail = format!("attempt {attempts}: {error_code}: {error}");
        self.add(delivery.last_attempt, What::LastAttempt, Some(group), Some(detail));
        self.add(delivery.next_attempt, What::NextAttempt, Some(group), None);
        self.now.push(format!("retried in group {group} after {attempts} failed attempts: {error_code}: {error}"));
        self.failed_in.push(group.clone());
    }

    pub(super) fn dead_letter(&mut self, letter: &DeadLetter) {
        let DeadLetter { id, group, attempts, error_code, error, status, .. } = letter;
        self.named(&letter.topic, letter.key.as_ref());
        let group = group.as_ref();
        self.add(
            letter.first_seen,
            What::FirstFailure,
            group,
            Some(format!("dead letter {id}: {error_code}: {error}")),
        );
        if letter.last_attempt != letter.first_seen {
            self.add(letter.last_attempt, What::LastAttempt, group, Some(format!("attempt {attempts}")));
        }
        if let Some(next) = letter.retry_at {
            self.add(next, What::NextAttempt, group, None);
        }
        let place = group.map_or_else(|| "of the relay".to_owned(), |group| format!("of group {group}"));
        let now = match status {
            DeadLetterStatus::Done => return,
            DeadLetterStatus::Parked => format!("parked, dead letter {id} {place}: {error_code}: {error}"),
            DeadLetterStatus::Waiting => format!("dead letter {id} {place}, behind an open one of its key"),
            status => format!("dead letter {id} {place}, {}: {error_code}: {error}", status.as_str()),
        };
        self.now.push(now);
        self.failed_in.extend(group.cloned());
    }

    /// Adds the groups whose inbox has the message.
    pub(super) fn admitted(&mut self, groups: Vec<(GroupName, Timestamp)>) {
        for (group, time) in groups {
            if !self.failed_in.contains(&group) {
                self.add(time, What::Handled, Some(&group), None);
                self.handled_by.push(group);
            }
        }
    }

    pub(super) fn report(&self) -> Report<'_> {
        let mut steps = self.steps.clone();
        steps.sort_by_key(|step| (step.time, step.what));
        let mut now = self.now.clone();
        now.extend(self.handled_by.iter().map(|group| format!("handled by group {group}")));
        if now.is_empty() {
            now.push(match self.positions.last() {
                Some(Position { partition, offset }) => {
                    format!("in the broker at partition {partition}, offset {offset}; no group of this database has it")
                }
                None => "published; no group of this database has it".into(),
            });
        }
        Report { id: self.id, topic: self.topic.as_ref(), key: self.key.as_ref(), now, steps }
    }

    fn not_before_decision(&self, time: Timestamp) -> Timestamp {
        self.decided_at.map_or(time, |decided| decided.max(time))
    }

    fn named(&mut self, topic: &TopicName, key: Option<&Key>) {
        self.topic.get_or_insert_with(|| topic.clone());
        if self.key.is_none() {
            self.key = key.cloned();
        }
    }

    fn add(&mut self, time: Timestamp, what: What, group: Option<&GroupName>, detail: Option<String>) {
        self.steps.push(Step { time, what, group: group.cloned(), detail });
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.what {
            What::Prepared => "prepared as a half message",
            What::Decided => "decided",
            What::Enqueued => "enqueued in the outbox",
            What::Stored => "stored in the broker",
            What::Published => "acknowledged by the broker",
            What::FirstFailure => "failed for the first time",
            What::LastAttempt => "attempted last",
            What::Handled => "handled",
            What::NextAttempt => "next attempt",
        })?;
        if let Some(group) = &self.group {
            write!(f, " in group {group}")?;
        }
        match &self.detail {
            Some(detail) => write!(f, ": {detail}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(name: &str) -> GroupName {
        GroupName::new(name).unwrap()
    }

    fn failing(id: MessageId) -> RetryingDelivery {
        RetryingDelivery {
            message_id: id,
            topic: TopicName::new("orders").unwrap(),
            group: group("mailer"),
            key: None,
            attempts: 3,
            error_code: "HTTP_500".into(),
            error: "down".into(),
            first_failed: Timestamp::from_millis(10),
            last_attempt: Timestamp::from_millis(30),
            next_attempt: Timestamp::from_millis(40),
        }
    }

    #[test]
    fn group_with_a_failing_delivery_has_not_handled_it() {
        let mut path = Path::new(MessageId::new());
        path.retrying(&failing(path.id));
        path.admitted(vec![
            (group("stock"), Timestamp::from_millis(20)),
            (group("mailer"), Timestamp::from_millis(25)),
        ]);
        let report = path.report();
        assert_eq!(
            report.now,
            ["retried in group mailer after 3 failed attempts: HTTP_500: down", "handled by group stock"]
        );
        use What::{FirstFailure, Handled, LastAttempt, NextAttempt};
        assert_eq!(
            report.steps.iter().map(|step| step.what).collect::<Vec<_>>(),
            [FirstFailure, Handled, LastAttempt, NextAttempt]
        );
    }

    #[test]
    fn stored_message_without_a_group_is_in_the_broker() {
        let message = Message::new(TopicName::new("orders").unwrap(), "");
        let mut path = Path::new(message.id);
        assert!(!path.is_known());
        path.stored(&message, Position { partition: 3, offset: 17 });
        assert_eq!(path.report().now, ["in the broker at partition 3, offset 17; no group of this database has it"]);
    }
}
