//! A process and its children, found in `/proc`. Where there is no `/proc` only the process itself is known, and a
//! server's children notice by themselves that it is gone.

use std::path::Path;
use std::time::{Duration, Instant};

use landfall_core::{Error, ErrorKind, Result};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// `parent` and its children, the parent first.
pub(crate) fn family(parent: i32) -> Vec<i32> {
    let processes = std::fs::read_dir("/proc").into_iter().flatten();
    let children = processes.filter_map(|entry| {
        let process = entry.ok()?.file_name().to_str()?.parse().ok()?;
        let (_state, its_parent) = status(process)?;
        (its_parent == parent).then_some(process)
    });
    std::iter::once(parent).chain(children).collect()
}

/// Sends `signal` to each, in order; one that has ended meanwhile is no error.
pub(crate) fn signal(processes: &[i32], signal: Signal) -> Result<()> {
    for process in processes {
        match kill(Pid::from_raw(*process), signal) {
            Ok(()) | Err(Errno::ESRCH) => {}
            Err(error) => {
                let text = format!("cannot send {signal} to process {process}");
                return Err(Error::new(ErrorKind::Internal, text).with_source(error));
            }
        }
    }
    Ok(())
}

/// Whether it runs; one that ended and was not waited for yet does not.
pub(crate) fn is_alive(process: i32) -> bool {
    match status(process) {
        Some((state, _)) => state != 'Z',
        None => !std::path::Path::new("/proc/self").exists() && kill(Pid::from_raw(process), None).is_ok(),
    }
}

pub(crate) async fn wait_until_gone(processes: &[i32]) -> Result<()> {
    let started = Instant::now();
    while processes.iter().any(|process| is_alive(*process)) {
        if started.elapsed() > Duration::from_secs(30) {
            return Err(Error::new(ErrorKind::Internal, "a killed process is still there after 30 seconds"));
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

/// Stops each with SIGSTOP and returns when all of them stand still. The signal alone does not say so: on a busy machine a
/// thread that has not noticed yet still answers.
pub(crate) async fn pause(processes: &[i32]) -> Result<()> {
    signal(processes, Signal::SIGSTOP)?;
    stand_still(processes).await
}

/// Returns when all of them do.
pub(crate) async fn stand_still(processes: &[i32]) -> Result<()> {
    let started = Instant::now();
    while !processes.iter().all(|process| is_stopped(*process)) {
        if started.elapsed() > Duration::from_secs(30) {
            return Err(Error::new(ErrorKind::Internal, "a process still runs 30 s after SIGSTOP"));
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}

/// Whether every thread of it stands still or has ended; where there is no `/proc` that is taken for granted.
pub(crate) fn is_stopped(process: i32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let mut states = threads.filter_map(|thread| status_in(&thread.path()));
    states.all(|(state, _)| matches!(state, 'T' | 't' | 'Z' | 'X'))
}

fn status(process: i32) -> Option<(char, i32)> {
    status_in(Path::new(&format!("/proc/{process}")))
}

/// The state and the parent in `stat`. The name stands in brackets and may contain anything.
fn status_in(folder: &Path) -> Option<(char, i32)> {
    let text = std::fs::read_to_string(folder.join("stat")).ok()?;
    let (_, after_name) = text.rsplit_once(')')?;
    let mut fields = after_name.split_whitespace();
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_belongs_to_the_family_until_it_has_ended() {
        let mut child = std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let (own, id) = (std::process::id() as i32, child.id() as i32);
        let family = family(own);
        assert_eq!(family[0], own);
        assert!(family.contains(&id) && is_alive(id));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!is_alive(id));
    }
}
