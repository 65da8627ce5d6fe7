//! Tests of the model disk: what it keeps and what it loses.

use std::path::Path;

use landfall_log::disk::{Access, Disk};

use crate::crash::{Crash, Survival};
use crate::disk::{Faults, ModelDisk};
use crate::journal::Entry;
use crate::random::Random;
use crate::tree::Tree;

/// A disk with a durable empty folder `/d`.
fn disk() -> (ModelDisk, Tree) {
    let disk = ModelDisk::new(Tree::default());
    disk.create_directory(Path::new("/d")).unwrap();
    disk.take_journal();
    let tree = disk.tree();
    (ModelDisk::new(tree.clone()), tree)
}

fn write(disk: &ModelDisk, path: &str, bytes: &[u8]) {
    disk.open(Path::new(path), Access::Create).unwrap().write_at(bytes, 0).unwrap();
}

fn sync(disk: &ModelDisk, path: &str) {
    disk.open(Path::new(path), Access::Write).unwrap().sync().unwrap();
}

fn crash(disk: &ModelDisk, base: &Tree) -> Crash {
    let mut crash = Crash::new(base.clone());
    for entry in disk.take_journal() {
        if let Entry::Operation { operation, .. } = entry {
            crash.apply(&operation);
        }
    }
    crash
}

/// The content of the file; `None` if it does not exist.
fn content(tree: &Tree, path: &str) -> Option<Vec<u8>> {
    let node = tree.find(Path::new(path)).ok()?;
    Some(tree.file(node).unwrap().to_vec())
}

fn nothing_kept(crash: &Crash) -> Tree {
    crash.image(&vec![Survival::Dropped; crash.unsynced().len()])
}

#[test]
fn synced_file_survives_with_its_name() {
    let (disk, base) = disk();
    write(&disk, "/d/a", b"hello");
    sync(&disk, "/d/a");
    disk.sync_directory(Path::new("/d")).unwrap();
    let crash = crash(&disk, &base);
    assert!(crash.unsynced().is_empty());
    assert_eq!(content(&nothing_kept(&crash), "/d/a").unwrap(), b"hello");
}

#[test]
fn unsynced_write_may_be_lost_torn_or_kept() {
    let (disk, base) = disk();
    write(&disk, "/d/a", b"hello");
    sync(&disk, "/d/a");
    disk.sync_directory(Path::new("/d")).unwrap();
    let file = disk.open(Path::new("/d/a"), Access::Write).unwrap();
    file.write_at(b"world", 5).unwrap();
    let before = crash(&disk, &base);
    assert_eq!(content(&nothing_kept(&before), "/d/a").unwrap(), b"hello");
    assert_eq!(content(&before.image(&[]), "/d/a").unwrap(), b"helloworld");
    let torn = |bytes, is_grown| content(&before.image(&[Survival::Torn { bytes, is_grown }]), "/d/a").unwrap();
    assert_eq!(torn(2, false), b"hellowo");
    assert_eq!(torn(2, true), b"hellowo\0\0\0");
    assert_eq!(before.every_tear().len(), 2 * 5 + 2);
}

#[test]
fn synced_file_without_folder_sync_may_lose_its_name() {
    let (disk, base) = disk();
    write(&disk, "/d/a", b"hello");
    sync(&disk, "/d/a");
    assert_eq!(content(&nothing_kept(&crash(&disk, &base)), "/d/a"), None);
}

#[test]
fn unsynced_rename_is_undone_or_done_but_never_half_done() {
    let (disk, base) = disk();
    for (path, bytes) in [("/d/a", b"old"), ("/d/new", b"new")] {
        write(&disk, path, bytes);
        sync(&disk, path);
    }
    disk.sync_directory(Path::new("/d")).unwrap();
    disk.rename(Path::new("/d/new"), Path::new("/d/a")).unwrap();
    let crash = crash(&disk, &base);
    let undone = nothing_kept(&crash);
    assert_eq!(
        (content(&undone, "/d/a").unwrap(), content(&undone, "/d/new").unwrap()),
        (b"old".into(), b"new".into())
    );
    let done = crash.image(&[]);
    assert_eq!((content(&done, "/d/a").unwrap(), content(&done, "/d/new")), (b"new".into(), None));
}

