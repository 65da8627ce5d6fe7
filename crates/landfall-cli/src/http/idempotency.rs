//! Retries of senders: the id that a sender gave to its message, and what makes two messages equal.

use axum::http::HeaderMap;
use landfall::{Fingerprint, Message, MessageId};
use ring::digest;

use super::problem::Problem;

const HEADER: &str = "idempotency-key";

/// The most characters of an id that a sender chooses.
const MAX_CHARACTERS: usize = 255;

/// Returns the id that the sender gave, in the field `id` or the header `Idempotency-Key`. Refuses two different ones.
pub(super) fn message_id(field: Option<&str>, headers: &HeaderMap) -> Result<Option<MessageId>, Problem> {
    let field = field.map(|text| parse("the field id", text)).transpose()?;
    let header = header(headers)?.map(|text| parse("the header Idempotency-Key", text)).transpose()?;
    match (field, header) {
        (Some(field), Some(header)) if field != header => Err(Problem::two_ids()),
        (field, header) => Ok(field.or(header)),
    }
}

fn header(headers: &HeaderMap) -> Result<Option<&str>, Problem> {
    let refused = |why: &str| Problem::invalid(format!("the header Idempotency-Key {why}"));
    let mut values = headers.get_all(HEADER).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(refused("is repeated"));
    }
    let text = value.to_str().map_err(|_| refused("contains characters other than ASCII"))?;
    // Quoted, it is a string of RFC 8941, as the IETF's draft of this header writes it.
    Ok(Some(text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text)))
}

/// A UUID is the message id itself. Of any other text the id is derived, so that it is the same for every retry.
fn parse(what: &str, text: &str) -> Result<MessageId, Problem> {
    sender_id(text).map_err(|why| Problem::invalid(format!("{what} is invalid: it {why}")))
}

/// Returns the message id of an id that a sender chose. The error is the end of a sentence.
pub(crate) fn sender_id(text: &str) -> Result<MessageId, String> {
    if text.is_empty() {
        return Err("is empty".into());
    }
    if text.chars().count() > MAX_CHARACTERS {
        return Err(format!("has more than {MAX_CHARACTERS} characters"));
    }
    if text.chars().any(char::is_control) {
        return Err("contains control characters".into());
    }
    Ok(text.parse().unwrap_or_else(|_| MessageId::from_business("Idempotency-Key", text)))
}

/// Hashes everything of a message but its id and its time, which differs for every retry. The payload counts byte for
/// byte. Stored fingerprints are compared with this, so it must not change between releases.
pub(super) fn fingerprint(message: &Message) -> Fingerprint {
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
    use landfall::{Key, Kind, Mode, TopicName};

    use super::*;

    const UUID: &str = "0190d2a7-6a4e-7bbb-8a6d-3c1f0a9b1c2d";

    fn headers(values: &[&str]) -> HeaderMap {
        values.iter().map(|value| (HEADER.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn field_and_header_are_the_same_id() {
        let id = |field, values: &[&str]| message_id(field, &headers(values)).unwrap();
        assert_eq!(id(None, &[]), None);
        assert_eq!(id(Some(UUID), &[]).unwrap().to_string(), UUID);
        assert_eq!(id(Some(UUID), &[]), id(None, &[&UUID.to_uppercase()]));
        assert_eq!(id(Some("order-7"), &["order-7"]), id(None, &["\"order-7\""]));
        assert_ne!(id(Some("order-7"), &[]), id(Some("order-8"), &[]));
    }

    #[test]
    fn invalid_or_different_ids_are_refused() {
        let long = "x".repeat(MAX_CHARACTERS + 1);
        for (field, values, word) in [
            (Some("a"), &["b"][..], "differ"),
            (Some(""), &[], "the field id is invalid: it is empty"),
            (Some("a\tb"), &[], "control characters"),
            (Some(long.as_str()), &[], "more than 255 characters"),
            (None, &["\"\""], "the header Idempotency-Key is invalid: it is empty"),
            (None, &["a", "a"], "is repeated"),
            (None, &["\u{e4}"], "other than ASCII"),
        ] {
            let refusal = format!("{:?}", message_id(field, &headers(values)).unwrap_err());
            assert!(refusal.contains(word), "{refusal}");
        }
    }

    #[test]
    fn fingerprint_covers_everything_but_id_and_time() {
        let message = || Message::new(TopicName::new("orders").unwrap(), "1");
        let known = fingerprint(&message());
        assert_eq!(known, fingerprint(&message()), "id or time count");
        let mut others = vec![
            Message::new(TopicName::new("order").unwrap(), "s1"),
            Message::new(TopicName::new("orders").unwrap(), "1 "),
            message().with_key(Key::new("1").unwrap()),
            message().with_sequence(1),
            message().with_mode(Mode::AtLeastOnce),
        ];
        others.push(Message { kind: Kind::new("Placed").unwrap(), ..message() });
        for (name, value) in [("a", "bc"), ("ab", "c")] {
            let mut other = message();
            other.headers.insert(name, value).unwrap();
            others.push(other);
        }
        let mut prints: Vec<_> = others.iter().map(fingerprint).chain([known]).collect();
        prints.sort_unstable();
        prints.dedup();
        assert_eq!(prints.len(), others.len() + 1, "two different messages have the same fingerprint");
    }
}
