//! Where a message comes from, as far as tracing is concerned: W3C's `traceparent`.

use landfall_core::Message;

/// The header that carries it.
const TRACEPARENT: &str = "traceparent";

/// The trace that a message belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trace<'a> {
    /// 32 hexadecimal digits.
    pub trace_id: &'a str,
    /// 16 hexadecimal digits: the sender's span.
    pub parent_id: &'a str,
    pub is_sampled: bool,
}

impl<'a> Trace<'a> {
    /// `None` if the message has no `traceparent`, or one that W3C's rules tell us to ignore.
    pub fn of(message: &'a Message) -> Option<Self> {
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
        let is_nothing = |id: &str| id.bytes().all(|byte| byte == b'0');
        // A later version may say more behind it; this one may not.
        let has_more = parts.next().is_some();
        if version == "ff" || (version == "00" && has_more) || is_nothing(trace_id) || is_nothing(parent_id) {
            return None;
        }
        let is_sampled = u8::from_str_radix(flags, 16).ok()? & 1 == 1;
        Some(Self { trace_id, parent_id, is_sampled })
    }
}

/// The span that a handler runs in; its fields tie what the handler logs to the sender's trace.
pub(super) fn span(message: &Message, attempt: u32) -> tracing::Span {
    let trace = Trace::of(message);
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
    fn a_traceparent_is_read_as_the_standard_says() {
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
