//! The SDK's client: where it connects to, who it is, and how long it waits.

use std::error::Error as StdError;
use std::path::Path;
use std::time::Duration;

use aws_config::{BehaviorVersion, Region};
use aws_sdk_sqs::Client;
use aws_sdk_sqs::config::retry::RetryConfig;
use aws_sdk_sqs::config::timeout::TimeoutConfig;
use aws_sdk_sqs::config::{Credentials, SharedHttpClient, StalledStreamProtectionConfig};
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use aws_smithy_http_client::tls::{Provider, TlsContext, TrustStore};
use landfall_core::{Error, Result};
use tokio_rustls::rustls::RootCertStore;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;

use crate::Options;

/// A connection that nobody used for so long is closed from this side, before a load balancer does it in the middle of
/// a request.
const IDLE: Duration = Duration::from_secs(20);

/// Nothing is sent yet: SQS has no connections that stay.
pub(crate) async fn connect(options: &Options) -> Result<Client> {
    let http = http_client(options)?;
    // The SDK would send again by itself, and could not say whether the first time was heard: whoever publishes or
    // consumes knows better when to try again.
    let mut loader = aws_config::defaults(BehaviorVersion::latest())
        .http_client(http)
        .retry_config(RetryConfig::disabled())
        .timeout_config(timeouts(options, options.timeout))
        .stalled_stream_protection(StalledStreamProtectionConfig::disabled());
    if let Some(region) = &options.region {
        loader = loader.region(Region::new(region.clone()));
    }
    if let Some(profile) = &options.profile {
        loader = loader.profile_name(profile);
    }
    if let Some(endpoint) = &options.endpoint {
        loader = loader.endpoint_url(endpoint);
    }
    if let Some(key) = &options.access_key {
        let token = key.session_token.clone();
        loader = loader.credentials_provider(Credentials::new(&key.id, &key.secret, token, None, "the broker URL"));
    }
    let config = loader.load().await;
    match config.region() {
        Some(_) => Ok(Client::new(&config)),
        None => {
            Err(Error::invalid("no region: name one in the URL (sqs://eu-central-1), in AWS_REGION or the profile"))
        }
    }
}

/// `call` is how long one request may take from its beginning to its answer.
pub(crate) fn timeouts(options: &Options, call: Duration) -> TimeoutConfig {
    TimeoutConfig::builder().connect_timeout(options.connect_timeout).operation_attempt_timeout(call).build()
}

fn http_client(options: &Options) -> Result<SharedHttpClient> {
    let trusted = match &options.ca {
        None => TrustStore::default(),
        Some(file) => TrustStore::empty().with_pem_certificate(authority(file).map_err(|error| {
            let sentence = format!("the certificate authority in {} cannot be used", file.display());
            Error::invalid(sentence).with_source(error)
        })?),
    };
    let unusable = |error| Error::invalid("the certificate authority cannot be used").with_source(error);
    let context = TlsContext::builder().with_trust_store(trusted).build().map_err(unusable)?;
    let builder = aws_smithy_http_client::Builder::new().tls_provider(Provider::Rustls(CryptoMode::Ring));
    Ok(builder.tls_context(context).pool_idle_timeout(IDLE).build_https())
}

/// The certificates in `file`, which are certificates: the SDK takes any bytes, and panics over them when it connects.
fn authority(file: &Path) -> Result<Vec<u8>, Box<dyn StdError + Send + Sync>> {
    let pem = std::fs::read(file)?;
    let mut known = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        known.add(certificate?)?;
    }
    if known.is_empty() {
        return Err("there is no certificate".into());
    }
    Ok(pem)
}
