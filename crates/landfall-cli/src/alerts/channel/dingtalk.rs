//! DingTalk: markdown, sent to a robot with a signature. The HTTP status is 200 even for a refusal; `errcode` decides.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::Uri;
use landfall::{NoticeBatch, NoticeBody, Timestamp};
use ring::hmac;
use serde::Deserialize;
use serde_json::json;

use super::text::{Links, cut, one_line, title, word};
use super::{Outgoing, Pace, Reply, Verdict, judge_status};
use crate::config::Secret;

/// A robot accepts 20 messages a minute, and after more of them none for ten minutes. This is 15 a minute.
pub(super) const PACE: Pace = Pace { at_most: 10, spacing: Duration::from_secs(4) };

/// How long a robot rests that was asked too often.
const BLOCKED: Duration = Duration::from_secs(600);

/// The most characters of a summary: ten of them fit into the 20,000 bytes of a message.
const SUMMARY: usize = 400;
const SUBJECT: usize = 100;

pub(super) fn render(
    batch: &NoticeBatch,
    url: &Uri,
    secret: Option<&Secret>,
    keyword: &str,
    links: &Links,
    now: Timestamp,
) -> Result<Outgoing, String> {
    let title = title(&batch.notices);
    let mut text = format!("### {title}\n");
    for notice in &batch.notices {
        text.push_str(&item(notice, links));
    }
    text.push_str(&format!("\n{} {}\n", escaped(keyword), batch.id));
    let body = json!({ "msgtype": "markdown", "markdown": { "title": title, "text": text } }).to_string();
    let url = match secret {
        Some(secret) => signed(url, secret, now.as_millis())?,
        None => url.clone(),
    };
    Ok(Outgoing { url, headers: Vec::new(), body })
}

fn item(notice: &NoticeBody, links: &Links) -> String {
    let subject = escaped(&cut(&one_line(&landfall::subject(&notice.labels)), SUBJECT));
    let summary = escaped(&cut(&one_line(&notice.summary), SUMMARY));
    let mut text = format!("\n- **{}** {} {subject}: {summary}", word(notice.kind), notice.rule);
    if let Some(link) = links.sample(notice) {
        text.push_str(&format!(" [dead letter {}]({link})", notice.sample.unwrap_or_default()));
    }
    text.push('\n');
    text
}

/// Escapes what markdown reads as links, images, emphasis and mentions.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '\\' | '`' | '*' | '[' | ']' | '(' | ')' | '#' | '!' | '|' => {
                escaped.push('\\');
                escaped.push(letter);
            }
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '@' => escaped.push('＠'),
            letter => escaped.push(letter),
        }
    }
    escaped
}

/// Adds the time in milliseconds and the signature to the query.
fn signed(url: &Uri, secret: &Secret, millis: i64) -> Result<Uri, String> {
    let secret = secret.expose();
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let signature = STANDARD.encode(hmac::sign(&key, format!("{millis}\n{secret}").as_bytes()).as_ref());
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.append_pair("timestamp", &millis.to_string()).append_pair("sign", &signature);
    let separator = if url.query().is_some() { '&' } else { '?' };
    let text = format!("{url}{separator}{}", query.finish());
    text.parse().map_err(|_| "the URL with its signature is not valid".to_owned())
}

#[derive(Deserialize)]
struct Answered {
    errcode: i64,
}

pub(super) fn judge(reply: &Reply<'_>) -> Verdict {
    if !(200..300).contains(&reply.status) {
        return judge_status(reply);
    }
    let shown = reply.shown.to_owned();
    let Ok(Answered { errcode }) = serde_json::from_slice(reply.body) else {
        return Verdict::Retry(format!("the answer has no errcode: {shown}"));
    };
    match errcode {
        0 => Verdict::Accepted,
        130_101 | 410_100 => Verdict::Wait(BLOCKED, format!("too many messages: {shown}")),
        310_000 => {
            let advice = "check the secret, the keyword and the addresses that the robot allows";
            Verdict::Refused(format!("the robot refuses the signature; {advice}: {shown}"))
        }
        // No such robot, group or message type; or a forbidden text.
        300_001 | 400_013 | 400_101 | 400_102 | 400_105 | 400_106 | 430_101..=430_104 => Verdict::Refused(shown),
        _ => Verdict::Retry(shown),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signature_is_that_of_the_documentation() {
        let secret = Secret::new("this is secret".into());
        let url = "https://oapi.dingtalk.example/robot/send?access_token=abc".parse().unwrap();
        let signed = signed(&url, &secret, 1_577_262_236_757).unwrap().to_string();
        // Computed with Python's hmac, base64 and urllib.
        let expected = "hmPWwU%2B7lVdm3ZZz0r9tSfx0L4Q26jWOZr9%2BGs6EZQM%3D";
        assert_eq!(signed, format!("{url}&timestamp=1577262236757&sign={expected}"));
    }

    #[test]
    fn errcode_decides() {
        let judge =
            |status, body: &str| judge(&Reply { status, retry_after: None, body: body.as_bytes(), shown: body });
        let accepted = r#"{"errcode":0,"errmsg":"ok"}"#;
        assert_eq!(judge(200, accepted), Verdict::Accepted);
        assert!(matches!(judge(200, r#"{"errcode":310000,"errmsg":"sign not match"}"#), Verdict::Refused(_)));
        assert!(matches!(judge(200, r#"{"errcode":130101}"#), Verdict::Wait(BLOCKED, _)));
        for body in [r#"{"errcode":-1}"#, "", "<html>", "{}"] {
            assert!(matches!(judge(200, body), Verdict::Retry(_)), "{body}");
        }
        assert!(matches!(judge(500, accepted), Verdict::Retry(_)));
        assert!(matches!(judge(404, accepted), Verdict::Refused(_)));
    }

    #[test]
    fn hostile_text_is_no_markup() {
        assert_eq!(escaped("[x](http://evil) @all <b>"), r"\[x\]\(http://evil\) ＠all &lt;b&gt;");
    }
}
