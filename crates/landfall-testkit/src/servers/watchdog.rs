//! Keeps a server from outliving the test process, however that ends.
//!
//! A small shell stands between us and the server and reads from a pipe that only we hold. When we are gone, even by
//! SIGKILL, the kernel closes the pipe, the shell reads the end of it, stops the server and removes its folder. The
//! shell has a process group of its own, so that Ctrl-C in a terminal reaches the tests and not the shell.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use landfall_core::{Error, ErrorKind, Result};

use super::account::Account;

/// How a server that nobody needs any more is told so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// SIGQUIT, which ends PostgreSQL and its children at once.
    Quit,
    /// SIGKILL, for a server of one process that would take its time to save what is removed anyway.
    Kill,
}

/// The last line read decides about the folder: `keep` for a restart, anything else (or nothing) removes it.
/// SIGCONT follows because a paused server cannot take SIGQUIT.
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
    /// Starts `command` with its output in `log`; `folder` is removed when the server is stopped for good.
    pub(super) fn start<S: AsRef<OsStr>>(
        command: impl IntoIterator<Item = S>,
        log: &Path,
        folder: &Path,
        account: Option<Account>,
        ending: Ending,
    ) -> Result<Self> {
        let failed =
            |error| Error::new(ErrorKind::Unavailable, "cannot start a shell for the server").with_source(error);
        let ending = match ending {
            Ending::Quit => "QUIT",
            Ending::Kill => "KILL",
        };
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(SCRIPT).arg("landfall-watchdog").arg(log).arg(folder).arg(ending).args(command);
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
            Err(error) => Err(Error::new(ErrorKind::Internal, "the shell gave no process id").with_source(error)),
        }
    }

    /// The server's own process.
    pub(super) fn server(&self) -> i32 {
        self.server
    }

    /// Stops the server (if it still runs) and leaves its folder where it is.
    pub(super) async fn stop_and_keep(mut self) -> Result<()> {
        let failed = |error| Error::new(ErrorKind::Internal, "cannot stop the server").with_source(error);
        if let Some(mut stdin) = self.shell.stdin.take() {
            stdin.write_all(b"keep\n").map_err(failed)?;
        }
        // The shell only waits for the server, and the server has been told to stop at once.
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
            tracing::warn!(error = %error, "the watchdog of a test server cannot be waited for");
        }
    }
}
