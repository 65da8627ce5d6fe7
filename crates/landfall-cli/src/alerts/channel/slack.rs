//! Slack: blocks, sent to an incoming webhook.

use std::time::Duration;

use hyper::Uri;
use landfall::{NoticeBatch, NoticeBody};
use serde_json::{Value, json};

use super::text::{Links, cut, one_line, title, word};
use super::{Outgoing, Pace};

/// Slack accepts one message a second, and at most 50 blocks in one.
pub(super) const PACE: Pace = Pace { at_most: 20, spacing: Duration::from_secs(1) };

/// The most characters of a section. Slack refuses a message with a longer one.
const SECTION: usize = 3000;
/// The most characters of a summary before it is escaped, which makes a character at most five.
const SUMMARY: usize = 400;
const SUBJECT: usize = 100;

pub(super) fn render(batch: &NoticeBatch, url: &Uri, links: &Links) -> Outgoing {
    let mut blocks: Vec<Value> = batch.notices.iter().map(|notice| section(notice, links)).collect();
    let note = format!("delivery {}", batch.id);
    blocks.push(json!({ "type": "context", "elements": [{ "type": "mrkdwn", "text": note }] }));
    let body = json!({ "text": title(&batch.notices), "blocks": blocks }).to_string();
    Outgoing { url: url.clone(), headers: Vec::new(), body }
}

fn section(notice: &NoticeBody, links: &Links) -> Value {
    let subject = escaped(&cut(&one_line(&landfall::subject(&notice.labels)), SUBJECT));
    let summary = escaped(&cut(&one_line(&notice.summary), SUMMARY));
    let mut text = format!("*{}* {} {subject}\n{summary}", word(notice.kind), notice.rule);
    if let Some(link) = links.sample(notice) {
        text.push_str(&format!("\n<{link}|dead letter {}>", notice.sample.unwrap_or_default()));
    }
    json!({ "type": "section", "text": { "type": "mrkdwn", "text": cut(&text, SECTION) } })
}

/// Escapes what Slack reads as markup of links and mentions.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use landfall::{Alert, AlertLabels, MessageId, NoticeKind, Timestamp};

    use super::*;

    #[test]
    fn hostile_text_stays_within_a_section_and_is_no_markup() {
        let labels: AlertLabels = [("key".to_owned(), "<!channel>&\n".repeat(60))].into();
        let alert = Alert {
            labels,
            summary: "<".repeat(5000),
            sample: Some(17),
            ..Alert::of_rule("key-parked", Timestamp::from_millis(0))
        };
        let notices = vec![NoticeBody::new(&alert, NoticeKind::Firing)];
        let (id, created_at) = (MessageId::new(), Timestamp::from_millis(0));
        let batch = NoticeBatch { id, channel: "ops".into(), attempt: 1, created_at, notices };
        let outgoing = render(&batch, &"https://a.example/x".parse().unwrap(), &Links::new("https://l.example"));
        let body: Value = serde_json::from_str(&outgoing.body).unwrap();
        let text = body["blocks"][0]["text"]["text"].as_str().unwrap();
        assert!(text.chars().count() <= SECTION && !text.contains("<!"), "{text}");
        assert!(text.ends_with("\n<https://l.example/console/messages/17|dead letter 17>"), "{text}");
        assert_eq!(body["text"], "Landfall: 1 firing");
    }
}
