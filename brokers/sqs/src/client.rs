//! The SDK's client: endpoint, credentials, TLS and timeouts.

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

/// Idle connections are closed after this time, before a load balancer closes them during a request.
const IDLE_TIMEOUT: Duration = Duration::from_secs(20);

/// Creates the client. It sends no request: SQS has no persistent sessions.
pub(crate) async fn connect(options: &Options) -> Result<Client> {
    let http = http_client(options)?;
    // No retries by the SDK: it could not report whether the first attempt had an effect. The publisher and the
    // subscriber retry instead.
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
            Err(Error::invalid("no region: set one in the URL (sqs://eu-central-1), in AWS_REGION or in the profile"))
        }
    }
}

/// Returns the timeouts of a client. `call` limits one request from its start to its answer.
pub(crate) fn timeouts(options: &Options, call: Duration) -> TimeoutConfig {
    TimeoutConfig::builder().connect_timeout(options.connect_timeout).operation_attempt_timeout(call).build()
}

fn http_client(options: &Options) -> Result<SharedHttpClient> {
    let trusted = match &options.ca {
        None => TrustStore::default(),
        Some(file) => TrustStore::empty().with_pem_certificate(authority(file).map_err(|error| {
            let reason = format!("the certificate authority in {} cannot be used", file.display());
            Error::invalid(reason).with_source(error)
        })?),
    };
    let unusable = |error| Error::invalid("the certificate authority cannot be used").with_source(error);
    let context = TlsContext::builder().with_trust_store(trusted).build().map_err(unusable)?;
    let builder = aws_smithy_http_client::Builder::new().tls_provider(Provider::Rustls(CryptoMode::Ring));
    Ok(builder.tls_context(context).pool_idle_timeout(IDLE_TIMEOUT).build_https())
}

/// Reads and validates the certificates in `file`. The SDK accepts any bytes, and panics on invalid ones when
/// connecting.
fn authority(file: &Path) -> Result<Vec<u8>, Box<dyn StdError + Send + Sync>> {
    let pem = std::fs::read(file)?;
    let mut store = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        store.add(certificate?)?;
    }
    if store.is_empty() {
        return Err("the file contains no certificate".into());
    }
    Ok(pem)
}
