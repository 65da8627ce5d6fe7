//! What a child prints, collected while it runs.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::sync::watch;

/// One stream of a child, line by line. Text that is not UTF-8 is shown as far as it goes.
#[derive(Debug, Clone)]
pub(super) struct Output {
    lines: Arc<Mutex<Vec<String>>>,
    /// Closed when the stream has ended.
    changed: watch::Receiver<()>,
}

impl Output {
    pub(super) fn collect(stream: Option<impl AsyncRead + Unpin + Send + 'static>) -> Self {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let (told, changed) = watch::channel(());
        let output = Self { lines: lines.clone(), changed };
        if let Some(stream) = stream {
            tokio::spawn(async move {
                let mut stream = BufReader::new(stream);
                let mut line = Vec::new();
                while let Ok(1..) = stream.read_until(b'\n', &mut line).await {
                    let text = String::from_utf8_lossy(&line).trim_end_matches(['\r', '\n']).to_owned();
                    lock(&lines).push(text);
                    line.clear();
                    told.send_replace(());
                }
            });
        }
        output
    }

    /// The first line from `place` on that matches, with its place; `None` if the stream ends without one.
    pub(super) async fn find(&self, mut place: usize, matches: impl Fn(&str) -> bool) -> Option<(usize, String)> {
        let mut changed = self.changed.clone();
        loop {
            // Read before looking: what arrives after that wakes us, and an end is only believed if nothing is left.
            changed.borrow_and_update();
            let ended = changed.has_changed().is_err();
            while let Some(line) = lock(&self.lines).get(place).cloned() {
                if matches(&line) {
                    return Some((place, line));
                }
                place += 1;
            }
            if ended {
                return None;
            }
            // An error is the end of the stream; the next round looks once more and then believes it.
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

    /// The last few lines in one, for an error message.
    pub(super) fn tail(&self) -> String {
        let lines = lock(&self.lines);
        if lines.is_empty() { "nothing".into() } else { lines[lines.len().saturating_sub(5)..].join(" / ") }
    }
}

fn lock(lines: &Mutex<Vec<String>>) -> MutexGuard<'_, Vec<String>> {
    lines.lock().unwrap_or_else(PoisonError::into_inner)
}
