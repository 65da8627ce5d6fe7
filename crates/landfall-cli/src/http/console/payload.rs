//! Shows payloads: pretty, raw or in hexadecimal, bounded, and exactly as they are stored.

use axum::extract::Path;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use maud::{Markup, html};
use serde_json::value::RawValue;

use super::access::Visit;
use crate::http::Shared;
use crate::http::dlq::actions::one;
use crate::http::dlq::letter_id;
use crate::http::problem::Problem;

/// The most bytes of text on a page; the rest is downloaded.
const MAX_TEXT: usize = 64 * 1024;
const MAX_HEX: usize = 4 * 1024;

/// How a payload is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Pretty,
    Raw,
    Hex,
}

impl Form {
    /// Returns the form that is asked for, else the most readable one.
    pub(super) fn choose(asked: Option<&str>, bytes: &[u8]) -> Self {
        match asked {
            Some("raw") => Self::Raw,
            Some("hex") => Self::Hex,
            Some("pretty") => Self::Pretty,
            _ if std::str::from_utf8(bytes).is_err() => Self::Hex,
            _ => Self::Pretty,
        }
    }
}

pub(super) fn show(visit: &Visit, bytes: &[u8], form: Form) -> Markup {
    if bytes.is_empty() {
        return html! { p.empty { (visit.say("The payload is empty (0 bytes).", "内容为空（0 字节）。")) } };
    }
    let (text, shown) = match form {
        Form::Hex => (hex_dump(&bytes[..bytes.len().min(MAX_HEX)]), bytes.len().min(MAX_HEX)),
        Form::Raw => raw(bytes),
        Form::Pretty => match pretty(bytes) {
            Some(text) => (text, bytes.len()),
            None => raw(bytes),
        },
    };
    html! {
        pre.payload tabindex="0" aria-label=(visit.say("Payload", "内容")) { (text) }
        @if shown < bytes.len() {
            p.muted { (visit.say(
                format!("The first {shown} of {} bytes. Download it to see all.", bytes.len()),
                format!("前 {shown} 字节，共 {} 字节。下载可查看全部。", bytes.len()),
            )) }
        }
    }
}

/// Returns the text, and how many bytes it shows. Bytes that are not UTF-8 are replaced; the hexadecimal form is exact.
fn raw(bytes: &[u8]) -> (String, usize) {
    let mut end = bytes.len().min(MAX_TEXT);
    while end < bytes.len() && end > 0 && bytes[end] & 0xC0 == 0x80 {
        end -= 1;
    }
    (String::from_utf8_lossy(&bytes[..end]).into_owned(), end)
}

/// Returns valid JSON with line breaks. Only white space changes: numbers keep their digits, objects their order.
pub(super) fn pretty(bytes: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(bytes).ok().filter(|text| text.len() <= MAX_TEXT)?;
    let json: &RawValue = serde_json::from_str(text).ok()?;
    let (mut shown, mut depth, mut in_string, mut is_escaped) = (String::new(), 0_usize, false, false);
    let mut rest = json.get().chars().peekable();
    while let Some(c) = rest.next() {
        if in_string {
            shown.push(c);
            (in_string, is_escaped) = (is_escaped || c != '"', !is_escaped && c == '\\');
            continue;
        }
        match c {
            '{' | '[' => {
                shown.push(c);
                while rest.next_if(|c| c.is_ascii_whitespace()).is_some() {}
                if let Some(end) = rest.next_if(|c| matches!(c, '}' | ']')) {
                    shown.push(end);
                } else {
                    depth += 1;
                    new_line(&mut shown, depth);
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                new_line(&mut shown, depth);
                shown.push(c);
            }
            ',' => {
                shown.push(c);
                new_line(&mut shown, depth);
            }
            ':' => shown.push_str(": "),
            c if c.is_ascii_whitespace() => {}
            c => {
                in_string = c == '"';
                shown.push(c);
            }
        }
    }
    Some(shown)
}

/// Deep nesting is not indented further, so that the text stays linear in the payload.
fn new_line(text: &mut String, depth: usize) {
    text.push('\n');
    text.extend(std::iter::repeat_n("  ", depth.min(32)));
}

fn hex_dump(bytes: &[u8]) -> String {
    let line = |(index, line): (usize, &[u8])| {
        let hex: Vec<String> = line.iter().map(|byte| format!("{byte:02x}")).collect();
        let text: String =
            line.iter().map(|byte| if (0x20..0x7F).contains(byte) { char::from(*byte) } else { '.' }).collect();
        format!("{:08x}  {:<47}  {text}\n", index * 16, hex.join(" "))
    };
    bytes.chunks(16).enumerate().map(line).collect()
}

/// Sends the payload byte for byte, as a file that no browser opens.
pub(super) async fn download(axum::extract::State(state): Shared, Path(id): Path<String>) -> Result<Response, Problem> {
    let id = letter_id(&id)?;
    let letter = one(&state, id).await?;
    let headers = [
        (header::CONTENT_TYPE, "application/octet-stream".to_owned()),
        (header::CONTENT_DISPOSITION, format!("attachment; filename=\"dead-letter-{id}.bin\"")),
    ];
    Ok((headers, letter.payload).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pretty_json_keeps_numbers_order_and_strings() {
        let text = r#"{"b":12345678901234567890123, "a" : [1.10,{}, [ ],"x, \"{y}\" \\"],"c":null}"#;
        let shown = pretty(text.as_bytes()).unwrap();
        let expected = "{\n  \"b\": 12345678901234567890123,\n  \"a\": [\n    1.10,\n    {},\n    [],\n    \
                        \"x, \\\"{y}\\\" \\\\\"\n  ],\n  \"c\": null\n}";
        assert_eq!(shown, expected);
        let compact = |text: &str| text.chars().filter(|c| !c.is_whitespace()).collect::<String>();
        assert_eq!(compact(&shown), compact(text));
        for other in [&b"{"[..], b"", b"\xff", b"text", &vec![b' '; MAX_TEXT + 1]] {
            assert_eq!(pretty(other), None);
        }
    }

    #[test]
    fn large_text_is_cut_between_characters() {
        let text = "é".repeat(MAX_TEXT);
        let (shown, bytes) = raw(&text.as_bytes()[1..]);
        assert!(bytes <= MAX_TEXT && shown.ends_with('é'));
        assert_eq!(raw(b"ab"), ("ab".to_owned(), 2));
    }

    #[test]
    fn every_byte_has_a_hexadecimal_form() {
        assert_eq!(hex_dump(b"ab\xff\0"), format!("00000000  {:<47}  ab..\n", "61 62 ff 00"));
    }
}
