use std::fmt;

use crate::Headers;

/// The headers that Landfall adds to a message in a retry lane or `.dlq` topic. Senders cannot set them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SystemHeader {
    /// Attempts so far.
    Attempts,
    /// The group in which it failed; other groups skip it.
    Group,
    /// The earliest next attempt.
    RetryAt,
    OriginalTopic,
    OriginalPartition,
    OriginalOffset,
    /// The failure's code and text.
    ErrorCode,
    Error,
    FailedAt,
}

impl SystemHeader {
    pub const ALL: [SystemHeader; 9] = [
        Self::Attempts,
        Self::Group,
        Self::RetryAt,
        Self::OriginalTopic,
        Self::OriginalPartition,
        Self::OriginalOffset,
        Self::ErrorCode,
        Self::Error,
        Self::FailedAt,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Attempts => "landfall-attempts",
            Self::Group => "landfall-group",
            Self::RetryAt => "landfall-retry-at",
            Self::OriginalTopic => "landfall-original-topic",
            Self::OriginalPartition => "landfall-original-partition",
            Self::OriginalOffset => "landfall-original-offset",
            Self::ErrorCode => "landfall-error-code",
            Self::Error => "landfall-error",
            Self::FailedAt => "landfall-failed-at",
        }
    }

    pub(crate) fn is(name: &str) -> bool {
        Self::ALL.iter().any(|header| header.as_str() == name)
    }
}

impl Headers {
    /// Returns the value of a system header.
    pub fn noted(&self, header: SystemHeader) -> Option<&str> {
        self.get(header.as_str())
    }

    /// Returns the sender's headers without the system headers.
    #[must_use]
    pub fn without_notes(&self) -> Headers {
        let mut own = Headers::default();
        for (name, value) in self.iter().filter(|(name, _)| !SystemHeader::is(name)) {
            // They were valid before, so this cannot fail.
            let _ = own.insert(name, value);
        }
        own
    }
}

impl fmt::Display for SystemHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
