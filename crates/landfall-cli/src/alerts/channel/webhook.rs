//! The generic webhook: the body of Alertmanager (version 4), signed as in Standard Webhooks.

use std::time::Duration;

use hyper::Uri;
use landfall::{NoticeBatch, NoticeBody, NoticeKind, Timestamp};
use serde_json::{Value, json};

use super::text::Links;
use super::{Outgoing, Pace};
use crate::push::{SigningKey, signature};

pub(super) const PACE: Pace = Pace { at_most: 50, spacing: Duration::ZERO };

/// What Alertmanager writes as the end of an alert that fires.
const NO_END: &str = "0001-01-01T00:00:00Z";

pub(super) fn render(batch: &NoticeBatch, url: &Uri, keys: &[SigningKey], links: &Links, now: Timestamp) -> Outgoing {
    let is_firing = batch.notices.iter().any(|notice| notice.kind == NoticeKind::Firing);
    let body = json!({
        "version": "4",
        "groupKey": format!("landfall/{}", batch.channel),
        "truncatedAlerts": 0,
        "status": if is_firing { "firing" } else { "resolved" },
        "receiver": batch.channel,
        "groupLabels": {},
        "commonLabels": {},
        "commonAnnotations": {},
        "externalURL": links.base(),
        "alerts": batch.notices.iter().map(|notice| alert(notice, links)).collect::<Vec<_>>(),
    })
    .to_string();
    let (id, seconds) = (batch.id.to_string(), now.as_millis().div_euclid(1000));
    let mut headers = vec![("webhook-timestamp", seconds.to_string())];
    if !keys.is_empty() {
        headers.push(("webhook-signature", signature::header_value(keys, &id, seconds, body.as_bytes())));
    }
    headers.push(("webhook-id", id));
    Outgoing { url: url.clone(), headers, body }
}

fn alert(notice: &NoticeBody, links: &Links) -> Value {
    let mut labels = json!({ "alertname": notice.rule });
    for (name, value) in &notice.labels {
        labels[name] = json!(value);
    }
    let mut annotations = json!({
        "summary": notice.summary,
        "value": notice.value.to_string(),
        "threshold": notice.threshold.to_string(),
    });
    if let Some(sample) = notice.sample {
        annotations["dead_letter"] = json!(sample.to_string());
    }
    json!({
        "status": notice.kind,
        "labels": labels,
        "annotations": annotations,
        "startsAt": notice.starts_at,
        "endsAt": notice.ends_at.map_or_else(|| NO_END.to_owned(), |end| end.to_string()),
        "generatorURL": links.sample(notice).unwrap_or_default(),
        "fingerprint": notice.alert,
    })
}
