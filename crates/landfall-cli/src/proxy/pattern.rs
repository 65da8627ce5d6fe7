//! Which requests a route takes: a method and a path with parameters, as in axum.

use std::cmp::Ordering;
use std::fmt;

use hyper::Method;

/// `POST /orders/{id}/pay`, or a path alone for every method. `{name}` is one segment, and `{*name}` at the end is the
/// rest.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Pattern {
    method: Option<Method>,
    segments: Vec<Segment>,
    text: String,
}

/// In the order of precedence.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Segment {
    Literal(String),
    Any,
    Rest,
}

/// One segment of the paths that a pattern takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PathParameter {
    segment: usize,
}

impl PathParameter {
    /// Returns its decoded value in `path`; `None` if that is not UTF-8.
    pub(crate) fn of(self, path: &str) -> Option<String> {
        let encoded = path.strip_prefix('/')?.split('/').nth(self.segment)?.as_bytes();
        let (mut decoded, mut rest) = (Vec::with_capacity(encoded.len()), encoded);
        while let [first, tail @ ..] = rest {
            let hex = tail.get(..2).filter(|_| *first == b'%').and_then(|hex| std::str::from_utf8(hex).ok());
            match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
                Some(byte) => {
                    decoded.push(byte);
                    rest = &tail[2..];
                }
                None => {
                    decoded.push(*first);
                    rest = tail;
                }
            }
        }
        String::from_utf8(decoded).ok()
    }
}

impl Pattern {
    /// Returns the parameter `{name}`, if this pattern has it once.
    pub(crate) fn parameter(&self, name: &str) -> Option<PathParameter> {
        let path = self.text.split_once('/').map_or("", |(_, path)| path);
        let is_named = |text: &str| text.strip_prefix('{').and_then(|text| text.strip_suffix('}')) == Some(name);
        let mut found = path.split('/').enumerate().filter(|(_, text)| is_named(text) && !name.starts_with('*'));
        let (segment, _) = found.next()?;
        found.next().is_none().then_some(PathParameter { segment })
    }

