//! A child's output, collected while it runs.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::sync::watch;

/// The lines of one output stream. Invalid UTF-8 is replaced.
#[derive(Debug, Clone)]
pub(super) struct Output {
    lines: Arc<Mutex<Vec<String>>>,
    /// Signals new lines; closed when the stream has ended.
    changed: watch::Receiver<()>,
}

impl Output {
    pub(super) fn collect(stream: Option<impl AsyncRead + Unpin + Send + 'static>) -> Self {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let (notify, changed) = watch::channel(());
        let output = Self { lines: lines.clone(), changed };
        if let Some(stream) = stream {
            tokio::spawn(async move {
                let mut stream = BufReader::new(stream);
                let mut line = Vec::new();
                while let Ok(1..) = stream.read_until(b'\n', &mut line).await {
                    let text = String::from_utf8_lossy(&line).trim_end_matches(['\r', '\n']).to_owned();
                    lock(&lines).push(text);
                    line.clear();
                    notify.send_replace(());
                }
            });
        }
        output
    }

    /// Returns the first matching line at or after `index`, with its index; `None` if the stream ends without one.
    pub(super) async fn find(&self, mut index: usize, matches: impl Fn(&str) -> bool) -> Option<(usize, String)> {
        let mut changed = self.changed.clone();
        loop {
            // Checked before the lines: a later change wakes the wait, and the end counts only after the last line.
            changed.borrow_and_update();
            let ended = changed.has_changed().is_err();
            while let Some(line) = lock(&self.lines).get(index).cloned() {
                if matches(&line) {
                    return Some((index, line));
                }
                index += 1;
            }
            if ended {
                return None;
            }
            // An error means the end of the stream; the next iteration checks the last lines and returns.
            let _ = changed.changed().await;
        }
    }

    /// Waits until the stream has ended.
    pub(super) async fn ended(&self) {
        let mut changed = self.changed.clone();
        while changed.changed().await.is_ok() {}
    }

    pub(super) fn lines(&self) -> Vec<String> {
        lock(&self.lines).clone()
    }

    /// Returns the last five lines joined into one, for an error message.
    pub(super) fn tail(&self) -> String {
        let lines = lock(&self.lines);
        if lines.is_empty() { "nothing".into() } else { lines[lines.len().saturating_sub(5)..].join(" / ") }
    }
}

fn lock(lines: &Mutex<Vec<String>>) -> MutexGuard<'_, Vec<String>> {
    lines.lock().unwrap_or_else(PoisonError::into_inner)
}
