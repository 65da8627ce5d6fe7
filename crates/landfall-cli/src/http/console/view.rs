//! Small parts of pages: times, counts, states, tables.

use std::time::Duration;

use landfall::{AtLeast, DeadLetterStatus, RedriveState, Timestamp};
use maud::{Markup, html};

use super::access::{Form, Visit};
use super::query::Query;
use crate::http::problem::Problem;

/// Hours, and their names in English and Chinese.
const PERIODS: [(i64, &str, &str); 5] = [
    (1, "1 hour", "1 小时"),
    (8, "8 hours", "8 小时"),
    (24, "1 day", "1 天"),
    (168, "7 days", "7 天"),
    (720, "30 days", "30 天"),
];

/// The hidden field of every form.
pub(super) fn form_token(visit: &Visit) -> Markup {
    html! { input type="hidden" name="form_token" value=(visit.form_token()); }
}

/// An absolute UTC time, and how long ago that was.
pub(super) fn time(visit: &Visit, at: Timestamp) -> Markup {
    instant(visit, at, Timestamp::now())
}

pub(super) fn instant(visit: &Visit, at: Timestamp, now: Timestamp) -> Markup {
    let exact = at.to_string();
    let shown = exact.get(..19).unwrap_or(&exact).replace('T', " ");
    let relative = if at > now {
        let ahead = age(visit, now.elapsed_since(at));
        visit.say(format!("in {ahead}"), format!("{ahead}后"))
    } else {
        let past = age(visit, at.elapsed_since(now));
        visit.say(format!("{past} ago"), format!("{past}前"))
    };
    html! {
        time datetime=(exact) title=(exact) { (shown) " UTC" }
        " "
        span.ago { (relative) }
    }
}

/// A duration in its largest unit.
pub(super) fn age(visit: &Visit, time: Duration) -> String {
    let seconds = time.as_secs();
    let (amount, english, chinese) = match seconds {
        0..60 => (seconds, "s", "秒"),
        60..3600 => (seconds / 60, "min", "分钟"),
        3600..172_800 => (seconds / 3600, "h", "小时"),
        _ => (seconds / 86_400, "d", "天"),
    };
    format!("{amount} {}", visit.say(english, chinese))
}

/// A number in groups of three digits.
pub(super) fn number(number: u64) -> String {
    let digits = number.to_string();
    let mut shown = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

pub(super) fn at_least(visit: &Visit, count: AtLeast) -> String {
    let shown = number(count.count);
    if count.at_least { visit.say(format!("at least {shown}"), format!("至少 {shown}")) } else { shown }
}

pub(super) fn status(visit: &Visit, status: DeadLetterStatus) -> Markup {
    let (class, chinese) = match status {
        DeadLetterStatus::Parked => ("bad", "已停放"),
        DeadLetterStatus::Delayed => ("warn", "延迟重试"),
        DeadLetterStatus::Waiting => ("warn", "等待中"),
        DeadLetterStatus::Redriving => ("info", "重投中"),
        DeadLetterStatus::Done => ("good", "已完成"),
        DeadLetterStatus::Discarded => ("quiet", "已丢弃"),
        DeadLetterStatus::Ignored => ("quiet", "已忽略"),
    };
    html! { span class={ "badge " (class) } { (visit.say(status.as_str(), chinese)) } }
}

pub(super) fn job_state(visit: &Visit, state: RedriveState) -> Markup {
    let (class, chinese) = match state {
        RedriveState::Running => ("info", "运行中"),
        RedriveState::Paused => ("warn", "已暂停"),
        RedriveState::Stopped => ("bad", "已停止"),
        RedriveState::Finished => ("good", "已结束"),
    };
    html! { span class={ "badge " (class) } { (visit.say(state.as_str(), chinese)) } }
}

/// A table that scrolls by itself on a narrow screen, also with the keyboard.
pub(super) fn scroll(label: &str, table: &Markup) -> Markup {
    html! { div.scroll role="region" tabindex="0" aria-label=(label) { (table) } }
}

/// A figure with its label, and where it leads.
pub(super) fn figure(label: &str, value: &str, class: &str, href: &str) -> Markup {
    html! {
        a.figure href=(href) {
            span class={ "value " (class) } { (value) }
            span.label { (label) }
        }
    }
}

/// What could not be read is unknown, never zero.
pub(super) fn unknown(visit: &Visit, error: &dyn std::fmt::Display) -> Markup {
    html! { p.problem { (visit.say("Unknown: ", "未知：")) (error) } }
}

/// Returns at most `most` characters.
pub(super) fn clip(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// A link to the queue of a key.
pub(super) fn key_link(topic: &str, key: Option<&str>, group: Option<&str>) -> Markup {
    let Some(key) = key else { return html! { span.muted { "–" } } };
    let query = Query::default().with("topic", topic).with("key", key);
    let query = match group {
        Some(group) => query.with("group", group),
        None => query,
    };
    html! { a href=(query.to("/console/keys")) { bdi { (clip(key, 60)) } } }
}

/// A field for how long something lasts.
pub(super) fn period(visit: &Visit) -> Markup {
    html! {
        label { span { (visit.say("For how long", "时长")) }
            select name="period" { @for (hours, english, chinese) in PERIODS {
                option value=(hours) selected[hours == 8] { (visit.say(english, chinese)) }
            } }
        }
    }
}

/// Returns when the period that a form asks for is over.
pub(super) fn end_of_period(form: &Form) -> Result<Timestamp, Problem> {
    let hours = form.get("period").and_then(|hours| hours.parse::<i64>().ok());
    let hours = hours.filter(|hours| PERIODS.iter().any(|(known, ..)| known == hours));
    let hours = hours.ok_or_else(|| Problem::invalid("period must be one of the offered numbers of hours"))?;
    Ok(Timestamp::from_millis(Timestamp::now().as_millis() + hours * 3_600_000))
}

/// A text field of a filter form.
pub(super) fn field(query: &Query, name: &str, label: &str, hint: &str) -> Markup {
    html! {
        label { span { (label) } input type="text" name=(name) value=(query.get(name).unwrap_or_default())
            placeholder=(hint) autocomplete="off"; }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_and_texts_are_clipped() {
        assert_eq!([0, 999, 1000, 1_234_567].map(number), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!((clip("日本語", 2), clip("ab", 2)), ("日本…".to_owned(), "ab".to_owned()));
    }
}
