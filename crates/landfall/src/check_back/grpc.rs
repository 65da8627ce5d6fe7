//! Answers check-backs over gRPC, in a business service.
//!
//! A half message with `check_back.grpc` names the service. Prefer the barrier in the database of the service, which
//! answers while the service is down.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use landfall_core::{Error, MessageId, Result, Timestamp};
use landfall_grpc::check_back_server::{CheckBack, CheckBackServer};
use landfall_grpc::check_reply::State;
use landfall_grpc::{CheckReply, CheckRequest};
use prost::Message;
use ring::hmac;
use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status};

use super::Answer;

/// The oldest and the newest signature that is accepted, from the clock of this machine.
const TOLERANCE: Duration = Duration::from_secs(300);

/// Which half message a check-back is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    pub id: MessageId,
    pub business_type: String,
    pub business_id: String,
}

/// What a business service knows about its local transactions.
///
/// ```
/// use async_trait::async_trait;
/// use landfall::check_back::Answer;
/// use landfall::check_back::grpc::{LocalTransactions, Question, Secrets, service};
///
/// struct Orders;
///
/// #[async_trait]
/// impl LocalTransactions for Orders {
///     async fn answer(&self, question: &Question) -> Answer {
///         match question.business_id.as_str() {
///             "order-1" => Answer::Committed,
///             other => Answer::unknown(format_args!("order {other} is still open")),
///         }
///     }
/// }
///
/// # fn main() -> landfall::Result<()> {
/// let secrets = Secrets::new(["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"])?;
/// // Serve it with tonic: `Server::builder().add_service(orders).serve(address)`.
/// let orders = service(Orders, secrets);
/// # drop(orders);
/// # Ok(())
/// # }
/// ```
#[async_trait]
pub trait LocalTransactions: Send + Sync + 'static {
    /// Says what became of the local transaction.
    ///
    /// Answer `RolledBack` only if the transaction can never commit. One that is still open is unknown, and so is an
    /// error: the coordinator asks again.
    async fn answer(&self, question: &Question) -> Answer;
}

/// The secrets of `check_back.secret`. A request needs a signature by one of them.
#[derive(Clone)]
pub struct Secrets(Vec<hmac::Key>);

impl Secrets {
    /// Reads secrets of the form `whsec_…`. Fails with kind `Invalid` if there is none, or one has another form.
    pub fn new<'a>(secrets: impl IntoIterator<Item = &'a str>) -> Result<Self> {
        let key = |secret: &str| {
            let bytes = secret.strip_prefix("whsec_").and_then(|text| STANDARD.decode(text).ok());
            let bytes = bytes.filter(|bytes| (24..=64).contains(&bytes.len()));
            let bytes = bytes.ok_or_else(|| Error::invalid("a secret must be whsec_ and 24 to 64 bytes in base64"))?;
            Ok(hmac::Key::new(hmac::HMAC_SHA256, &bytes))
        };
        let keys = secrets.into_iter().map(key).collect::<Result<Vec<_>>>()?;
        if keys.is_empty() {
            return Err(Error::invalid("no secret is given; use Secrets::unsigned to accept every request"));
        }
        Ok(Self(keys))
    }

    /// Accepts every request, signed or not. For coordinators without `check_back.secret`.
    pub fn unsigned() -> Self {
        Self(Vec::new())
    }

    /// Verifies a Standard Webhooks signature over `body`, for the message with this id.
    fn verify(&self, metadata: &MetadataMap, id: &str, body: &[u8], now: Timestamp) -> std::result::Result<(), Status> {
        if self.0.is_empty() {
            return Ok(());
        }
        let refused = |why: &str| Status::unauthenticated(format!("the request has no valid signature: {why}"));
        let text = |name: &str| metadata.get(name).and_then(|value| value.to_str().ok());
        let seconds = text("webhook-timestamp").and_then(|seconds| seconds.parse::<i64>().ok());
        let seconds = seconds.ok_or_else(|| refused("webhook-timestamp is missing"))?;
        if now.as_millis().div_euclid(1000).abs_diff(seconds) > TOLERANCE.as_secs() {
            return Err(refused("webhook-timestamp is more than five minutes off"));
        }
        if text("webhook-id") != Some(id) {
            return Err(refused("webhook-id is not the id"));
        }
        let signed = [format!("{id}.{seconds}.").as_bytes(), body].concat();
        let given = text("webhook-signature").unwrap_or_default().split(' ');
        let mut given = given.filter_map(|one| STANDARD.decode(one.strip_prefix("v1,")?).ok());
        let is_valid = given.any(|tag| self.0.iter().any(|key| hmac::verify(key, &signed, &tag).is_ok()));
        if is_valid { Ok(()) } else { Err(refused("webhook-signature does not match")) }
    }
}

