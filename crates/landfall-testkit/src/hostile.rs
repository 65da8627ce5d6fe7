//! Messages that another program publishes, with headers that Landfall never writes.
//!
//! Each adapter publishes them with the client of its broker. A subscriber must deliver each of them or report it as
//! unreadable, and must deliver what follows.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use landfall_core::{Broker, MessageId};

use crate::eventually;
use crate::traffic::{keyed, orders, stock};

/// The limit of the whole run: clients that reconnect wait for their timeouts.
const TIMEOUT: Duration = Duration::from_secs(180);

/// One message. Names and values are bytes, because most brokers carry any.
#[derive(Debug, Clone)]
pub struct HostileMessage {
    pub name: &'static str,
    pub headers: Vec<(Vec<u8>, Vec<u8>)>,
    /// `None` for a message without a body.
    pub payload: Option<Vec<u8>>,
    pub reading: Reading,
    /// The ids under which it may be delivered.
    ids: Vec<MessageId>,
}

/// What a subscriber makes of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reading {
    Delivered,
    Unreadable,
    /// Depends on what the broker and its client do with such a header.
    Either,
}

use Reading::{Delivered, Either, Unreadable};

/// A valid event with a new id, and `headers` after its own.
fn event(name: &'static str, reading: Reading, headers: &[(&[u8], &[u8])]) -> HostileMessage {
    let id = MessageId::new();
    let own = [(&b"ce_specversion"[..], &b"1.0"[..]), (b"ce_id", id.to_string().as_bytes())]
        .map(|(name, value)| (name.to_vec(), value.to_vec()));
    let headers = headers.iter().map(|(name, value)| (name.to_vec(), value.to_vec()));
    HostileMessage {
        name,
        headers: own.into_iter().chain(headers).collect(),
        payload: Some(name.into()),
        reading,
        ids: vec![id],
    }
}

/// A message with only these headers.
fn bare(name: &'static str, headers: &[(&[u8], &[u8])]) -> HostileMessage {
    let headers = headers.iter().map(|(name, value)| (name.to_vec(), value.to_vec())).collect();
    HostileMessage { name, headers, payload: Some(name.into()), reading: Unreadable, ids: Vec::new() }
}

fn ids_and_times() -> Vec<HostileMessage> {
    let second = MessageId::new();
    let mut two_ids = event("two ids", Either, &[(b"ce_id", second.to_string().as_bytes())]);
    two_ids.ids.push(second);
    let mut foreign_id = bare("id that is no UUID", &[(b"ce_id", b"7")]);
    (foreign_id.reading, foreign_id.ids) = (Delivered, vec![MessageId::from_business("", "7")]);
    vec![
        bare("no headers", &[]),
        foreign_id,
        bare("empty id", &[(b"ce_id", b"")]),
        bare("id that is not UTF-8", &[(b"ce_id", b"\xff\xfe")]),
        bare("id in capitals", &[(b"CE_ID", MessageId::new().to_string().as_bytes())]),
        two_ids,
        event("no time", Unreadable, &[(b"ce_time", b"yesterday")]),
        event("empty time", Either, &[(b"ce_time", b"")]),
        event("time before 1970", Either, &[(b"ce_time", b"1800-01-01T00:00:00Z")]),
        event("latest time", Delivered, &[(b"ce_time", b"9999-12-31T23:59:59.999Z")]),
        event("time of a month 13", Unreadable, &[(b"ce_time", b"2026-13-01T00:00:00Z")]),
    ]
}

fn numbers_and_names() -> Vec<HostileMessage> {
    vec![
        event("sequence in words", Unreadable, &[(b"ce_sequence", b"seven")]),
        event("negative sequence", Unreadable, &[(b"ce_sequence", b"-1")]),
        event("sequence beyond 64 bits", Unreadable, &[(b"ce_sequence", b"9223372036854775808")]),
        event("highest sequence", Delivered, &[(b"ce_sequence", b"9223372036854775807")]),
        event("unknown mode", Unreadable, &[(b"landfall-mode", b"thrice")]),
        event("long kind", Unreadable, &[(b"ce_type", &[b'x'; 6000])]),
        event("kind with a control character", Unreadable, &[(b"ce_type", b"a\x01b")]),
        event("long key", Unreadable, &[(b"ce_partitionkey", &[b'k'; 600])]),
        event("key with a control character", Unreadable, &[(b"ce_partitionkey", b"a\x7fb")]),
        event("key that is not UTF-8", Unreadable, &[(b"ce_partitionkey", b"\xff\xfe")]),
        event("key of another kind", Delivered, &[(b"ce_partitionkey", b"'; DROP TABLE landfall_inbox; --")]),
    ]
}

fn system_headers() -> Vec<HostileMessage> {
    vec![
        // On a main topic they mean nothing.
        event(
            "system headers with garbage",
            Delivered,
            &[
                (b"landfall-attempts", b"many"),
                (b"landfall-retry-at", b"never"),
                (b"landfall-group", b"another"),
                (b"landfall-original-offset", b"-1"),
                (b"landfall-original-partition", b"99999999999"),
                (b"landfall-failed-at", b"0"),
            ],
        ),
        event("attempts beyond 64 bits", Delivered, &[(b"landfall-attempts", b"99999999999999999999")]),
        event("unknown header of Landfall", Delivered, &[(b"landfall-later", b"x")]),
        event("unknown header of CloudEvents", Delivered, &[(b"ce_later", b"x")]),
        event("Landfall in capitals", Unreadable, &[(b"Landfall-Attempts", b"1")]),
        event("CloudEvents over HTTP", Unreadable, &[(b"ce-id", b"1")]),
        // SQS reads these two.
        event("other headers that are no JSON", Either, &[(b"landfall-headers", b"[1")]),
        event("unknown encoding", Either, &[(b"landfall-encoding", b"rot13")]),
    ]
}

