use landfall_core::TablePrefix;

use crate::sql::fill_prefix;

/// What stands before and after the value of a search.
#[derive(Debug, Clone, Copy)]
pub struct Around(pub &'static str, pub &'static str);

/// The words in which servers differ. `@` is the column of an expression.
#[derive(Debug)]
pub struct Dialect {
    /// Whether placeholders are `$1`, `$2` and so on.
    pub is_numbered: bool,
    /// `{key}`: the column, quoted.
    pub key: &'static str,
    /// `{primary}`: makes a statement find rows by their ids, so that it locks no others.
    pub primary: &'static str,
    /// `{lock}`: locks the selected rows.
    pub lock: &'static str,
    /// `{ms:column}`: a time as milliseconds since 1970.
    pub milliseconds: &'static str,
    /// `{number:column}`: a number of any width or a truth value, as 64 bits.
    pub number: &'static str,
    /// `{uuid:column}`: a message id as text.
    pub id_text: &'static str,
    /// `{uuid}`: a placeholder for the text of a message id.
    pub id: &'static str,
    /// `{time}`: a placeholder for milliseconds since 1970.
    pub time: &'static str,
    /// `{open:alias}`: whether a letter is neither done nor discarded, so that the index of open letters is used.
    pub is_open: &'static str,
    /// `{unsent}`: the table, without its prefix, in which a letter of the relay waits after its redrive.
    pub unsent: &'static str,
    /// `{payload}`: the payload of a letter as bytes.
    pub payload: &'static str,
    /// `{json:column}`: JSON as text.
    pub json_text: &'static str,
    /// `{json}`: a placeholder for JSON as text.
    pub json: &'static str,
    /// `{done_at}`: the column from which a final letter ages.
    pub done_at: &'static str,
    /// The highest id that the database has assigned in the table `@`, which lacks its prefix.
    pub issued: &'static str,
    /// `{given_id}`: lets an insert choose the id of a row in the audit trail.
    pub given_id: &'static str,
    /// Whether the trace id of a letter equals a value.
    pub has_trace: Around,
    pub error_contains: Around,
    pub payload_contains: Around,
    /// Whether a payload is JSON with a value at a path: pairs of placeholders for the path and the value.
    pub payload_has: &'static str,
    /// `{now_ms}`: the current time as milliseconds since 1970.
    pub now_ms: &'static str,
    /// The words before and after an insert that leaves an existing row alone.
    pub insert_new: Around,
}

impl Dialect {
    /// Fills in a template.
    pub fn fill(&self, template: &str, prefix: &TablePrefix) -> String {
        let mut text = template
            .replace("{key}", self.key)
            .replace("{primary}", self.primary)
            .replace("{lock}", self.lock)
            .replace("{uuid}", self.id)
            .replace("{time}", self.time)
            .replace("{unsent}", self.unsent)
            .replace("{payload}", self.payload)
            .replace("{json}", self.json)
            .replace("{done_at}", self.done_at)
            .replace("{given_id}", self.given_id)
            .replace("{now_ms}", self.now_ms);
        let words = [
            ("{ms:", self.milliseconds),
            ("{number:", self.number),
            ("{uuid:", self.id_text),
            ("{open:", self.is_open),
            ("{json:", self.json_text),
        ];
        for (word, expression) in words {
            text = expand(&text, word, expression);
        }
        let text = fill_prefix(&text, prefix);
        if self.is_numbered { numbered(&text) } else { text }
    }
}

/// Replaces each `{word:column}` by `expression`, with the column in place of `@`.
fn expand(text: &str, word: &str, expression: &str) -> String {
    let mut parts = text.split(word);
    let mut result = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (column, rest) = part.split_once('}').unwrap_or((part, ""));
        result.push_str(&expression.replace('@', column));
        result.push_str(rest);
    }
    result
}

fn numbered(text: &str) -> String {
    let mut parts = text.split('?');
    let mut result = parts.next().unwrap_or_default().to_owned();
    for (number, part) in (1..).zip(parts) {
        result.push_str(&format!("${number}{part}"));
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_placeholders_are_filled_in() {
        let dialect = Dialect {
            is_numbered: true,
            key: "\"key\"",
            primary: "",
            lock: " FOR UPDATE",
            milliseconds: "ms(@)",
            number: "n(@)",
            id_text: "text(@)",
            id: "uuid(?)",
            time: "time(?)",
            is_open: "@.open",
            unsent: "waiting",
            payload: "payload",
            json_text: "json(@)",
            json: "json(?)",
            done_at: "done_at",
            issued: "9",
            given_id: "",
            has_trace: Around("", ""),
            error_contains: Around("", ""),
            payload_contains: Around("", ""),
            payload_has: "",
            now_ms: "0",
            insert_new: Around("INSERT", ""),
        };
        let template = "SELECT {ms:a.at}, {uuid:id} FROM {p}x a WHERE {key} = ? AND id = {uuid} AND {open:a}{lock}";
        let filled = dialect.fill(template, &TablePrefix::new("shop_").unwrap());
        let expected =
            "SELECT ms(a.at), text(id) FROM shop_x a WHERE \"key\" = $1 AND id = uuid($2) AND a.open FOR UPDATE";
        assert_eq!(filled, expected);
    }
}