/// Returns the service of `transactions`, for tonic or any server of tower services.
pub fn service<T: LocalTransactions>(transactions: T, secrets: Secrets) -> CheckBackServer<Answering<T>> {
    CheckBackServer::new(Answering { transactions, secrets })
}

/// `landfall.v1.CheckBack` in terms of [`LocalTransactions`].
pub struct Answering<T> {
    transactions: T,
    secrets: Secrets,
}

#[async_trait]
impl<T: LocalTransactions> CheckBack for Answering<T> {
    async fn check(&self, request: Request<CheckRequest>) -> std::result::Result<Response<CheckReply>, Status> {
        let asked = request.get_ref();
        // Serialized again, these are the bytes that were sent; see the service definition.
        self.secrets.verify(request.metadata(), &asked.id, &asked.encode_to_vec(), Timestamp::now())?;
        let question = Question {
            id: asked.id.parse().map_err(|_| Status::invalid_argument("the id is no UUID"))?,
            business_type: asked.business_type.clone(),
            business_id: asked.business_id.clone(),
        };
        let state = match self.transactions.answer(&question).await {
            Answer::Committed => State::Committed,
            Answer::RolledBack => State::RolledBack,
            Answer::Unknown(reason) => {
                tracing::info!(id = %question.id, reason, "check-back answered with unknown");
                State::Unknown
            }
        };
        Ok(Response::new(CheckReply { state: state.into() }))
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secrets").field("count", &self.0.len()).finish()
    }
}

impl<T> fmt::Debug for Answering<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answering").field("secrets", &self.secrets).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

    fn metadata(pairs: &[(&'static str, &str)]) -> MetadataMap {
        let mut metadata = MetadataMap::new();
        for (name, value) in pairs {
            metadata.insert(*name, value.parse().unwrap());
        }
        metadata
    }

    /// The example from the specification's own libraries.
    #[test]
    fn only_fresh_signatures_by_the_secret_are_valid() {
        let body = br#"{"test": 2432232314}"#;
        let (id, seconds) = ("msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330");
        let signature = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
        let signed = [("webhook-id", id), ("webhook-timestamp", seconds), ("webhook-signature", signature)];
        let at = |offset: i64| Timestamp::from_millis((1_614_265_330 + offset) * 1000);
        let secrets = Secrets::new([SECRET]).unwrap();
        let verify = |pairs: &[_], body: &[u8], now| secrets.verify(&metadata(pairs), id, body, now).is_ok();
        assert!(verify(&signed, body, at(0)) && verify(&signed, body, at(299)) && verify(&signed, body, at(-299)));
        assert!(!verify(&signed, body, at(302)), "an old request was accepted");
        assert!(!verify(&signed, b"other", at(0)), "another body was accepted");
        assert!(!verify(&signed[..2], body, at(0)), "an unsigned request was accepted");
        assert!(secrets.verify(&metadata(&signed), "other", body, at(0)).is_err(), "another id was accepted");
        let rotated = format!("v1,AAAA v2,x {signature}");
        let rotated = [signed[0], signed[1], ("webhook-signature", rotated.as_str())];
        assert!(verify(&rotated, body, at(0)), "one of several signatures suffices");
        let other = Secrets::new(["whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"]).unwrap();
        assert!(other.verify(&metadata(&signed), id, body, at(0)).is_err());
        assert!(Secrets::unsigned().verify(&metadata(&[]), id, body, at(0)).is_ok());
    }

    #[test]
    fn secrets_are_checked_and_never_printed() {
        for secret in ["", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_short", "whsec_"] {
            assert!(Secrets::new([secret]).is_err(), "{secret}");
        }
        assert!(Secrets::new([]).is_err());
        assert_eq!(format!("{:?}", Secrets::new([SECRET]).unwrap()), "Secrets { count: 1 }");
    }
}
