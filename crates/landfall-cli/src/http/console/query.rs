//! The query of a page: what its URL says, and how links change it.

use axum::http::Uri;

/// Parameters in their order, without blank ones and without the language. A form sends its empty fields too.
#[derive(Debug, Clone, Default)]
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    pub(super) fn of(uri: &Uri) -> Self {
        Self::parse(uri.query().unwrap_or_default())
    }

    pub(super) fn parse(text: &str) -> Self {
        let pairs = form_urlencoded::parse(text.as_bytes()).into_owned();
        Self(pairs.filter(|(name, value)| name != "lang" && !value.trim().is_empty()).collect())
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub(super) fn all<'a>(&'a self, name: &str) -> Vec<&'a str> {
        self.0.iter().filter(|(known, _)| known == name).map(|(_, value)| value.as_str()).collect()
    }

    pub(super) fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[must_use]
    pub(super) fn without(mut self, name: &str) -> Self {
        self.0.retain(|(known, _)| known != name);
        self
    }

    #[must_use]
    pub(super) fn with(self, name: &str, value: impl ToString) -> Self {
        let mut query = self.without(name);
        query.0.push((name.to_owned(), value.to_string()));
        query
    }

    /// Returns the text after the question mark.
    pub(super) fn text(&self) -> String {
        form_urlencoded::Serializer::new(String::new()).extend_pairs(&self.0).finish()
    }

    /// Returns a link.
    pub(super) fn to(&self, path: &str) -> String {
        if self.0.is_empty() { path.to_owned() } else { format!("{path}?{}", self.text()) }
    }

    /// Returns the flags of `landfall dlq` that mean the same.
    pub(super) fn flags(&self) -> String {
        let flag = |(name, value): (&str, &str)| {
            let name = match name {
                "q" => "text",
                "after" | "limit" | "lang" => return None,
                name => name,
            };
            Some(format!(" --{} {}", name.replace('_', "-"), quoted(value)))
        };
        self.pairs().filter_map(flag).collect()
    }
}

/// Returns the text as one word for a shell.
pub(super) fn quoted(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.:/@%+,".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_keeps_what_is_not_blank() {
        let query = Query::parse("topic=orders&key=&q=no+stock&lang=zh&ids=1&ids=2");
        assert_eq!(query.text(), "topic=orders&q=no+stock&ids=1&ids=2");
        assert_eq!((query.get("key"), query.all("ids")), (None, vec!["1", "2"]));
        assert_eq!(query.clone().with("topic", "a&b").without("ids").to("/x"), "/x?q=no+stock&topic=a%26b");
    }

    #[test]
    fn command_quotes_what_a_shell_would_read() {
        let query = Query::parse("topic=orders&q=it's+%24%28rm%29&message_id=a-b&after=9");
        assert_eq!(query.flags(), r" --topic orders --text 'it'\''s $(rm)' --message-id a-b");
    }
}
