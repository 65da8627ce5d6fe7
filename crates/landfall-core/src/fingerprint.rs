//! Fingerprints of errors: failures with the same cause have the same one.

use uuid::Uuid;

/// The version of the rules. Another version gives other fingerprints, so that groups of two versions are not mixed.
const VERSION: u32 = 1;

/// The characters of an error that count. What differs between messages usually comes late.
const MAX_CHARACTERS: usize = 500;

/// After one of these words a short number is a code, such as the 404 of "HTTP 404". It belongs to the cause.
const WORDS_BEFORE_CODES: [&str; 8] = ["http", "status", "code", "error", "errno", "sqlstate", "exit", "signal"];

/// The most digits of such a code.
const MAX_CODE_DIGITS: usize = 5;

/// Returns the fingerprint of an error: the version of the rules and 16 hexadecimal digits, such as
/// `1-0f3a5b7c9d1e2f40`.
///
/// It covers the code, and the text without what differs between messages: quoted text, and words with digits, an `@`
/// or a `://`. These are ids, numbers, dates and addresses. A code after a word such as `HTTP` or `status` counts.
pub fn error_fingerprint(code: &str, error: &str) -> String {
    hashed(&["error", code, &normalized(error)])
}

/// Returns the fingerprint of a failure whose handler names its cause.
pub(crate) fn named_fingerprint(code: &str, cause: &str) -> String {
    hashed(&["cause", code, cause])
}

fn hashed(parts: &[&str]) -> String {
    let hash = Uuid::new_v5(&Uuid::NAMESPACE_OID, parts.join("\0").as_bytes()).simple().to_string();
    format!("{VERSION}-{}", &hash[..16])
}

/// Replaces quoted text by `"` and words that differ between messages by `#`.
fn normalized(error: &str) -> String {
    let text: Vec<char> = error.chars().take(MAX_CHARACTERS).collect();
    let (mut result, mut place, mut previous) = (String::new(), 0, String::new());
    while let Some(&character) = text.get(place) {
        if let Some(end) = end_of_quote(&text, place) {
            result.push('"');
            place = end;
        } else if is_word(character) {
            let end = text[place..].iter().position(|c| !is_word(*c)).map_or(text.len(), |length| place + length);
            let word: String = text[place..end].iter().collect();
            result.push_str(if is_variable(&word, &previous) { "#" } else { &word });
            (previous, place) = (word, end);
        } else {
            // Line breaks and indentation say nothing about the cause.
            match character.is_whitespace() {
                true if result.ends_with(' ') => {}
                true => result.push(' '),
                false => result.push(character),
            }
            place += 1;
        }
    }
    result.trim_end().to_owned()
}

/// Returns the place after the quoted text that begins at `start`, if one does. An apostrophe inside a word is none.
fn end_of_quote(text: &[char], start: usize) -> Option<usize> {
    let quote = *text.get(start).filter(|c| matches!(c, '"' | '\'' | '`'))?;
    let follows_word = start > 0 && text[start - 1].is_alphanumeric();
    if follows_word {
        return None;
    }
    let closes =
        |place: &usize| text[*place] == quote && text.get(place + 1).is_none_or(|next| !next.is_alphanumeric());
    (start + 1..text.len()).find(closes).map(|place| place + 1)
}

fn is_word(character: char) -> bool {
    character.is_alphanumeric() || matches!(character, '-' | '_' | '.' | ':' | '/' | '@' | '+' | '%' | '\\')
}

fn is_variable(word: &str, previous: &str) -> bool {
    let is_code = word.len() <= MAX_CODE_DIGITS
        && word.chars().all(|c| c.is_ascii_digit())
        && WORDS_BEFORE_CODES.contains(&previous.trim_end_matches(':').to_ascii_lowercase().as_str());
    !is_code && (word.chars().any(char::is_numeric) || word.contains('@') || word.contains("://"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_differs_between_messages_is_left_out() {
        for (error, expected) in [
            ("order 17 of customer 42 not found", "order # of customer # not found"),
            ("order 0190d2a7-6a4e-7bbb-8a6d-3c1f0a9b1c2d: no stock", "order # no stock"),
            ("POST https://pay.example/charge: HTTP 404", "POST # HTTP 404"),
            ("status: 503, retry at 2026-11-18T08:00:00Z", "status: 503, retry at #"),
            ("code 1234567 of bob@example.com", "code # of #"),
            ("can't reach \"db one\" or 'db two' at 10.0.0.7:5432", "can't reach \" or \" at #"),
            ("an unfinished 'quote and\n\n  lines ", "an unfinished 'quote and lines"),
        ] {
            assert_eq!(normalized(error), expected, "{error:?}");
        }
    }

    #[test]
    fn code_and_cause_are_part_of_the_fingerprint() {
        let fingerprint = error_fingerprint("HANDLER_ERROR", "no stock");
        assert!(fingerprint.starts_with("1-") && fingerprint.len() == 18, "{fingerprint}");
        let others = [
            error_fingerprint("TIMEOUT", "no stock"),
            error_fingerprint("HANDLER_ERROR", "no money"),
            error_fingerprint("HANDLER_ERROR", "HTTP 404"),
            error_fingerprint("HANDLER_ERROR", "HTTP 500"),
            named_fingerprint("HANDLER_ERROR", "no stock"),
        ];
        for (place, other) in others.iter().enumerate() {
            assert!(*other != fingerprint && !others[place + 1..].contains(other), "{other} occurs twice");
        }
        // Stored fingerprints are compared with this, so it must not change within a version.
        assert_eq!(fingerprint, error_fingerprint("HANDLER_ERROR", "no  stock\n"));
    }

    proptest! {
        #[test]
        fn any_text_has_a_fingerprint(code in ".{0,80}", error in "\\PC{0,700}") {
            let fingerprint = error_fingerprint(&code, &error);
            prop_assert_eq!(fingerprint.len(), 18);
            prop_assert!(normalized(&error).chars().count() <= MAX_CHARACTERS);
        }

        #[test]
        fn numbers_and_ids_do_not_change_it(a in 0_u64.., b in 0_u64.., x: [u8; 16], y: [u8; 16]) {
            let text = |id: [u8; 16]| Uuid::from_bytes(id).to_string();
            let error = |number: u64, id: [u8; 16]| format!("row {number} of {} ({number} bytes)", text(id));
            // An id without a single digit is one of a million.
            prop_assume!([x, y].iter().all(|id| text(*id).contains(|c: char| c.is_ascii_digit())));
            prop_assert_eq!(error_fingerprint("E", &error(a, x)), error_fingerprint("E", &error(b, y)));
        }

        #[test]
        fn normalized_text_stays_as_it_is(error in "[a-z ]{0,40}( [0-9a-f]{8})?( \"[a-z ]{0,9}\")?") {
            let once = normalized(&error);
            prop_assert_eq!(normalized(&once), once);
        }
    }
}
