//! Statement templates: words in braces stand for longer expressions, and lists exist in a few sizes.

use std::sync::Arc;

use landfall_core::TablePrefix;
use landfall_sql_toolkit::{Sql, fill_prefix};
use sqlx::AssertSqlSafe;

/// A statement on rows with listed ids, in several sizes.
pub(crate) struct ByRows([Sql; SIZES.len()]);

const SIZES: [usize; 4] = [1, 16, 128, 512];

impl ByRows {
    /// The most ids in one statement; longer lists are split into chunks of this size.
    pub(crate) const MOST: usize = SIZES[SIZES.len() - 1];

    pub(crate) fn new(template: &str, prefix: &TablePrefix) -> Self {
        Self(SIZES.map(|size| Sql::new(&template.replace("{rows}", &placeholders(size)), prefix)))
    }

    /// Returns the smallest statement that fits `ids` (at most [`ByRows::MOST`]), and the values to bind.
    pub(crate) fn fit<'a>(&self, ids: &'a [i64]) -> (AssertSqlSafe<Arc<str>>, impl Iterator<Item = i64> + use<'a>) {
        let size = SIZES.iter().position(|size| ids.len() <= *size).unwrap_or(SIZES.len() - 1);
        // For an empty list, an id that no row has.
        let last = ids.last().copied().unwrap_or(-1);
        (self.0[size].text(), ids.iter().copied().chain(std::iter::repeat(last)).take(SIZES[size]))
    }
}

/// A statement on rows that are each identified by two values, in several sizes.
pub(crate) struct ByPairs([Sql; SIZES.len()]);

impl ByPairs {
    pub(crate) const MOST: usize = SIZES[SIZES.len() - 1];

    pub(crate) fn new(template: &str, prefix: &TablePrefix) -> Self {
        Self(SIZES.map(|size| Sql::new(&template.replace("{pairs}", &vec!["(?, ?)"; size].join(", ")), prefix)))
    }

    /// Returns the smallest statement that fits `items` (at least one, at most [`ByPairs::MOST`]), and what to bind.
    pub(crate) fn fit<'a, T: Copy>(
        &self,
        items: &'a [T],
    ) -> (AssertSqlSafe<Arc<str>>, impl Iterator<Item = T> + use<'a, T>) {
        let size = SIZES.iter().position(|size| items.len() <= *size).unwrap_or(SIZES.len() - 1);
        let filled = items.iter().copied().chain(std::iter::repeat_n(items.last().copied(), SIZES[size]).flatten());
        (self.0[size].text(), filled.take(SIZES[size]))
    }
}

fn placeholders(count: usize) -> String {
    vec!["?"; count].join(", ")
}

/// The number of shards, as in the definition of the column `shard`.
pub(crate) const SHARDS: u16 = 16;

/// Options of every table. Each server reads the comment that is meant for it.
const TABLE: &str = "ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 \
    COLLATE /*M!100202 utf8mb4_nopad_bin */ /*!80017 utf8mb4_0900_bin */";

/// The columns of a [`Message`](landfall_core::Message).
const MESSAGE: &str = "message_id, topic, `key`, sequence, kind, mode, headers, payload, {ms:created_at} AS created_at";

/// Expands the words of a template and fills in the prefix.
pub(crate) fn fill(template: &str, prefix: &TablePrefix) -> String {
    fill_prefix(&expand_words(template), prefix)
}

/// Expands every word of a template except for the prefix.
pub(crate) fn expand_words(template: &str) -> String {
    let text = template
        .replace("{blocked}", BLOCKED)
        .replace("{free}", FREE)
        .replace("{expired}", EXPIRED)
        .replace("{misdated}", MISDATED)
        .replace("{message}", MESSAGE)
        // Only the outbox has a column for text.
        .replace("{outbox_message}", &MESSAGE.replace(" payload,", " {payload:o} AS payload,"))
        .replace("{table}", TABLE)
        .replace("{shards}", &placeholders(SHARDS.into()))
        .replace("{now_ms}", "{ms:UTC_TIMESTAMP(6)}")
        .replace("{now}", "UTC_TIMESTAMP(6)");
    // Topic and key as one value of 32 bytes (MySQL 9.7 no longer has older hashes). Times as milliseconds since 1970.
    // Ids in their usual notation. The payload of a row of the outbox, as bytes.
    let text = expand(text, "{name:", "CAST(UNHEX(SHA2(CONCAT(@.topic, '/', @.`key`), 256)) AS BINARY(32))");
    let text = expand(text, "{payload:", "COALESCE(@.payload, CAST(@.payload_text AS BINARY))");
    let text = expand(text, "{ms:", "CAST(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', @) DIV 1000 AS SIGNED)");
    expand(
        text,
        "{uuid:",
        "LOWER(CONCAT_WS('-', SUBSTR(HEX(@), 1, 8), SUBSTR(HEX(@), 9, 4), SUBSTR(HEX(@), 13, 4), \
         SUBSTR(HEX(@), 17, 4), SUBSTR(HEX(@), 21)))",
    )
}

/// Replaces each `{word:column}` by `expression`, with the column in place of `@`.
fn expand(mut text: String, opening: &str, expression: &str) -> String {
    while let Some(start) = text.find(opening) {
        let Some(length) = text[start..].find('}') else { break };
        let column = text[start + opening.len()..start + length].to_owned();
        text.replace_range(start..=start + length, &expression.replace('@', &column));
    }
    text
}

/// The keys that wait for the next attempt of a message, joined to a row `o` of the outbox. They are listed once per
/// statement, by a hash that every server indexes. Searched row by row, ten thousand of them made a batch take a
/// minute.
const BLOCKED: &str = "
    LEFT JOIN (
        SELECT DISTINCT {name:w} AS name FROM {p}outbox w FORCE INDEX ({b}outbox_retrying)
        WHERE w.next_attempt_at > {now} AND w.`key` IS NOT NULL) blocked ON blocked.name = {name:o}";

/// The condition that such a row's key is not blocked: no message of its topic and key waits for its next attempt or is
/// a dead letter. Without a key there is no name to match.
const FREE: &str = "
    blocked.name IS NULL AND NOT EXISTS (
        SELECT 1 FROM {p}held_key h WHERE h.consumer_group = '' AND h.topic = o.topic AND h.`key` = o.`key`)";

/// Whether a lease has expired. Its holder writes now + `ttl_ms`, and a clock that is set back makes that moment more
/// distant. An expiry further away than twice `ttl_ms` was written under a wrong clock and counts as expired. Rows of
/// schema version 1 have no `ttl_ms`; for them the longest configurable lease is assumed.
const EXPIRED: &str = "(expires_at <= {now} OR {misdated})";
const MISDATED: &str = "expires_at > {now} + INTERVAL (2000 * COALESCE(ttl_ms, 3600000)) MICROSECOND";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_is_padded_with_its_last_element() {
        let statement = ByRows::new("SELECT {rows}", &TablePrefix::default());
        for (count, size) in [(1, 1), (2, 16), (16, 16), (17, 128), (512, 512)] {
            let ids: Vec<i64> = (1..=count).collect();
            let (_, bound) = statement.fit(&ids);
            let bound: Vec<i64> = bound.collect();
            assert_eq!((bound.len(), bound[..ids.len()] == ids[..]), (size, true));
            assert!(bound[ids.len()..].iter().all(|id| *id == count));
        }
    }
}
