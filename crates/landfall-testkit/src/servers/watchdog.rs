//! Stops a server when the test process ends, even by SIGKILL.
//!
//! A small shell starts the server and reads from a pipe whose other end only the test process holds. When that process
//! ends, the kernel closes the pipe; the shell reads EOF, stops the server and removes its folder. The shell has its
//! own process group, so that Ctrl-C in a terminal reaches the tests and not the shell.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use landfall_core::{Error, ErrorKind, Result};

use super::account::Account;

/// The signal that stops a server at the end of its use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StopSignal {
    /// SIGQUIT, which ends PostgreSQL and its children at once.
    Quit,
    /// SIGKILL, for a single-process server that would waste time saving data that is removed anyway.
    Kill,
}

/// The last line read decides about the folder: `keep` for a restart; anything else, or nothing, removes it.
/// SIGCONT follows because a paused server does not handle SIGQUIT.
const SCRIPT: &str = r#"
log=$1; folder=$2; ending=$3; shift 3
"$@" </dev/null >>"$log" 2>&1 &
server=$!
echo "$server"
order=remove
while read -r line; do order=$line; done
kill "-$ending" "$server" 2>/dev/null
kill -CONT "$server" 2>/dev/null
wait "$server"
[ "$order" = keep ] || rm -rf "$folder"
"#;

#[derive(Debug)]
pub(super) struct Watchdog {
    shell: Child,
    server: i32,
}

impl Watchdog {
    /// Starts `command` with its output in `log`. The watchdog removes `folder` unless [`Watchdog::stop_and_keep`] is
    /// called.
    pub(super) fn start<S: AsRef<OsStr>>(
        command: impl IntoIterator<Item = S>,
        log: &Path,
        folder: &Path,
        account: Option<Account>,
        stop_signal: StopSignal,
    ) -> Result<Self> {
        let failed = |error| {
            Error::new(ErrorKind::Unavailable, "cannot start the watchdog shell of the server").with_source(error)
        };
        let stop_signal = match stop_signal {
            StopSignal::Quit => "QUIT",
            StopSignal::Kill => "KILL",
        };
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(SCRIPT).arg("landfall-watchdog").arg(log).arg(folder).arg(stop_signal).args(command);
        shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).process_group(0).current_dir(folder);
        if let Some(account) = account {
            shell.uid(account.uid).gid(account.gid);
        }
        let mut shell = shell.spawn().map_err(failed)?;
        let mut line = String::new();
        if let Some(stdout) = shell.stdout.take() {
            BufReader::new(stdout).read_line(&mut line).map_err(failed)?;
        }
        match line.trim().parse() {
            Ok(server) => Ok(Self { shell, server }),
            Err(error) => {
                Err(Error::new(ErrorKind::Internal, "the watchdog shell returned no process id").with_source(error))
            }
        }
    }

    /// The process id of the server.
    pub(super) fn server(&self) -> i32 {
        self.server
    }

    /// Stops the server if it still runs, and keeps its folder.
    pub(super) async fn stop_and_keep(mut self) -> Result<()> {
        let failed = |error| Error::new(ErrorKind::Internal, "cannot stop the server").with_source(error);
        if let Some(mut stdin) = self.shell.stdin.take() {
            stdin.write_all(b"keep\n").map_err(failed)?;
        }
        // The shell only waits for the server, which it has just signalled.
        while self.shell.try_wait().map_err(failed)?.is_none() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        if let Err(error) = self.shell.wait() {
            tracing::warn!(%error, "failed to wait for the watchdog of a test server");
        }
    }
}
