//! The languages of the pages.

use axum::http::{HeaderMap, header};

/// Texts stand in the code in both languages, next to each other, so that neither can be forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Language {
    English,
    Chinese,
}

impl Language {
    pub(super) fn pick<T>(self, english: T, chinese: T) -> T {
        match self {
            Self::English => english,
            Self::Chinese => chinese,
        }
    }

    pub(super) fn code(self) -> &'static str {
        self.pick("en", "zh")
    }

    /// The value of the attribute `lang`.
    pub(super) fn tag(self) -> &'static str {
        self.pick("en", "zh-CN")
    }

    pub(super) fn other(self) -> Self {
        self.pick(Self::Chinese, Self::English)
    }

    pub(super) fn from_code(code: &str) -> Option<Self> {
        [Self::English, Self::Chinese].into_iter().find(|language| language.code() == code)
    }

    /// Returns the first language of `Accept-Language` that exists here; browsers send them in order of preference.
    pub(super) fn accepted(headers: &HeaderMap) -> Self {
        let given = headers.get(header::ACCEPT_LANGUAGE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let mut codes = given.split(',').map(|part| part.trim().split(['-', ';']).next().unwrap_or_default());
        codes.find_map(|code| Self::from_code(&code.to_ascii_lowercase())).unwrap_or(Self::English)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_known_language_is_accepted() {
        let accepted = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT_LANGUAGE, text.parse().unwrap());
            Language::accepted(&headers)
        };
        assert_eq!(accepted("zh-CN,zh;q=0.9,en;q=0.8"), Language::Chinese);
        assert_eq!(accepted("de-DE,en;q=0.5,zh;q=0.3"), Language::English);
        assert_eq!(accepted("fr"), Language::English);
        assert_eq!(Language::accepted(&HeaderMap::new()), Language::English);
    }
}
