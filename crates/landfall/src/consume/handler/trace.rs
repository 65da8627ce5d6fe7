//! The sender's trace: W3C's `traceparent` header.

use landfall_core::Message;

const TRACEPARENT: &str = "traceparent";

/// The trace and span that a message was sent in.
///
/// ```
/// use landfall::consume::Trace;
/// use landfall::prelude::*;
///
/// # fn main() -> landfall::Result<()> {
/// let mut message = Message::new(TopicName::new("orders")?, "");
/// message.headers.insert("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")?;
/// assert!(Trace::from_message(&message).is_some_and(|trace| trace.is_sampled));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trace<'a> {
    /// 32 hexadecimal digits.
    pub trace_id: &'a str,
    /// 16 hexadecimal digits: the sender's span.
    pub parent_id: &'a str,
    pub is_sampled: bool,
}

impl<'a> Trace<'a> {
    /// Returns `None` if the message has no `traceparent`, or one that the standard says to ignore.
    pub fn from_message(message: &'a Message) -> Option<Self> {
        Self::parse(message.headers.get(TRACEPARENT)?)
    }

    fn parse(text: &'a str) -> Option<Self> {
        let mut parts = text.split('-');
        let mut part = |length: usize| {
            let part = parts.next()?;
            let is_hex = part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
            (part.len() == length && is_hex).then_some(part)
        };
        let (version, trace_id, parent_id, flags) = (part(2)?, part(32)?, part(16)?, part(2)?);
        let is_zero = |id: &str| id.bytes().all(|byte| byte == b'0');
        // A later version may append fields; version 00 has none.
        let has_more = parts.next().is_some();
        if version == "ff" || (version == "00" && has_more) || is_zero(trace_id) || is_zero(parent_id) {
            return None;
        }
        let is_sampled = u8::from_str_radix(flags, 16).ok()? & 1 == 1;
        Some(Self { trace_id, parent_id, is_sampled })
    }
}

/// The span in which a handler runs; its fields connect the handler's logs to the sender's trace.
pub(super) fn span(message: &Message, attempt: u32) -> tracing::Span {
    let trace = Trace::from_message(message);
    tracing::info_span!(
        "handle",
        message_id = %message.id,
        topic = %message.topic,
        key = message.key.as_ref().map(|key| key.as_str()),
        attempt,
        trace_id = trace.map(|trace| trace.trace_id),
        parent_id = trace.map(|trace| trace.parent_id),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traceparent_is_parsed_as_the_standard_says() {
        let (id, parent) = ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7");
        let sampled = format!("00-{id}-{parent}-01");
        assert_eq!(Trace::parse(&sampled), Some(Trace { trace_id: id, parent_id: parent, is_sampled: true }));
        assert!(!Trace::parse(&format!("00-{id}-{parent}-00")).unwrap().is_sampled);
        assert!(Trace::parse(&format!("cc-{id}-{parent}-01-later")).is_some());
        for wrong in [
            String::new(),
            format!("ff-{id}-{parent}-01"),
            format!("00-{id}-{parent}-01-more"),
            format!("00-{}-{parent}-01", "0".repeat(32)),
            format!("00-{id}-{}-01", "0".repeat(16)),
            format!("00-{}-{parent}-01", id.to_uppercase()),
            format!("00-{id}-{parent}"),
        ] {
            assert_eq!(Trace::parse(&wrong), None, "{wrong}");
        }
    }
}
