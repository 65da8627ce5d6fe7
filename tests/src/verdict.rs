use std::collections::HashMap;

use crate::books::Order;
use crate::history::Event;

#[derive(Debug, Default)]
pub struct Verdict {
    pub committed: usize,
    pub effects: usize,
    pub lost: usize,
    pub doubled: usize,
    pub phantom: usize,
    pub reordered: usize,
    pub lies: usize,
}

impl Verdict {
    pub fn new(history: &[Event], orders: &[Order], effects: &[Order]) -> Self {
        let mut verdict = Verdict { committed: orders.len(), effects: effects.len(), ..Default::default() };
        let mut count: HashMap<_, usize> = HashMap::new();
        let mut last: HashMap<_, i64> = HashMap::new();
        for effect in effects {
            *count.entry(effect.message_id).or_default() += 1;
            let last = last.entry(effect.key.clone()).or_default();
            if effect.sequence < *last {
                verdict.reordered += 1;
            }
            *last = effect.sequence;
        }
        for order in orders {
            match count.remove(&order.message_id) {
                None => verdict.lost += 1,
                Some(n) if n > 1 => verdict.doubled += n - 1,
                _ => {}
            }
        }
        verdict.phantom = count.len();
        let ids: std::collections::HashSet<_> = orders.iter().map(|order| order.message_id).collect();
        for event in history {
            match event {
                Event::Ok { id } if !ids.contains(id) => verdict.lies += 1,
                Event::Failed { id } if ids.contains(id) => verdict.lies += 1,
                _ => {}
            }
        }
        verdict
    }

    pub fn assert_nothing_is_wrong(&self) {
        assert!(self.lost + self.doubled + self.phantom + self.reordered + self.lies == 0, "{self:?}");
        assert!(self.committed > 0 && self.effects == self.committed);
    }
}
