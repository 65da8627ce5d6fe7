//! The checker: finds lost, doubled and misordered effects in the evidence. Pure, so that tests can plant faults.
//!
//! What must hold, for every service:
//!
//! * every placed order had its effect exactly once;
//! * no effect and no record in the log belongs to an order that was not placed, such as a rolled-back one;
//! * the effects of one customer happened in the order of that customer's orders;
//! * stock and money add up across the databases.

use std::collections::{HashMap, HashSet};

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
        for consumed in &evidence.consumed {
            verdict.count_effects(&evidence.placed, consumed);
            verdict.check_order(consumed);
            if consumed.service == Service::Stock {
                verdict.find_rolled_back_orders(&evidence.placed, consumed);
            }
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

    fn count_effects(&mut self, placed: &[Placed], consumed: &Consumed) {
        let service = consumed.service.name();
        let mut effects: HashMap<(&str, i64), u64> = HashMap::new();
        for effect in &consumed.effects {
            *effects.entry((&effect.key, effect.sequence)).or_default() += 1;
        }
        for order in placed {
            let (number, customer, sequence) = (order.number, &order.customer, order.sequence);
            match effects.remove(&(customer.as_str(), sequence)) {
                None => self.lost(format!("order {number} had no effect in {service} ({customer}, {sequence})")),
                Some(1) => {}
                Some(times) => self.doubled(format!("order {number} had {times} effects in {service}")),
            }
        }
        for ((customer, sequence), _) in effects {
            self.doubled(format!("{service} applied order {sequence} of {customer}, which was never placed"));
        }
    }

    /// Checks the first effect of each message; further ones already count as doubled.
    fn check_order(&mut self, consumed: &Consumed) {
        let mut seen = HashSet::new();
        let mut highest: HashMap<&str, i64> = HashMap::new();
        for effect in consumed.effects.iter().filter(|effect| seen.insert(&effect.message_id)) {
            let highest = highest.entry(&effect.key).or_insert(i64::MIN);
            if effect.sequence <= *highest {
                self.out_of_order += 1;
                self.findings.push(format!(
                    "{} applied order {} of {} after order {highest}",
                    consumed.service.name(),
                    effect.sequence,
                    effect.key,
                ));
            }
            *highest = effect.sequence.max(*highest);
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
