//! Quarantines a damaged file before it is replaced, so that an operator can still recover data from it.
//!
//! ```text
//! damaged/<topic>/<partition>/<base>.segment.<n>
//! damaged/<topic>/groups/<group>.json.<n>
//! ```

use std::io;
use std::path::{Path, PathBuf};

use landfall_core::Result;

use crate::disk::{self, Access, Disk, File};
use crate::durable::{UNFINISHED, create_directory, failed, sync_directory};

/// Bytes copied at a time.
const COPY_BYTES: usize = 1024 * 1024;

/// Copies the file at `path` to `damaged/<topic>/<of>/<name>.<n>` below `root` durably, with the first free number.
/// Reuses an identical copy, which an interrupted repair may have left.
pub(crate) fn copy(disk: &dyn Disk, root: &Path, [topic, of, name]: [&str; 3], path: &Path) -> Result<PathBuf> {
    let mut folder = root.to_owned();
    for part in ["damaged", topic, of] {
        folder.push(part);
        // Even if it exists: an earlier process may have died before it synced the name.
        create_directory(disk, &folder)?;
    }
    let original = disk.open(path, Access::Read).map_err(failed("read", path))?;
    let mut number = 1_u64;
    loop {
        let copy = folder.join(format!("{name}.{number}"));
        match disk.open(&copy, Access::Read) {
            Ok(file) if is_same(&*file, &*original).map_err(failed("compare", &copy))? => {
                sync_directory(disk, &folder)?;
                return Ok(copy);
            }
            Ok(_) => number += 1,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let unfinished = folder.join(UNFINISHED);
                copy_to(disk, &*original, &unfinished).map_err(failed("copy", path))?;
                disk.rename(&unfinished, &copy).map_err(failed("write", &copy))?;
                sync_directory(disk, &folder)?;
                return Ok(copy);
            }
            Err(error) => return Err(failed("read", &copy)(error)),
        }
    }
}

fn copy_to(disk: &dyn Disk, original: &dyn File, path: &Path) -> io::Result<()> {
    let copy = disk.open(path, Access::Create)?;
    let mut position = 0;
    loop {
        let bytes = disk::read(original, position, COPY_BYTES)?;
        if bytes.is_empty() {
            return copy.sync();
        }
        copy.write_at(&bytes, position)?;
        position += bytes.len() as u64;
    }
}

fn is_same(one: &dyn File, other: &dyn File) -> io::Result<bool> {
    let length = one.length()?;
    if length != other.length()? {
        return Ok(false);
    }
    let mut position = 0;
    while position < length {
        if disk::read(one, position, COPY_BYTES)? != disk::read(other, position, COPY_BYTES)? {
            return Ok(false);
        }
        position += COPY_BYTES as u64;
    }
    Ok(true)
}
