//! Triggers for a cut, and the point of the cut.

/// The client data that triggers a cut.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trigger {
    /// This text as a whole word: `READ COMMITTED` does not match `COMMIT`.
    Word(Vec<u8>),
    /// This many bytes in total on one connection.
    Bytes(u64),
}

impl Trigger {
    pub fn word(text: &str) -> Self {
        Self::Word(text.as_bytes().to_vec())
    }
}

/// When a triggered cut happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CutPoint {
    /// The server never receives the data.
    BeforeForwarding,
    /// The server receives the data and begins to respond, and no byte of the response reaches the client. A server
    /// that responds to a commit after making it durable has then committed.
    BeforeResponse,
}

/// The data that one client has sent so far, as far as triggers need it.
#[derive(Debug, Default)]
pub(super) struct ClientStream {
    bytes: u64,
    /// The last bytes sent: a word may begin in one chunk and end in the next.
    tail: Vec<u8>,
}

/// Longer than any word in a trigger.
const TAIL_BYTES: usize = 64;

impl ClientStream {
    /// Returns the index of the first of `triggers` that the next `chunk` matches.
    pub(super) fn matches<'a>(&self, chunk: &[u8], triggers: impl Iterator<Item = &'a Trigger>) -> Option<usize> {
        let mut both = None;
        for (index, trigger) in triggers.enumerate() {
            let is_match = match trigger {
                Trigger::Bytes(bytes) => self.bytes + chunk.len() as u64 >= *bytes,
                Trigger::Word(word) => {
                    let both = both.get_or_insert_with(|| [&self.tail[..], chunk].concat());
                    // A word that ends in the tail was matched with an earlier chunk.
                    contains_word(both, word, self.tail.len())
                }
            };
            if is_match {
                return Some(index);
            }
        }
        None
    }

    pub(super) fn add(&mut self, chunk: &[u8]) {
        self.bytes += chunk.len() as u64;
        self.tail.extend_from_slice(&chunk[chunk.len().saturating_sub(TAIL_BYTES)..]);
        let surplus = self.tail.len().saturating_sub(TAIL_BYTES);
        self.tail.drain(..surplus);
    }
}

/// Whether `text` contains `word` as a whole word that ends after the first `after` bytes.
fn contains_word(text: &[u8], word: &[u8], after: usize) -> bool {
    let is_letter = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphabetic);
    !word.is_empty()
        && text.windows(word.len()).enumerate().any(|(start, found)| {
            let end = start + word.len();
            let before = start.checked_sub(1).and_then(|before| text.get(before));
            end > after && found == word && !is_letter(before) && !is_letter(text.get(end))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn word_trigger_matches_whole_words_across_chunks() {
        let trigger = [Trigger::word("COMMIT")];
        let mut sent = ClientStream::default();
        for (chunk, is_match) in [
            (&b"Q\0\0\0\x0bBEGIN ISOLATION LEVEL READ COMMITTED\0"[..], false),
            (b"Q\0\0\0\x0bSELECT 1; COMMIT AND CHAIN\0", true),
            (b"the earlier word does not match again", false),
            (b"\x07\0\0\0\x03COM", false),
            (b"MIT", true),
            (b"\0", false),
        ] {
            assert_eq!(sent.matches(chunk, trigger.iter()).is_some(), is_match, "{}", String::from_utf8_lossy(chunk));
            sent.add(chunk);
        }
    }

    #[test]
    fn bytes_are_counted_across_chunks() {
        let mut sent = ClientStream::default();
        sent.add(&[0; 90]);
        assert_eq!(sent.matches(&[0; 9], [Trigger::Bytes(100)].iter()), None);
        assert_eq!(sent.matches(&[0; 10], [Trigger::Bytes(1_000), Trigger::Bytes(100)].iter()), Some(1));
    }
}
