//! A process and its children, found in `/proc`. Without `/proc` only the process itself is known; a server's children
//! then detect its end on their own.

use std::path::Path;
use std::time::{Duration, Instant};

use landfall_core::{Error, ErrorKind, Result};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Returns `parent` and its children, the parent first.
pub(crate) fn family(parent: i32) -> Vec<i32> {
    let processes = std::fs::read_dir("/proc").into_iter().flatten();
    let children = processes.filter_map(|entry| {
        let process = entry.ok()?.file_name().to_str()?.parse().ok()?;
        let (_state, its_parent) = status(process)?;
        (its_parent == parent).then_some(process)
    });
    std::iter::once(parent).chain(children).collect()
}

/// Sends `signal` to each process in order. A process that has already exited is not an error.
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

/// Whether the process runs. A zombie does not.
pub(crate) fn is_alive(process: i32) -> bool {
    match status(process) {
        Some((state, _)) => state != 'Z',
        None => !std::path::Path::new("/proc/self").exists() && kill(Pid::from_raw(process), None).is_ok(),
    }
}

/// Waits until all processes have exited, for at most two minutes: the shutdown checkpoint of a database syncs every
/// file that changed, and a killed process exits only after the sync that it is in.
pub(crate) async fn wait_until_gone(processes: &[i32]) -> Result<()> {
    let started = Instant::now();
    while let Some(process) = processes.iter().find(|process| is_alive(**process)) {
        if started.elapsed() > Duration::from_secs(120) {
            let text = format!("process {process} still runs after two minutes: {}", describe(*process));
            return Err(Error::new(ErrorKind::Internal, text));
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

/// Returns the command line of a process, its state, and the kernel function that it waits in.
fn describe(process: i32) -> String {
    let read = |file| std::fs::read_to_string(format!("/proc/{process}/{file}")).unwrap_or_default();
    let state = status(process).map_or('?', |(state, _)| state);
    format!("{:?}, state {state}, in {}", read("cmdline").replace('\0', " ").trim(), read("wchan"))
}

/// Stops each process with SIGSTOP and returns once all are stopped.
///
/// Sending the signal is not enough: on a busy machine a thread may still run for a moment.
pub(crate) async fn pause(processes: &[i32]) -> Result<()> {
    signal(processes, Signal::SIGSTOP)?;
    wait_until_stopped(processes).await
}

/// Waits until all threads of all processes are stopped.
pub(crate) async fn wait_until_stopped(processes: &[i32]) -> Result<()> {
    let started = Instant::now();
    while !processes.iter().all(|process| is_stopped(*process)) {
        if started.elapsed() > Duration::from_secs(30) {
            return Err(Error::new(ErrorKind::Internal, "a process still runs 30 s after SIGSTOP"));
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}

/// Whether every thread of the process is stopped or has ended. Assumed where there is no `/proc`.
pub(crate) fn is_stopped(process: i32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let mut states = threads.filter_map(|thread| status_in(&thread.path()));
    states.all(|(state, _)| matches!(state, 'T' | 't' | 'Z' | 'X'))
}

fn status(process: i32) -> Option<(char, i32)> {
    status_in(Path::new(&format!("/proc/{process}")))
}

/// Parses state and parent from `stat`. The process name is in parentheses and may contain anything.
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
    fn children_are_listed_until_they_exit() {
        let mut child = std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let (own, id) = (std::process::id() as i32, child.id() as i32);
        let family = family(own);
        assert_eq!(family[0], own);
        assert!(family.contains(&id) && is_alive(id));
        assert!(describe(id).starts_with("\"cat\", state "), "{}", describe(id));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!is_alive(id));
    }
}
