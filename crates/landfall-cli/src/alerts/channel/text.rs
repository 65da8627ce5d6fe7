//! What channels have in common: links and cut texts.

use landfall::{NoticeBody, NoticeKind};

/// Where the console shows a message, below the base URL.
const MESSAGE_PATH: &str = "/console/messages/";

/// Makes links to messages.
pub(super) struct Links {
    base: String,
}

impl Links {
    pub(super) fn new(base: &str) -> Self {
        Self { base: base.to_owned() }
    }

    pub(super) fn base(&self) -> &str {
        &self.base
    }

    /// Returns the link to the sample of a notice, if it has one and the base is known.
    pub(super) fn sample(&self, notice: &NoticeBody) -> Option<String> {
        let sample = notice.sample.filter(|_| !self.base.is_empty())?;
        Some(format!("{}{MESSAGE_PATH}{sample}", self.base))
    }
}

/// Returns at most `most` characters, with an ellipsis if something is cut.
pub(super) fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let mut kept: String = text.chars().take(most.saturating_sub(1)).collect();
    kept.push('…');
    kept
}

/// Returns the text on one line, without control characters.
pub(super) fn one_line(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect()
}

pub(super) fn word(kind: NoticeKind) -> &'static str {
    match kind {
        NoticeKind::Firing => "Firing",
        NoticeKind::Resolved => "Resolved",
    }
}

/// Returns one line about all notices: `Landfall: 2 firing, 1 resolved`.
pub(super) fn title(notices: &[NoticeBody]) -> String {
    let firing = notices.iter().filter(|notice| notice.kind == NoticeKind::Firing).count();
    let counts = [(firing, "firing"), (notices.len() - firing, "resolved")];
    let counts: Vec<String> =
        counts.iter().filter(|(count, _)| *count > 0).map(|(count, word)| format!("{count} {word}")).collect();
    format!("Landfall: {}", counts.join(", "))
}