#[test]
fn files_move_and_vanish_with_their_folder() {
    let (disk, base) = disk();
    disk.create_directory(Path::new("/d/e")).unwrap();
    write(&disk, "/d/e/a", b"hello");
    sync(&disk, "/d/e/a");
    disk.sync_directory(Path::new("/d/e")).unwrap();
    assert_eq!(content(&nothing_kept(&crash(&disk, &base)), "/d/e/a"), None);

    let (disk, base) = (ModelDisk::new(disk.tree()), disk.tree());
    disk.rename(Path::new("/d/e"), Path::new("/d/f")).unwrap();
    let crash = crash(&disk, &base);
    assert_eq!(content(&nothing_kept(&crash), "/d/e/a").unwrap(), b"hello");
    assert_eq!(content(&crash.image(&[]), "/d/f/a").unwrap(), b"hello");
}

#[test]
fn lost_sector_keeps_its_old_bytes() {
    let (disk, base) = disk();
    write(&disk, "/d/a", &[1; 1200]);
    sync(&disk, "/d/a");
    disk.sync_directory(Path::new("/d")).unwrap();
    let file = disk.open(Path::new("/d/a"), Access::Write).unwrap();
    file.write_at(&[2; 1000], 500).unwrap();
    let image = crash(&disk, &base).image(&[Survival::Lost { sectors: vec![1], is_grown: true }]);
    let expected: Vec<u8> = [[1; 500].as_slice(), &[2; 12], &[1; 512], &[2; 476]].concat();
    assert_eq!(content(&image, "/d/a").unwrap(), expected);
}

#[test]
fn failed_sync_is_not_repaired_by_the_next_sync() {
    let (disk, base) = disk();
    write(&disk, "/d/a", b"first");
    disk.sync_directory(Path::new("/d")).unwrap();
    disk.set_faults(Faults { fail_sync_after: Some(0), ..Faults::default() });
    let file = disk.open(Path::new("/d/a"), Access::Write).unwrap();
    file.sync().unwrap_err();
    file.write_at(b"second", 5).unwrap();
    file.sync().unwrap();
    let crash = crash(&disk, &base);
    assert_eq!(content(&nothing_kept(&crash), "/d/a").unwrap(), b"\0\0\0\0\0second");
    assert_eq!(content(&crash.image(&[]), "/d/a").unwrap(), b"firstsecond");
}

#[test]
fn full_model_disk_accepts_what_fits() {
    let (disk, _) = disk();
    disk.set_faults(Faults { capacity: Some(7), ..Faults::default() });
    let file = disk.open(Path::new("/d/a"), Access::Create).unwrap();
    file.write_at(b"hello", 0).unwrap();
    assert_eq!(file.write_at(b"world", 5).unwrap_err().kind(), std::io::ErrorKind::StorageFull);
    assert_eq!(file.length().unwrap(), 7);
    file.write_at(b"HELLO", 0).unwrap();
    disk.set_faults(Faults::default());
    file.write_at(b"world", 5).unwrap();
}

#[test]
fn killed_process_changes_nothing_and_its_writes_remain() {
    let (disk, _) = disk();
    let file = disk.open(Path::new("/d/a"), Access::Create).unwrap();
    disk.set_faults(Faults { kill_after: Some(1), ..Faults::default() });
    file.write_at(b"hello", 0).unwrap();
    file.write_at(b"world", 5).unwrap_err();
    file.sync().unwrap_err();
    assert_eq!(content(&disk.kill().tree(), "/d/a").unwrap(), b"hello");
}

#[test]
fn random_numbers_depend_on_the_seed_only() {
    let mut random = Random::new(1);
    assert_eq!([random.next(), random.next()], [0x910a_2dec_8902_5cc1, 0xbeeb_8da1_658e_ec67]);
}
