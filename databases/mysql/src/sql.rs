//! How a statement is made: the validated table prefix in the place of `{p}`, a few other words in the place of others, and
//! lists in a few sizes.

use std::sync::Arc;

use landfall_core::TablePrefix;
use sqlx::AssertSqlSafe;

/// A statement in which nothing but the table prefix was filled in.
#[derive(Clone)]
pub(crate) struct Sql(Arc<str>);

impl Sql {
    pub(crate) fn new(template: &str, prefix: &TablePrefix) -> Self {
        Self(fill(template, prefix).into())
    }

    pub(crate) fn text(&self) -> AssertSqlSafe<Arc<str>> {
        AssertSqlSafe(self.0.clone())
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// A statement about rows whose ids are listed, in several sizes.
pub(crate) struct ByRows([Sql; SIZES.len()]);

const SIZES: [usize; 4] = [1, 16, 128, 512];

impl ByRows {
    /// The most rows that one statement is about; longer lists are cut into chunks of this size.
    pub(crate) const MOST: usize = SIZES[SIZES.len() - 1];

    pub(crate) fn new(template: &str, prefix: &TablePrefix) -> Self {
        Self(SIZES.map(|size| Sql::new(&template.replace("{rows}", &placeholders(size)), prefix)))
    }

    /// The smallest statement that `ids` (at most [`ByRows::MOST`]) fit into, and what to bind in their place.
    pub(crate) fn fit<'a>(&self, ids: &'a [i64]) -> (AssertSqlSafe<Arc<str>>, impl Iterator<Item = i64> + use<'a>) {
        let place = SIZES.iter().position(|size| ids.len() <= *size).unwrap_or(SIZES.len() - 1);
        // An empty list is nobody's row.
        let last = ids.last().copied().unwrap_or(-1);
        (self.0[place].text(), ids.iter().copied().chain(std::iter::repeat(last)).take(SIZES[place]))
    }
}

/// The same for rows that two values name each.
pub(crate) struct ByPairs([Sql; SIZES.len()]);

impl ByPairs {
    pub(crate) const MOST: usize = SIZES[SIZES.len() - 1];

    pub(crate) fn new(template: &str, prefix: &TablePrefix) -> Self {
        Self(SIZES.map(|size| Sql::new(&template.replace("{pairs}", &vec!["(?, ?)"; size].join(", ")), prefix)))
    }

    /// The smallest statement that `items` (some, and at most [`ByPairs::MOST`]) fit into, and what to bind.
    pub(crate) fn fit<'a, T: Copy>(
        &self,
        items: &'a [T],
    ) -> (AssertSqlSafe<Arc<str>>, impl Iterator<Item = T> + use<'a, T>) {
        let place = SIZES.iter().position(|size| items.len() <= *size).unwrap_or(SIZES.len() - 1);
        let filling = items.iter().copied().chain(std::iter::repeat_n(items.last().copied(), SIZES[place]).flatten());
        (self.0[place].text(), filling.take(SIZES[place]))
    }
}

fn placeholders(count: usize) -> String {
    vec!["?"; count].join(", ")
}

/// How many shards there are, as in the definition of the column `shard`.
pub(crate) const SHARDS: u16 = 16;

/// What every table is made with. Each server reads the comment that is meant for it.
const TABLE: &str = "ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 \
    COLLATE /*M!100202 utf8mb4_nopad_bin */ /*!80017 utf8mb4_0900_bin */";

/// What a [`Message`](landfall_core::Message) is made of.
const MESSAGE: &str = "message_id, topic, `key`, sequence, kind, mode, headers, payload, {ms:created_at}";

/// `template` with the prefix in place of `{p}` (with its database) and `{b}` (bare). Safe because a [`TablePrefix`]
/// cannot be anything but lower-case identifiers.
pub(crate) fn fill(template: &str, prefix: &TablePrefix) -> String {
    let text = template
        .replace("{blocked}", BLOCKED)
        .replace("{free}", FREE)
        .replace("{message}", MESSAGE)
        .replace("{table}", TABLE)
        .replace("{shards}", &placeholders(SHARDS.into()))
        .replace("{now}", "UTC_TIMESTAMP(6)");
    // Topic and key as one value of 32 bytes (MySQL 9.7 has no older hashes any more), times as milliseconds since 1970, ids
    // as people write them.
    let text = expand(text, "{name:", "CAST(UNHEX(SHA2(CONCAT(@.topic, '/', @.`key`), 256)) AS BINARY(32))");
    let text = expand(text, "{ms:", "CAST(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', @) DIV 1000 AS SIGNED)");
    let text = expand(
        text,
        "{uuid:",
        "LOWER(CONCAT_WS('-', SUBSTR(HEX(@), 1, 8), SUBSTR(HEX(@), 9, 4), SUBSTR(HEX(@), 13, 4), \
         SUBSTR(HEX(@), 17, 4), SUBSTR(HEX(@), 21)))",
    );
    text.replace("{p}", prefix.as_str()).replace("{b}", prefix.bare())
}

/// Each `{name:column}` as `expression` of that column.
fn expand(mut text: String, opening: &str, expression: &str) -> String {
    while let Some(start) = text.find(opening) {
        let Some(length) = text[start..].find('}') else { break };
        let column = text[start + opening.len()..start + length].to_owned();
        text.replace_range(start..=start + length, &expression.replace('@', &column));
    }
    text
}

/// The keys that wait for the next attempt of a message, joined to a row of the outbox (as `o`): listed once per statement,
/// by a hash that every server indexes. Looked for row by row, ten thousand of them made a batch take a minute.
const BLOCKED: &str = "
    LEFT JOIN (
        SELECT DISTINCT {name:w} AS name FROM {p}outbox w FORCE INDEX ({b}outbox_retrying)
        WHERE w.next_attempt_at > {now} AND w.`key` IS NOT NULL) blocked ON blocked.name = {name:o}";

/// The condition under which such a row holds back for nobody: no message of its topic and key waits for its next
/// attempt or is a dead letter. Without a key there is no name, and nobody to wait for.
const FREE: &str = "
    blocked.name IS NULL AND NOT EXISTS (
        SELECT 1 FROM {p}held_key h WHERE h.consumer_group = '' AND h.topic = o.topic AND h.`key` = o.`key`)";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_filled_up_with_its_last_element() {
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
