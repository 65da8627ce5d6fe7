//! What makes two half messages equal.

use landfall_core::{Fingerprint, HalfMessage};
use ring::digest;

/// Hashes everything of a half message but its id, its time and its immunity period, which may differ between retries.
/// The payload counts byte for byte.
///
/// Stored fingerprints are compared with this, so it must not change between releases.
pub fn fingerprint(half: &HalfMessage) -> Fingerprint {
    let HalfMessage { message, business_type, business_id, check_back, check_after: _ } = half;
    let mut hash = digest::Context::new(&digest::SHA256);
    let mut add = |part: Option<&[u8]>| {
        // The length makes the concatenation unambiguous.
        hash.update(&part.map_or(u64::MAX, |part| part.len() as u64).to_be_bytes());
        hash.update(part.unwrap_or_default());
    };
    let sequence = message.sequence.map(i64::to_be_bytes);
    add(Some(message.topic.as_str().as_bytes()));
    add(message.key.as_ref().map(|key| key.as_str().as_bytes()));
    add(sequence.as_ref().map(|sequence| &sequence[..]));
    add(Some(message.kind.as_str().as_bytes()));
    add(Some(message.mode.as_str().as_bytes()));
    add(Some(business_type.as_bytes()));
    add(Some(business_id.as_bytes()));
    for target in [&check_back.database, &check_back.http, &check_back.grpc] {
        add(target.as_deref().map(str::as_bytes));
    }
    let mut headers: Vec<(&str, &str)> = message.headers.iter().collect();
    headers.sort_unstable();
    for (name, value) in headers {
        add(Some(name.as_bytes()));
        add(Some(value.as_bytes()));
    }
    add(Some(&message.payload));
    let mut fingerprint = Fingerprint::default();
    fingerprint.copy_from_slice(hash.finish().as_ref());
    fingerprint
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use landfall_core::{CheckBack, Message, TopicName};

    use super::*;

    #[test]
    fn fingerprint_covers_message_business_and_targets() {
        let half = || HalfMessage {
            message: Message::new(TopicName::new("orders").unwrap(), "1"),
            business_type: "order".into(),
            business_id: "1".into(),
            check_back: CheckBack { http: Some("http://a/".into()), ..CheckBack::default() },
            check_after: Duration::ZERO,
        };
        let known = fingerprint(&half());
        let later = HalfMessage { check_after: Duration::from_secs(9), ..half() };
        assert_eq!(known, fingerprint(&later), "id, time or immunity count");
        let database = CheckBack { database: Some("http://a/".into()), ..CheckBack::default() };
        let others = [
            HalfMessage { message: Message::new(TopicName::new("orders").unwrap(), "2"), ..half() },
            HalfMessage { business_type: "orde".into(), business_id: "r1".into(), ..half() },
            HalfMessage { business_id: "2".into(), ..half() },
            HalfMessage { check_back: database, ..half() },
        ];
        let mut prints: Vec<_> = others.iter().map(fingerprint).chain([known]).collect();
        prints.sort_unstable();
        prints.dedup();
        assert_eq!(prints.len(), others.len() + 1, "two different half messages have the same fingerprint");
    }
}
