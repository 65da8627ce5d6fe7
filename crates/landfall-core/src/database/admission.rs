//! Admission of a batch into the inbox: the part that all databases share.

use std::collections::{BTreeSet, HashSet};

use crate::adapter::{Admission, Origin};
use crate::{Message, MessageId};

/// A message as the broker delivered it.
#[derive(Debug, Clone, Copy)]
pub struct Arrival<'a> {
    pub message: &'a Message,
    pub origin: Origin,
}

/// The steps of [`Inbox::admit_batch`](crate::Inbox::admit_batch): the ids to insert, the keys to lock, the result. The
/// database runs one statement between two steps.
///
/// A separate statement looks up the keys, after the ids are inserted. The insert may wait for a duplicate in another
/// transaction, and that transaction may hold the key of another message of the batch.
#[derive(Debug)]
pub struct BatchAdmission<'a> {
    batch: &'a [Arrival<'a>],
    fresh: Vec<bool>,
}

impl<'a> BatchAdmission<'a> {
    /// Returns the ids to insert: each once, sorted, so that two batches with common messages cannot deadlock.
    pub fn ids(batch: &[Arrival<'_>]) -> Vec<MessageId> {
        let compared = batch.iter().map(|arrival| arrival.message).filter(|message| message.mode.is_deduplicated());
        compared.map(|message| message.id).collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// `inserted` are the ids that were new. Of several duplicates in one batch the first is fresh.
    pub fn new(batch: &'a [Arrival<'a>], inserted: impl IntoIterator<Item = MessageId>) -> Self {
        let mut inserted: HashSet<MessageId> = inserted.into_iter().collect();
        let mut is_fresh = |message: &Message| !message.mode.is_deduplicated() || inserted.remove(&message.id);
        let fresh = batch.iter().map(|arrival| is_fresh(arrival.message)).collect();
        Self { batch, fresh }
    }

    /// Returns topic and key of every fresh message, each once, sorted as the ids are.
    pub fn keys(&self) -> Vec<(&'a str, &'a str)> {
        let names = self.fresh().filter_map(|arrival| name_of(arrival.message));
        names.collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// `held` are the keys of [`BatchAdmission::keys`] that wait behind a dead letter.
    pub fn finish<T: AsRef<str>>(self, held: &[(T, T)]) -> Vec<Admission> {
        let held: HashSet<_> = held.iter().map(|(topic, key)| (topic.as_ref(), key.as_ref())).collect();
        let judge = |(arrival, fresh): (&Arrival<'_>, &bool)| match name_of(arrival.message) {
            _ if !fresh => Admission::Duplicate,
            Some(name) if held.contains(&name) => Admission::Held,
            _ => Admission::Fresh,
        };
        self.batch.iter().zip(&self.fresh).map(judge).collect()
    }

    fn fresh(&self) -> impl Iterator<Item = &'a Arrival<'a>> {
        self.batch.iter().zip(&self.fresh).filter(|(_, fresh)| **fresh).map(|(arrival, _)| arrival)
    }
}

fn name_of(message: &Message) -> Option<(&str, &str)> {
    message.key.as_ref().map(|key| (message.topic.as_str(), key.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Key, Mode, TopicName};

    fn message(key: &str) -> Message {
        Message::new(TopicName::new("orders").unwrap(), "").with_key(Key::new(key).unwrap())
    }

    #[test]
    fn only_the_first_duplicate_in_a_batch_is_fresh() {
        let (a, b, free) = (message("a"), message("b"), message("a").with_mode(Mode::AtLeastOnce));
        let arrivals = [&a, &a, &b, &free, &free].map(|message| Arrival { message, origin: None });
        let mut expected = vec![a.id, b.id];
        expected.sort();
        assert_eq!(BatchAdmission::ids(&arrivals), expected);

        let admission = BatchAdmission::new(&arrivals, [a.id]);
        assert_eq!(admission.keys(), [("orders", "a")], "the key of a duplicate is not looked up");
        use Admission::{Duplicate, Fresh, Held};
        assert_eq!(admission.finish::<&str>(&[]), [Fresh, Duplicate, Duplicate, Fresh, Fresh]);
        let admission = BatchAdmission::new(&arrivals, [a.id, b.id]);
        assert_eq!(admission.finish(&[("orders", "a")]), [Held, Duplicate, Fresh, Held, Held]);
    }
}
