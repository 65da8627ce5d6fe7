//! What a cut waits for, and when it happens.

/// What a client sends that brings the cut about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trigger {
    /// This text, with no letter before or behind it: `COMMIT` is not met by `READ COMMITTED`.
    Word(Vec<u8>),
    /// So many bytes in all on one connection.
    Bytes(u64),
}

impl Trigger {
    pub fn word(text: &str) -> Self {
        Self::Word(text.as_bytes().to_vec())
    }
}

/// When a connection is cut that met its trigger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// The server never gets it.
    BeforeForwarding,
    /// The server gets it and begins to answer, and nothing of the answer reaches the client. A server that answers a
    /// commit once it is durable has committed by then.
    BeforeTheAnswer,
}

/// Where one client stands in what it sends.
#[derive(Debug, Default)]
pub(super) struct Sent {
    bytes: u64,
    /// The end of what was sent before: a word may begin in one piece and end in the next.
    tail: Vec<u8>,
}

/// Longer than any word that is worth waiting for.
const TAIL: usize = 64;

impl Sent {
    /// Which of `triggers` the next `piece` meets first in their order.
    pub(super) fn meets<'a>(&self, piece: &[u8], triggers: impl Iterator<Item = &'a Trigger>) -> Option<usize> {
        let mut both = None;
        for (place, trigger) in triggers.enumerate() {
            let met = match trigger {
                Trigger::Bytes(bytes) => self.bytes + piece.len() as u64 >= *bytes,
                Trigger::Word(word) => {
                    let both = both.get_or_insert_with(|| [&self.tail[..], piece].concat());
                    // One that ends in the tail was there before, and whoever waited for it has had it.
                    contains_word(both, word, self.tail.len())
                }
            };
            if met {
                return Some(place);
            }
        }
        None
    }

    pub(super) fn add(&mut self, piece: &[u8]) {
        self.bytes += piece.len() as u64;
        self.tail.extend_from_slice(&piece[piece.len().saturating_sub(TAIL)..]);
        let surplus = self.tail.len().saturating_sub(TAIL);
        self.tail.drain(..surplus);
    }
}

/// Whether `word` ends behind `after` bytes of `text`, as a whole word as far as the text goes.
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
    fn a_word_is_met_whole_and_once_even_in_two_pieces() {
        let trigger = [Trigger::word("COMMIT")];
        let mut sent = Sent::default();
        for (piece, met) in [
            (&b"Q\0\0\0\x0bBEGIN ISOLATION LEVEL READ COMMITTED\0"[..], false),
            (b"Q\0\0\0\x0bSELECT 1; COMMIT AND CHAIN\0", true),
            (b"the one before is not met again", false),
            (b"\x07\0\0\0\x03COM", false),
            (b"MIT", true),
            (b"\0", false),
        ] {
            assert_eq!(sent.meets(piece, trigger.iter()).is_some(), met, "{}", String::from_utf8_lossy(piece));
            sent.add(piece);
        }
    }

    #[test]
    fn bytes_are_counted_over_all_pieces() {
        let mut sent = Sent::default();
        sent.add(&[0; 90]);
        assert_eq!(sent.meets(&[0; 9], [Trigger::Bytes(100)].iter()), None);
        assert_eq!(sent.meets(&[0; 10], [Trigger::Bytes(1_000), Trigger::Bytes(100)].iter()), Some(1));
    }
}
