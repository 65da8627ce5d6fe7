//! The check of a run: its evidence as a history, for the history checker, and the demo's own sums. Pure, so that tests
//! can plant faults.
//!
//! What must hold, for every service:
//!
//! * every placed order had its effect exactly once;
//! * no effect and no record in the log belongs to an order that was not placed, such as a rolled-back one;
//! * the effects of one customer happened in the order of that customer's orders;
//! * stock and money add up across the databases.

use std::collections::{HashMap, HashSet};

use landfall::history::{Event, History, check};
use landfall::{Key, MessageId};

use super::evidence::{Consumed, Evidence, Placed};
use super::shop::Service;

/// The result of the check. All figures are zero, or the findings explain the faults.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) lost: u64,
    pub(super) doubled: u64,
    pub(super) out_of_order: u64,
    /// One sentence for each fault.
    pub(super) findings: Vec<String>,
}

impl Verdict {
    pub(super) fn from_evidence(evidence: &Evidence) -> Self {
        let mut verdict = Self::default();
        verdict.check_effects(evidence);
        for consumed in evidence.consumed.iter().filter(|consumed| consumed.service == Service::Stock) {
            verdict.find_rolled_back_orders(&evidence.placed, consumed);
        }
        for order in evidence.placed.iter().filter(|order| !order.is_paid) {
            verdict.lost(format!("order {} was never marked as paid", order.number));
        }
        for balance in evidence.balances.iter().filter(|balance| balance.ordered != balance.booked) {
            let finding =
                format!("{} {} were ordered, and {} were booked", balance.ordered, balance.what, balance.booked);
            if balance.booked < balance.ordered { verdict.lost(finding) } else { verdict.doubled(finding) }
        }
        verdict
    }

    /// Compares the placed orders with the effects of every service, by the history checker.
    fn check_effects(&mut self, evidence: &Evidence) {
        let mut orders = OrderIds::default();
        let mut history = History::new(evidence.consumed.iter().map(|consumed| consumed.service.name()));
        for order in &evidence.placed {
            let id = orders.id(&order.customer, order.sequence);
            // All at the same time: only the sequences of a customer order the effects.
            let (key, sequence) = (Key::new(&order.customer).ok(), Some(order.sequence));
            history.push_at(1, Event::Invoke { id, key, sequence });
            history.push_at(1, Event::Ok { id });
        }
        for consumed in &evidence.consumed {
            for effect in &consumed.effects {
                let id = orders.id(&effect.key, effect.sequence);
                history.effect(consumed.service.name(), id, Key::new(&effect.key).ok());
            }
        }
        let report = check(&history);
        for fault in &report.lost {
            self.lost(format!("{} had no effect in {}", orders.name(fault.id), fault.group));
        }
        for fault in &report.phantom {
            self.doubled(format!("{} had an effect in {} and was never placed", orders.name(fault.id), fault.group));
        }
        for fault in &report.doubled {
            self.doubled(format!("{} had {} effects in {}", orders.name(fault.id), fault.effects, fault.group));
        }
        for fault in &report.reordered {
            let (late, early) = (orders.name(fault.first), orders.name(fault.overtaken_by));
            self.out_of_order += 1;
            self.findings.push(format!("{} applied {late} after {early}", fault.group));
        }
    }

    /// An order that is rolled back and then placed has two message ids, and only the second may be in the log.
    fn find_rolled_back_orders(&mut self, placed: &[Placed], consumed: &Consumed) {
        let known: HashSet<&str> = placed.iter().map(|order| order.message_id.as_str()).collect();
        let unknown: HashSet<&str> =
            consumed.records.iter().map(|record| record.message_id.as_str()).filter(|id| !known.contains(id)).collect();
        for id in unknown {
            self.doubled(format!("message {id} was published without a committed order"));
        }
    }

    fn lost(&mut self, finding: String) {
        self.lost += 1;
        self.findings.push(finding);
    }

    fn doubled(&mut self, finding: String) {
        self.doubled += 1;
        self.findings.push(finding);
    }
}

/// One id for each order in the history. Every service sends its own message about an order, with its own id, so the
/// ids of messages identify no order; customer and sequence do.
#[derive(Default)]
struct OrderIds<'a> {
    ids: HashMap<(&'a str, i64), MessageId>,
    names: HashMap<MessageId, String>,
}

