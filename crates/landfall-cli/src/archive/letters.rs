//! The archive of dead letters: store, verify, list and read.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use landfall::housekeeping::Archive;
use landfall::{ArchivedLetter, ErrorKind};

use super::manifest::{MANIFEST, Manifest, Object, manifest_name};
use super::store::{self, Store};
use super::{encoding, manifest};
use crate::config::Address;
use crate::error::{Error, Result};

#[derive(Debug, Clone)]
pub(crate) struct LetterArchive(Arc<dyn Store>);

impl LetterArchive {
    /// Refuses URLs that this build does not support. Makes no connection.
    pub(crate) fn open(address: &Address) -> Result<Self> {
        Ok(Self(store::open(address)?))
    }

    /// Stores letters as one object with a manifest. Returns after both were read back and compared.
    pub(crate) async fn save(&self, letters: Vec<ArchivedLetter>) -> Result<Object> {
        let (letters, content) = in_background(move || {
            let content = encoding::encode(&letters).map(Bytes::from);
            (letters, content)
        })
        .await?;
        let content = content.map_err(|error| Error::failed(format!("cannot encode dead letters: {error}")))?;
        let object = Object::of(&letters, &content);
        self.0.put(&object.name, content).await?;
        if self.load(&object).await? != letters {
            return Err(Error::failed(format!("{} was read back with other letters; nothing is removed", object.name)));
        }
        let content = serde_json::to_vec(&Manifest::new(object.clone()))
            .map_err(|error| Error::failed(format!("cannot encode a manifest: {error}")))?;
        let name = manifest_name(&object.name);
        self.0.put(&name, content.into()).await?;
        if self.manifest(&name).await?.objects != [object.clone()] {
            return Err(Error::failed(format!("{name} was read back with another content; nothing is removed")));
        }
        Ok(object)
    }

    /// Returns the letters of an object, after its checksum was verified.
    pub(crate) async fn load(&self, object: &Object) -> Result<Vec<ArchivedLetter>> {
        let name = &object.name;
        let content = self.0.get(name).await?;
        let content = content.ok_or_else(|| Error::failed(format!("{name} is missing in the archive")))?;
        let described = object.clone();
        let opened = in_background(move || described.open(&content)).await?;
        opened.map_err(|error| Error::failed(format!("{name} is damaged: it {error}")))
    }

    /// Returns the names of all manifests, the oldest letters first.
    pub(crate) async fn manifests(&self) -> Result<Vec<String>> {
        self.0.list(MANIFEST).await
    }

    /// Returns the objects of a manifest.
    pub(crate) async fn objects(&self, manifest: &str) -> Result<Vec<Object>> {
        Ok(self.manifest(manifest).await?.objects)
    }

    /// Returns the object with this name.
    pub(crate) async fn object(&self, name: &str) -> Result<Object> {
        let found = self.manifest(&manifest::manifest_name(name)).await?;
        let object = found.objects.into_iter().find(|object| object.name == name);
        object.ok_or_else(|| Error::failed(format!("the manifest of {name} does not name it")))
    }

    async fn manifest(&self, name: &str) -> Result<Manifest> {
        let content = self.0.get(name).await?;
        let content = content.ok_or_else(|| {
            Error::failed(format!("{name} is missing in the archive; without a manifest an object is unfinished"))
        })?;
        Manifest::parse(&content).map_err(|error| Error::failed(format!("{name} {error}")))
    }
}

#[async_trait]
impl Archive<ArchivedLetter> for LetterArchive {
    async fn store(&self, rows: Vec<ArchivedLetter>) -> landfall::Result<String> {
        let saved = self.save(rows).await;
        let object = saved.map_err(|error| {
            let text = format!("cannot archive dead letters, so they stay in the database: {error}");
            landfall::Error::new(ErrorKind::Unavailable, text)
        })?;
        Ok(object.name)
    }
}

async fn in_background<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| Error::failed(format!("the archive of dead letters panicked: {error}")))
}
