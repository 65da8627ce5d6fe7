use std::fmt;

/// The headers that Landfall itself writes on a message that it moved aside. Senders cannot set them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SystemHeader {
    /// Tries so far.
    Attempts,
    /// Not to be tried again before.
    RetryAt,
    OriginalTopic,
    OriginalPartition,
    OriginalOffset,
    /// The failure's code, and what it says.
    ErrorCode,
    Error,
    FailedAt,
}

impl SystemHeader {
    pub const ALL: [SystemHeader; 8] = [
        Self::Attempts,
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

impl fmt::Display for SystemHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