impl<'a> OrderIds<'a> {
    fn id(&mut self, customer: &'a str, sequence: i64) -> MessageId {
        *self.ids.entry((customer, sequence)).or_insert_with(|| {
            let id = MessageId::new();
            self.names.insert(id, format!("order {sequence} of {customer}"));
            id
        })
    }

    fn name(&self, id: MessageId) -> &str {
        self.names.get(&id).map_or("an order", String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::super::evidence::{Balance, Effect, Record};
    use super::*;

    /// Evidence without faults: three customers with four orders each.
    fn evidence() -> Evidence {
        let customers = ["ada", "bob", "cy"];
        let order = |number: i64| Placed {
            number,
            customer: customers[number as usize % 3].to_owned(),
            sequence: 1 + number / 3,
            message_id: format!("id-{number}"),
            is_paid: true,
        };
        let placed: Vec<Placed> = (0..12).map(order).collect();
        let consumed = |service: Service| Consumed {
            service,
            records: placed
                .iter()
                .map(|order| Record { message_id: order.message_id.clone(), is_copy: false })
                .collect(),
            effects: placed
                .iter()
                .map(|order| Effect {
                    message_id: order.message_id.clone(),
                    key: order.customer.clone(),
                    sequence: order.sequence,
                })
                .collect(),
            inbox_rows: 12,
            parked: 0,
            redriven: 0,
        };
        let consumed = Service::ALL.map(consumed).to_vec();
        Evidence {
            placed,
            consumed,
            balances: vec![Balance { what: "cents of ada".to_owned(), ordered: 100, booked: 100 }],
        }
    }

    fn verdict_after(plant: impl FnOnce(&mut Evidence)) -> (u64, u64, u64) {
        let mut evidence = evidence();
        plant(&mut evidence);
        let Verdict { lost, doubled, out_of_order, findings } = Verdict::from_evidence(&evidence);
        assert_eq!(findings.len() as u64, lost + doubled + out_of_order, "{findings:?}");
        (lost, doubled, out_of_order)
    }

    #[test]
    fn clean_evidence_has_no_findings() {
        assert_eq!(verdict_after(|_| {}), (0, 0, 0));
    }

    #[test]
    fn missing_effect_is_lost() {
        assert_eq!(verdict_after(|evidence| drop(evidence.consumed[1].effects.remove(5))), (1, 0, 0));
        assert_eq!(verdict_after(|evidence| evidence.placed[3].is_paid = false), (1, 0, 0));
        assert_eq!(verdict_after(|evidence| evidence.balances[0].booked = 99), (1, 0, 0));
    }

    #[test]
    fn second_effect_is_doubled_under_any_id() {
        let again = |evidence: &mut Evidence| evidence.consumed[2].effects[7].clone();
        assert_eq!(
            verdict_after(|evidence| {
                let effect = again(evidence);
                evidence.consumed[2].effects.push(effect);
            }),
            (0, 1, 0)
        );
        let (lost, doubled, _) = verdict_after(|evidence| {
            let effect = Effect { message_id: "another".to_owned(), ..again(evidence) };
            evidence.consumed[2].effects.push(effect);
        });
        assert_eq!((lost, doubled), (0, 1));
        assert_eq!(verdict_after(|evidence| evidence.balances[0].booked = 101), (0, 1, 0));
    }

    #[test]
    fn rolled_back_order_with_a_trace_is_doubled() {
        let rolled_back = Record { message_id: "rolled-back".to_owned(), is_copy: false };
        assert_eq!(verdict_after(|evidence| evidence.consumed[0].records.push(rolled_back)), (0, 1, 0));
        let phantom = Effect { message_id: "rolled-back".to_owned(), key: "ada".to_owned(), sequence: 5 };
        assert_eq!(verdict_after(|evidence| evidence.consumed[0].effects.push(phantom)), (0, 1, 0));
    }

    #[test]
    fn swapped_effects_of_one_customer_are_out_of_order() {
        assert_eq!(verdict_after(|evidence| evidence.consumed[0].effects.swap(3, 6)), (0, 0, 1));
        assert_eq!(verdict_after(|evidence| evidence.consumed[0].effects.swap(3, 4)), (0, 0, 0), "two customers");
    }
}
