//! The targets of a check-back, and the order in which they are asked.

use std::collections::HashMap;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt;
use landfall_core::{Barriers, Error, ErrorKind, HalfMessage, HalfVerdict, Result, Timestamp};

/// What a target says about the local transaction of a half message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    Committed,
    /// The transaction was rolled back, and cannot commit any more.
    RolledBack,
    /// Neither is certain, with the reason. It is asked again.
    Unknown(String),
}

impl Answer {
    /// Makes an answer of kind `Unknown`.
    pub fn unknown(reason: impl fmt::Display) -> Self {
        Self::Unknown(reason.to_string())
    }

    pub fn verdict(&self) -> Option<HalfVerdict> {
        match self {
            Self::Committed => Some(HalfVerdict::Committed),
            Self::RolledBack => Some(HalfVerdict::RolledBack),
            Self::Unknown(_) => None,
        }
    }

    /// The label of the answer in metrics.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Committed => "committed",
            Self::RolledBack => "rolled_back",
            Self::Unknown(_) => "unknown",
        }
    }
}

/// One way to ask for the verdict on a half message. A Rust service can implement it and run its own
/// [`Coordinator`](super::Coordinator).
///
/// ```
/// use async_trait::async_trait;
/// use landfall::HalfMessage;
/// use landfall::check_back::{Answer, CheckBackTarget};
///
/// struct Orders;
///
/// #[async_trait]
/// impl CheckBackTarget for Orders {
///     async fn ask(&self, half: &HalfMessage) -> Answer {
///         match half.business_id.as_str() {
///             "order-1" => Answer::Committed,
///             other => Answer::unknown(format_args!("order {other} is still open")),
///         }
///     }
/// }
/// ```
#[async_trait]
pub trait CheckBackTarget: Send + Sync {
    /// Asks once. Everything but a clear answer is [`Answer::Unknown`]: an error, a response that cannot be read.
    ///
    /// Answer `RolledBack` only if the transaction can never commit. A transaction that is still open is unknown.
    /// The coordinator drops the future after its timeout, so it must be cancellation-safe.
    async fn ask(&self, half: &HalfMessage) -> Answer;
}

/// The targets that a coordinator can ask.
#[derive(Clone, Default)]
pub struct Targets {
    databases: HashMap<String, Arc<dyn Barriers>>,
    http: Option<Arc<dyn CheckBackTarget>>,
    grpc: Option<Arc<dyn CheckBackTarget>>,
}

impl Targets {
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a business database with a barrier table under the name that half messages use.
    #[must_use]
    pub fn database(mut self, name: impl Into<String>, barriers: Arc<dyn Barriers>) -> Self {
        self.databases.insert(name.into(), barriers);
        self
    }

    /// Sets what asks the URL `check_back.http`.
    #[must_use]
    pub fn http(mut self, target: Arc<dyn CheckBackTarget>) -> Self {
        self.http = Some(target);
        self
    }

    /// Sets what asks the URL `check_back.grpc`.
    #[must_use]
    pub fn grpc(mut self, target: Arc<dyn CheckBackTarget>) -> Self {
        self.grpc = Some(target);
        self
    }

    /// Asks the targets of `half`, prepared at `prepared_at`, in order, each within `timeout`, until one knows.
    pub async fn ask(&self, half: &HalfMessage, prepared_at: Timestamp, timeout: Duration) -> Answer {
        let mut reasons = Vec::new();
        if let Some(name) = &half.check_back.database {
            let asked = async { from_barrier(self.ask_database(name, half, prepared_at).await) };
            match within(timeout, asked).await {
                Answer::Unknown(reason) => reasons.push(format!("database {name}: {reason}")),
                known => return known,
            }
        }
        let remote = [("http", &half.check_back.http, &self.http), ("grpc", &half.check_back.grpc, &self.grpc)];
        for (kind, url, target) in remote {
            if url.is_none() {
                continue;
            }
            let Some(target) = target else {
                reasons.push(format!("{kind}: this coordinator cannot ask over {kind}"));
                continue;
            };
            match within(timeout, target.ask(half)).await {
                Answer::Unknown(reason) => reasons.push(format!("{kind}: {reason}")),
                known => return known,
            }
        }
        if reasons.is_empty() {
            return Answer::unknown("the message names no target for a check-back");
        }
        Answer::Unknown(reasons.join("; "))
    }

