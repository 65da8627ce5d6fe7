//! Object storage: S3, Google Cloud Storage and Azure.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::TryStreamExt;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::path::Path;
use object_store::prefix::PrefixStore;
use object_store::{ClientOptions, ObjectStore, ObjectStoreExt, RetryConfig};

use super::store::Store;
use crate::config::Address;
use crate::error::{Error, Result};

/// The longest time of one request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

const RETRIES: usize = 3;

/// After this time, no request is repeated.
const RETRY_TIMEOUT: Duration = Duration::from_secs(30);

/// A bucket, and the prefix of the names in it.
#[derive(Debug)]
struct Bucket {
    objects: PrefixStore<Box<dyn ObjectStore>>,
    /// The URL, for errors.
    address: Address,
}

/// Opens object storage by its URL: `s3://bucket/prefix`, `gs://…` or `az://…`. Credentials come from the environment
/// (`AWS_…`, `GOOGLE_…`, `AZURE_…`) or from the parameters of the URL.
pub(super) fn open(address: &Address) -> Result<Arc<dyn Store>> {
    // The client of object storage uses the provider of the process; ring, as everywhere else.
    let _ = tokio_rustls::rustls::crypto::ring::default_provider().install_default();
    let (url, parameters) = match address.expose().split_once('?') {
        Some((url, parameters)) => (url, parameters),
        None => (address.expose(), ""),
    };
    let parameters: Vec<(String, String)> = form_urlencoded::parse(parameters.as_bytes()).into_owned().collect();
    let prefix = url.split_once("://").and_then(|(_, rest)| rest.split_once('/')).map_or("", |(_, prefix)| prefix);
    let retry = || RetryConfig { max_retries: RETRIES, retry_timeout: RETRY_TIMEOUT, ..RetryConfig::default() };
    // Only the operator chooses a server without TLS: by its URL.
    let client = ClientOptions::new()
        .with_timeout(REQUEST_TIMEOUT)
        .with_allow_http(parameters.iter().any(|(_, value)| value.starts_with("http://")));
    let wrong = |error: object_store::Error| Error::usage(format!("the archive {address}: {error}"));
    let objects: Box<dyn ObjectStore> = match address.scheme().as_str() {
        "s3" | "s3a" => {
            let builder = AmazonS3Builder::from_env().with_url(url).with_retry(retry()).with_client_options(client);
            let builder = set(address, builder, &parameters, |builder, key: AmazonS3ConfigKey, value| {
                builder.with_config(key, value)
            })?;
            Box::new(builder.build().map_err(wrong)?)
        }
        "gs" => {
            let builder = GoogleCloudStorageBuilder::from_env().with_url(url).with_retry(retry());
            let builder = builder.with_client_options(client);
            let builder = set(address, builder, &parameters, |builder, key: GoogleConfigKey, value| {
                builder.with_config(key, value)
            })?;
            Box::new(builder.build().map_err(wrong)?)
        }
        "az" | "azure" | "abfs" | "abfss" => {
            let builder = MicrosoftAzureBuilder::from_env().with_url(url).with_retry(retry());
            let builder = builder.with_client_options(client);
            let builder = set(address, builder, &parameters, |builder, key: AzureConfigKey, value| {
                builder.with_config(key, value)
            })?;
            Box::new(builder.build().map_err(wrong)?)
        }
        scheme => {
            let known = "a path, file:///folder, s3://bucket/prefix, gs://bucket/prefix or az://container/prefix";
            return Err(Error::usage(format!("the archive has the unknown scheme {scheme:?}; write {known}")));
        }
    };
    Ok(Arc::new(Bucket { objects: PrefixStore::new(objects, prefix), address: address.clone() }))
}

/// Sets the parameters of a URL. An unknown one is an error.
fn set<B, K: FromStr>(
    address: &Address,
    mut builder: B,
    parameters: &[(String, String)],
    with: fn(B, K, String) -> B,
) -> Result<B> {
    for (name, value) in parameters {
        let key = name
            .parse()
            .map_err(|_| Error::usage(format!("the archive {address} has the unknown parameter {name:?}")))?;
        builder = with(builder, key, value.clone());
    }
    Ok(builder)
}

impl Bucket {
    fn failed(&self, doing: &str, error: &object_store::Error) -> Error {
        // The cause, for example a refused login, is at the end of the chain.
        let mut text = error.to_string();
        let mut source = std::error::Error::source(error);
        while let Some(cause) = source {
            let cause_text = cause.to_string();
            if !text.contains(&cause_text) {
                text = format!("{text}: {cause_text}");
            }
            source = cause.source();
        }
        let advice = match error {
            object_store::Error::Unauthenticated { .. } | object_store::Error::PermissionDenied { .. } => {
                "; check the credentials and what they may do"
            }
            _ => "",
        };
        Error::failed(format!("cannot {doing} the archive {}: {text}{advice}", self.address))
    }
}

#[async_trait]
impl Store for Bucket {
    async fn put(&self, name: &str, content: Bytes) -> Result<()> {
        let stored = self.objects.put(&Path::from(name), content.into()).await;
        stored.map(drop).map_err(|error| self.failed(&format!("write {name} to"), &error))
    }

    async fn get(&self, name: &str) -> Result<Option<Bytes>> {
        let read = async { self.objects.get(&Path::from(name)).await?.bytes().await };
        match read.await {
            Ok(content) => Ok(Some(content)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(self.failed(&format!("read {name} from"), &error)),
        }
    }

    async fn list(&self, suffix: &str) -> Result<Vec<String>> {
        let listed = self.objects.list(None).map_ok(|object| object.location.to_string());
        let names: Vec<String> = listed.try_collect().await.map_err(|error| self.failed("list", &error))?;
        let mut names: Vec<_> = names.into_iter().filter(|name| name.ends_with(suffix)).collect();
        names.sort();
        Ok(names)
    }
}