fn other_headers() -> Vec<HostileMessage> {
    let names: Vec<Vec<u8>> = (0..200).map(|number| format!("h{number}").into_bytes()).collect();
    let many: Vec<(&[u8], &[u8])> = names.iter().map(|name| (name.as_slice(), &b"v"[..])).collect();
    vec![
        event("200 headers", Delivered, &many),
        event("long value", Unreadable, &[(b"x", &[b'v'; 6000])]),
        event("empty value", Delivered, &[(b"x", b"")]),
        event("value that is not UTF-8", Either, &[(b"x", b"\xc3\x28")]),
        event("value with a line break", Unreadable, &[(b"x", b"a\r\nce_time: never")]),
        event("value with NUL", Unreadable, &[(b"x", b"a\0b")]),
        event("name twice", Delivered, &[(b"x", b"1"), (b"x", b"2")]),
        event("name with a space", Unreadable, &[(b"a b", b"x")]),
        // On NATS the name ends at the colon.
        event("name with a colon", Either, &[(b"a:b", b"x")]),
        event("long name", Unreadable, &[(&[b'n'; 200], b"x")]),
        event("empty name", Unreadable, &[(b"", b"x")]),
        event("name in other letters", Unreadable, &[("größe".as_bytes(), b"x")]),
        event("name that is not UTF-8", Unreadable, &[(b"\xff\xfe", b"x")]),
        HostileMessage { payload: Some(Vec::new()), ..event("empty body", Delivered, &[]) },
        HostileMessage { payload: None, ..event("no body", Delivered, &[]) },
    ]
}

/// Publishes each hostile message with `publish`, and a valid one after each, to the topic `orders`. Asserts that the
/// group `stock` receives all of them, each as it should be read.
///
/// `publish` returns `false` if the client or the broker cannot carry such a message.
///
/// # Panics
///
/// If a message is missing, is read differently, or blocks one that follows it.
pub async fn assert_hostile_messages_block_nothing(
    broker: Arc<dyn Broker>,
    mut publish: impl AsyncFnMut(&HostileMessage) -> bool,
) {
    let mut subscriber = broker.subscribe(&orders(), &stock()).await.unwrap();
    let (mut sent, mut followers) = (Vec::new(), BTreeSet::new());
    let messages = [ids_and_times(), numbers_and_names(), system_headers(), other_headers()].concat();
    for (number, message) in (0..).zip(messages) {
        if publish(&message).await {
            sent.push(message);
        }
        let follower = keyed("follower", number);
        // A client that lost its connection refuses it for a moment.
        let accepted = async || broker.publisher().publish(std::slice::from_ref(&follower)).await[0].is_accepted();
        eventually(TIMEOUT, "the broker accepts the next message", accepted).await;
        followers.insert(follower.id);
    }
    assert!(sent.len() > 20, "only {} could be published", sent.len());

    let (mut delivered, mut unreadable) = (BTreeSet::new(), BTreeSet::new());
    let mut unread_payloads = BTreeSet::new();
    let receive = async {
        while !followers.is_empty() || delivered.len() + unreadable.len() < sent.len() {
            let (message, position, acknowledge) = subscriber.next().await.unwrap().unwrap().into_parts();
            match message {
                Ok(message) if followers.remove(&message.id) => {}
                Ok(message) => {
                    let hostile = sent.iter().find(|sent| sent.ids.contains(&message.id));
                    delivered.extend(hostile.map(|hostile| hostile.name));
                }
                Err(error) => {
                    assert!(error.to_string().len() < 1000, "{} bytes of error", error.to_string().len());
                    unread_payloads.extend(error.payload().map(|payload| payload.to_vec()));
                    unreadable.insert(position);
                }
            }
            // Fails if the client lost its connection; the message is then delivered again.
            let _ = acknowledge.ack().await;
        }
    };
    let received = tokio::time::timeout(TIMEOUT, receive).await;
    assert!(received.is_ok(), "missing: {followers:?}; delivered {delivered:?}, unreadable {unreadable:?}");
    for HostileMessage { name, reading, .. } in &sent {
        let found = if delivered.contains(name) { Delivered } else { Unreadable };
        assert!(*reading == Either || *reading == found, "{name}: {found:?}");
    }
    assert_eq!(delivered.len() + unreadable.len(), sent.len(), "each is read once");
    let has_lost_payload = |message: &&HostileMessage| {
        let payload = message.payload.as_deref().unwrap_or_default();
        message.reading == Unreadable && !unread_payloads.contains(payload)
    };
    let lost: Vec<_> = sent.iter().filter(has_lost_payload).map(|message| message.name).collect();
    assert!(lost.is_empty(), "the payload is lost of {lost:?}");
    subscriber.close().await.unwrap();
}