    async fn ask_database(&self, name: &str, half: &HalfMessage, at: Timestamp) -> Result<Option<HalfVerdict>> {
        let unknown = || Error::new(ErrorKind::NotFound, "no database is configured under this name");
        self.databases.get(name).ok_or_else(unknown)?.ask_barrier(half.message.id, at).await
    }
}

fn from_barrier(asked: Result<Option<HalfVerdict>>) -> Answer {
    match asked {
        Ok(Some(HalfVerdict::Committed)) => Answer::Committed,
        Ok(Some(HalfVerdict::RolledBack)) => Answer::RolledBack,
        Ok(None) => Answer::unknown("the local transaction is still open, or the barrier cannot say"),
        Err(error) => Answer::unknown(error),
    }
}

/// Neither a timeout nor a panic of a target says anything about the transaction.
async fn within(timeout: Duration, ask: impl Future<Output = Answer>) -> Answer {
    match tokio::time::timeout(timeout, AssertUnwindSafe(ask).catch_unwind()).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(_)) => Answer::unknown("the target panicked"),
        Err(_) => Answer::unknown(format_args!("no answer within {} ms", timeout.as_millis())),
    }
}

impl fmt::Debug for Targets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Targets")
            .field("databases", &self.databases.keys())
            .field("http", &self.http.is_some())
            .field("grpc", &self.grpc.is_some())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use landfall_core::{CheckBack, Message, MessageId, TopicName};

    use super::*;

    enum Scripted {
        Says(Answer),
        Fails,
        Stalls,
        Panics,
    }

    #[async_trait]
    impl CheckBackTarget for Scripted {
        async fn ask(&self, _: &HalfMessage) -> Answer {
            match self {
                Self::Says(answer) => answer.clone(),
                Self::Fails => Answer::unknown("HTTP 500"),
                Self::Stalls => std::future::pending().await,
                Self::Panics => panic!("scripted"),
            }
        }
    }

    struct Barrier(Option<HalfVerdict>);

    #[async_trait]
    impl Barriers for Barrier {
        async fn ask_barrier(&self, _: MessageId, _: Timestamp) -> Result<Option<HalfVerdict>> {
            match self.0 {
                None => Err(Error::new(ErrorKind::Unavailable, "the database is down")),
                verdict => Ok(verdict),
            }
        }

        async fn longest_transaction(&self) -> Result<Option<Duration>> {
            Ok(None)
        }
    }

    fn half(database: Option<&str>, http: bool) -> HalfMessage {
        HalfMessage {
            message: Message::new(TopicName::new("orders").unwrap(), "1"),
            business_type: "order".into(),
            business_id: "1".into(),
            check_back: CheckBack {
                database: database.map(str::to_owned),
                http: http.then(|| "http://localhost/".to_owned()),
                grpc: None,
            },
            check_after: Duration::ZERO,
        }
    }

    #[tokio::test]
    async fn database_is_asked_before_http() {
        let http = Arc::new(Scripted::Says(Answer::Committed));
        let targets = |verdict| Targets::new().database("shop", Arc::new(Barrier(verdict))).http(http.clone());
        let ask = async |targets: Targets, half| targets.ask(&half, Timestamp::now(), Duration::from_secs(5)).await;
        let rolled_back = targets(Some(HalfVerdict::RolledBack));
        assert_eq!(ask(rolled_back, half(Some("shop"), true)).await, Answer::RolledBack);
        assert_eq!(ask(targets(None), half(Some("shop"), true)).await, Answer::Committed, "HTTP is the fallback");
        for (half, reason) in [
            (half(Some("shop"), false), "database shop: the database is down"),
            (half(Some("other"), false), "database other: no database is configured under this name"),
            (half(None, false), "the message names no target"),
        ] {
            let answer = ask(targets(None), half).await;
            assert!(matches!(&answer, Answer::Unknown(why) if why.starts_with(reason)), "{answer:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn failure_timeout_and_panic_are_unknown() {
        for target in [Scripted::Fails, Scripted::Stalls, Scripted::Panics] {
            let targets = Targets::new().http(Arc::new(target));
            let answer = targets.ask(&half(None, true), Timestamp::now(), Duration::from_secs(1)).await;
            assert!(matches!(answer, Answer::Unknown(_)), "{answer:?}");
            assert_eq!(answer.verdict(), None);
        }
    }
}