    /// The error is the end of a sentence.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (method, path) = match text.split_once(' ') {
            Some((method, path)) => (Some(parse_method(method)?), path.trim_start()),
            None => (None, text),
        };
        let path = path.strip_prefix('/').ok_or("must be a path such as /orders/{id}, or a method and a path")?;
        let segments: Vec<Segment> = path.split('/').map(parse_segment).collect::<Result<_, _>>()?;
        if segments.iter().rev().skip(1).any(|segment| *segment == Segment::Rest) {
            return Err("may have {*name} only at its end".into());
        }
        Ok(Self { method, segments, text: text.to_owned() })
    }

    /// A route for GET takes HEAD too.
    pub(crate) fn matches(&self, method: &Method, path: &str) -> bool {
        let takes = match &self.method {
            None => true,
            Some(known) => known == method || (known == Method::GET && method == Method::HEAD),
        };
        takes && path.strip_prefix('/').is_some_and(|path| self.matches_path(path))
    }

    fn matches_path(&self, mut path: &str) -> bool {
        for (index, segment) in self.segments.iter().enumerate() {
            let (first, rest) = path.split_once('/').map_or((path, None), |(first, rest)| (first, Some(rest)));
            match segment {
                Segment::Rest => return !path.is_empty(),
                Segment::Literal(text) if text != first => return false,
                Segment::Any if first.is_empty() => return false,
                _ => {}
            }
            match rest {
                Some(rest) => path = rest,
                None => return index + 1 == self.segments.len(),
            }
        }
        false
    }

    /// Returns whether both take the same requests, whatever their parameters are called.
    pub(crate) fn is_same_as(&self, other: &Self) -> bool {
        self.precedence(other) == Ordering::Equal && self.method == other.method
    }

    /// Orders the more specific pattern first: a literal before a parameter, a method before none.
    pub(crate) fn precedence(&self, other: &Self) -> Ordering {
        self.segments.cmp(&other.segments).then_with(|| self.method.is_none().cmp(&other.method.is_none()))
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn parse_method(text: &str) -> Result<Method, String> {
    let wrong = || format!("has no method {text:?}; write it in upper case, such as POST");
    let method = Method::from_bytes(text.as_bytes()).map_err(|_| wrong())?;
    let is_upper = text.bytes().all(|byte| byte.is_ascii_uppercase());
    if is_upper && method != Method::CONNECT { Ok(method) } else { Err(wrong()) }
}

fn parse_segment(text: &str) -> Result<Segment, String> {
    let name = text.strip_prefix('{').and_then(|text| text.strip_suffix('}'));
    let is_name =
        |name: &str| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    match name {
        Some(name) if is_name(name) => Ok(Segment::Any),
        Some(name) if name.strip_prefix('*').is_some_and(is_name) => Ok(Segment::Rest),
        None if !text.contains(['{', '}', '?', '#', ' ']) => Ok(Segment::Literal(text.to_owned())),
        _ => {
            Err(format!("has the invalid segment {text:?}; a parameter is a whole segment such as {{id}} or {{*rest}}"))
        }
    }
}

/// Returns whether a path could be another one after its dots are resolved, as many servers do. `%2e`, `%2f` and `%5c`
/// count as what they encode.
pub(super) fn has_dot_segments(path: &str) -> bool {
    let decoded = path.to_ascii_lowercase().replace("%2e", ".").replace("%2f", "/").replace("%5c", "/");
    decoded.split(['/', '\\']).any(|segment| matches!(segment, "." | ".."))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> Pattern {
        Pattern::parse(text).unwrap()
    }

    #[test]
    fn pattern_takes_its_method_and_path() {
        let takes = |text: &str, method: Method, path: &str| pattern(text).matches(&method, path);
        assert!(takes("POST /orders/{id}/pay", Method::POST, "/orders/7/pay"));
        for path in ["/orders/7", "/orders//pay", "/orders/7/pay/", "/orders/7/8/pay", "//orders/7/pay", "*", ""] {
            assert!(!takes("POST /orders/{id}/pay", Method::POST, path), "{path}");
        }
        assert!(!takes("POST /orders", Method::PUT, "/orders") && takes("/orders", Method::PUT, "/orders"));
        assert!(takes("GET /orders", Method::HEAD, "/orders"));
        assert!(takes("/{*all}", Method::PATCH, "/a/b/c") && takes("/a/{*all}", Method::PATCH, "/a/b/"));
        assert!(!takes("/a/{*all}", Method::PATCH, "/a/") && !takes("/a/{*all}", Method::PATCH, "/a"));
        assert!(takes("/", Method::GET, "/") && !takes("/", Method::GET, "/a"));
    }

    #[test]
    fn parameter_is_read_from_its_segment() {
        let of = |text: &str, name: &str, path: &str| pattern(text).parameter(name).and_then(|one| one.of(path));
        assert_eq!(of("POST /orders/{id}/pay", "id", "/orders/7/pay"), Some("7".into()));
        assert_eq!(of("/{shop}/{id}", "id", "/a/order%207%"), Some("order 7%".into()));
        assert_eq!(of("/{id}", "id", "/%ff"), None);
        for (text, name) in [("/{a}", "b"), ("/{*all}", "*all"), ("/{a}/{a}", "a"), ("/orders", "orders")] {
            assert_eq!(pattern(text).parameter(name), None, "{text}");
        }
    }

    #[test]
    fn invalid_patterns_are_refused() {
        for text in ["", "orders", "POST", "post /orders", "CONNECT /", "/{*rest}/a", "/{id", "/a{id}", "/{}", "/a?b"] {
            assert!(Pattern::parse(text).is_err(), "{text:?} was accepted");
        }
    }

    #[test]
    fn more_specific_pattern_comes_first() {
        let mut patterns =
            ["/{*rest}", "/orders/{id}", "/orders/last", "POST /orders/{id}", "/{kind}/last"].map(pattern);
        patterns.sort_by(Pattern::precedence);
        let ordered = patterns.each_ref().map(ToString::to_string);
        assert_eq!(ordered, ["/orders/last", "POST /orders/{id}", "/orders/{id}", "/{kind}/last", "/{*rest}"]);
        assert!(pattern("/a/{x}").is_same_as(&pattern("/a/{y}")));
        assert!(!pattern("PUT /a/{x}").is_same_as(&pattern("POST /a/{y}")));
    }

    #[test]
    fn dot_segments_are_found_in_every_spelling() {
        for path in ["/a/../b", "/a/.", "/%2e%2E/b", "/a/.%2e", "/a/..%2fb", "/a\\..\\b", "/a%5c..%5Cb", "/.."] {
            assert!(has_dot_segments(path), "{path}");
        }
        for path in ["/a/b", "/a/...", "/a.b/.c", "/a%2fb", "/"] {
            assert!(!has_dot_segments(path), "{path}");
        }
    }
}
