//! The stored answer of work that is done.

use bytes::Bytes;

/// The answer that a repeat gets: a status, headers and a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// An HTTP status; 200 for work that is no HTTP request.
    pub status: u16,
    /// Headers that may be replayed. Never one that belongs to a connection or a session, such as `Set-Cookie`.
    pub headers: Vec<(String, String)>,
    pub body: Body,
}

/// The body of a stored answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body {
    Kept(Bytes),
    /// Larger than the limit, or a stream. The work is done; a repeat learns the status and the headers.
    NotKept,
    /// Removed after the retention of results. The work is done.
    Expired,
}

impl Snapshot {
    /// The largest body that is stored; a larger one becomes [`Body::NotKept`].
    pub const MAX_BODY_BYTES: usize = 256 * 1024;

    /// Makes the answer of work that is no HTTP request.
    pub fn from_bytes(body: impl Into<Bytes>) -> Self {
        Self::new(200, Vec::new(), body)
    }

    /// Makes an answer. A body beyond [`Snapshot::MAX_BODY_BYTES`] is not kept.
    pub fn new(status: u16, headers: Vec<(String, String)>, body: impl Into<Bytes>) -> Self {
        let body = body.into();
        let body = if body.len() > Self::MAX_BODY_BYTES { Body::NotKept } else { Body::Kept(body) };
        Self { status, headers, body }
    }
}

impl Body {
    pub fn kept(&self) -> Option<&Bytes> {
        match self {
            Self::Kept(bytes) => Some(bytes),
            Self::NotKept | Self::Expired => None,
        }
    }

    /// Returns the word for stores: `kept`, `not_kept` or `expired`.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Kept(_) => "kept",
            Self::NotKept => "not_kept",
            Self::Expired => "expired",
        }
    }
}
