//! Killing or stopping the process at a named failpoint.
//!
//! The callback runs on the thread that reached the failpoint. It never returns after a kill, and only after SIGCONT
//! when stopped: nothing behind the failpoint has started.

use std::io::Write;
use std::sync::atomic::{AtomicU32, Ordering};

use landfall::{Error, ErrorKind, Result};
use nix::sys::signal::{Signal, raise};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failpoint {
    pub name: String,
    /// Fires at this hit, counted from 1.
    pub hit: u32,
    pub action: Action,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Action {
    /// SIGKILL: nothing is flushed or reported.
    Kill,
    /// SIGSTOP: the whole process stops until SIGCONT.
    StopMode,
}

impl Failpoint {
    pub fn kill(name: &str, hit: u32) -> Self {
        Self { name: name.into(), hit, action: Action::Kill }
    }

    pub fn stop(name: &str, hit: u32) -> Self {
        Self { name: name.into(), hit, action: Action::StopMode }
    }

    /// The line on stderr right before the signal: it proves to the parent that this failpoint was hit.
    pub fn announcement(&self) -> String {
        format!("failpoint {} reached for time {}: {:?}", self.name, self.hit, self.action)
    }

    /// Arms it in this process.
    pub fn arm(self) -> Result<()> {
        if !fail::has_failpoints() {
            return Err(Error::new(ErrorKind::Unsupported, "this build has no failpoints"));
        }
        let (name, hits) = (self.name.clone(), AtomicU32::new(0));
        let callback = move || {
            if hits.fetch_add(1, Ordering::SeqCst) + 1 == self.hit {
                // One write to an unbuffered stream: the line is in the pipe before the signal is sent.
                let _ = std::io::stderr().write_all(format!("{}\n", self.announcement()).as_bytes());
                let signal = match self.action {
                    Action::Kill => Signal::SIGKILL,
                    Action::StopMode => Signal::SIGSTOP,
                };
                // Neither signal can be blocked or refused.
                let _ = raise(signal);
            }
        };
        fail::cfg_callback(name, callback).map_err(|error| Error::new(ErrorKind::Internal, error))
    }
}
