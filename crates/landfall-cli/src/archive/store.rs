//! Where objects are: a folder, or object storage.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;

use crate::config::Address;
use crate::error::{Error, Result};

/// Named objects. An error names the object or the place.
#[async_trait]
pub(super) trait Store: std::fmt::Debug + Send + Sync {
    /// Returns once the object is durable. Replaces an object with this name.
    async fn put(&self, name: &str, content: Bytes) -> Result<()>;

    /// Returns `None` if there is no such object.
    async fn get(&self, name: &str) -> Result<Option<Bytes>>;

    /// Returns the names of all objects whose names end with `suffix`, sorted.
    async fn list(&self, suffix: &str) -> Result<Vec<String>>;
}

/// Opens a store by its URL: a path, `file:///folder`, or the URL of object storage.
pub(super) fn open(address: &Address) -> Result<Arc<dyn Store>> {
    match address.scheme().as_str() {
        "" => Ok(Arc::new(Folder(address.expose().into()))),
        "file" => match address.expose().get("file://".len()..) {
            Some(path) if path.starts_with('/') => Ok(Arc::new(Folder(path.into()))),
            _ => Err(Error::usage(format!("{address} is not the URL of a folder; write a path, or file:///folder"))),
        },
        #[cfg(feature = "object-store")]
        _ => super::remote::open(address),
        #[cfg(not(feature = "object-store"))]
        scheme => Err(Error::usage(format!(
            "this build archives to folders only, not to {scheme}: URLs; build landfall with --features object-store"
        ))),
    }
}

/// A folder, in which the parts of a name are folders.
#[derive(Debug)]
struct Folder(PathBuf);

#[async_trait]
impl Store for Folder {
    async fn put(&self, name: &str, content: Bytes) -> Result<()> {
        let (root, path) = (self.0.clone(), self.0.join(name));
        in_background(path.clone(), move || write(&root, &path, &content)).await
    }

    async fn get(&self, name: &str) -> Result<Option<Bytes>> {
        let path = self.0.join(name);
        in_background(path.clone(), move || match fs::read(&path) {
            Ok(content) => Ok(Some(content.into())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        })
        .await
    }

    async fn list(&self, suffix: &str) -> Result<Vec<String>> {
        let (root, suffix) = (self.0.clone(), suffix.to_owned());
        let mut names = in_background(root.clone(), move || {
            let mut names = Vec::new();
            collect(&root, &root, &suffix, &mut names)?;
            Ok(names)
        })
        .await?;
        names.sort();
        Ok(names)
    }
}

async fn in_background<T: Send + 'static>(
    path: PathBuf,
    work: impl FnOnce() -> std::io::Result<T> + Send + 'static,
) -> Result<T> {
    let failed = |error: &dyn std::fmt::Display| Error::failed(format!("the archive {}: {error}", path.display()));
    let done = tokio::task::spawn_blocking(work).await.map_err(|error| failed(&error))?;
    done.map_err(|error| failed(&error))
}

/// Writes a file under another name and renames it, so that no unfinished file has its name.
fn write(root: &Path, path: &Path, content: &[u8]) -> std::io::Result<()> {
    let folder = path.parent().unwrap_or(root);
    fs::create_dir_all(folder)?;
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(content)?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    // A new name is durable only once its folder is fsynced, and so is a new folder.
    let mut folder = Some(folder);
    while let Some(one) = folder.filter(|one| one.starts_with(root)) {
        File::open(one)?.sync_all()?;
        folder = one.parent();
    }
    Ok(())
}

fn collect(root: &Path, folder: &Path, suffix: &str, names: &mut Vec<String>) -> std::io::Result<()> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            collect(root, &path, suffix, names)?;
        } else if let Some(name) = path.strip_prefix(root).ok().and_then(Path::to_str)
            && name.ends_with(suffix)
        {
            names.push(name.to_owned());
        }
    }
    Ok(())
}
