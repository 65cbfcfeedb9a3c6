//! The figures of a run, and what must be so at the end.
//!
//! Through the gateway: every order is charged exactly once; every one of its answers names that charge; no client was
//! told what no client should be told; and the gateway's store has each order's key, completed.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::Run;
use super::client::Seen;
use super::story::Story;

/// What came of the demo.
#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    /// How long both runs took.
    pub seconds: f64,
    pub straight: Figures,
    pub guarded: Figures,
    /// What is not as it must be.
    pub wrong: Vec<String>,
}

/// The figures of one run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Figures {
    pub orders: usize,
    /// By clients: every attempt counts.
    pub requests_sent: usize,
    /// To charge, counted by the service.
    pub requests_received: usize,
    /// By the service's ledger.
    pub charges: usize,
    /// Charges beyond the first of an order.
    pub double_charges: usize,
    /// Orders with more than one charge.
    pub orders_charged_twice: usize,
    /// Answers that name a charge, replays among them.
    pub answers: usize,
    pub replays: usize,
    /// Answers that say: later, with the same key. By status and code.
    pub refused: BTreeMap<String, usize>,
    /// Timed out, hung up, broken, no connection.
    pub unanswered: usize,
    /// Orders of which nobody knew, and the service said that it had charged.
    pub unknown_charged: usize,
    /// Orders of which nobody knew, and the service said that it had not.
    pub unknown_not_charged: usize,
}

impl Figures {
    /// Counts a run.
    pub fn of(run: &Run) -> Figures {
        let (ledger, summary) = (&run.ledger, run.ledger.summary());
        let asked = |found| {
            let orders = ledger.questions.iter().filter(|question| question.charged == found);
            orders.map(|question| question.order.as_str()).collect::<BTreeSet<_>>().len()
        };
        let mut figures = Figures {
            orders: run.carried.len(),
            requests_received: summary.requests,
            charges: summary.charges,
            double_charges: summary.charges - summary.orders_charged,
            orders_charged_twice: ledger.charges_by_order().values().filter(|count| **count > 1).count(),
            unknown_charged: asked(true),
            unknown_not_charged: asked(false),
            ..Figures::default()
        };
        for (_, seen) in run.carried.iter().flat_map(|carried| &carried.seen) {
            figures.count(seen);
        }
        figures
    }

    fn count(&mut self, seen: &Seen) {
        match seen {
            Seen::Sent => self.requests_sent += 1,
            Seen::Charged { replayed, .. } => {
                self.answers += 1;
                self.replays += usize::from(*replayed);
            }
            Seen::Later { status, code, .. } => {
                *self.refused.entry(format!("{status} {code}").trim_end().to_owned()).or_default() += 1;
            }
            Seen::HungUp | Seen::TimedOut | Seen::Refused | Seen::Broke => self.unanswered += 1,
            Seen::Surprise { .. } => {}
        }
    }

    /// All that were told: later.
    pub fn refused_in_all(&self) -> usize {
        self.refused.values().sum()
    }

    /// All of which nobody knew.
    pub fn unknown(&self) -> usize {
        self.unknown_charged + self.unknown_not_charged
    }
}

/// What is not as it must be after a run through the gateway; `keys` are the records of its store with their states.
pub fn wrong(story: &Story, run: &Run, keys: &[(String, String)]) -> Vec<String> {
    let mut wrong = Vec::new();
    let charges = run.ledger.charges_by_order();
    let states: BTreeMap<&str, &str> =
        keys.iter().map(|(key, state)| (key.as_str(), state.as_str())).collect();
    for order in &story.orders {
        match charges.get(order.key.as_str()) {
            Some(1) => {}
            None => wrong.push(format!("{} was not charged", order.key)),
            Some(count) => wrong.push(format!("{} was charged {count} times", order.key)),
        }
        match states.get(order.key.as_str()) {
            Some(&"completed") => {}
            state => wrong.push(format!("the key of {} is {}", order.key, state.unwrap_or(&"absent"))),
        }
    }
    let known = charges.keys().all(|key| story.order(key).is_some());
    if !known || keys.len() != story.orders.len() {
        wrong.push("there is an order that nobody placed".into());
    }
    for carried in &run.carried {
        let number = run.ledger.charge_of(&carried.order).map(|charge| charge.number);
        let mut answers = 0;
        for (_, seen) in &carried.seen {
            match seen {
                Seen::Charged { number: told, .. } if Some(*told) == number => answers += 1,
                Seen::Charged { number: told, .. } => {
                    wrong.push(format!("{} was told of charge {told}, which is not its own", carried.order));
                }
                Seen::Surprise { status, body } => {
                    wrong.push(format!("{} was told {status} {body}", carried.order));
                }
                _ => {}
            }
        }
        if answers == 0 {
            wrong.push(format!("{} has no answer", carried.order));
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::client::Carried;
    use crate::demo::ledger::{Arrived, Charge, Ledger, Question};
    use std::time::SystemTime;

    fn charge(number: u64, order: &str) -> Charge {
        Charge { number, order: order.to_owned(), amount: 1, at: number }
    }

    fn told(number: u64) -> Seen {
        Seen::Charged { status: 201, number, replayed: false }
    }

    /// A run in which all went well.
    fn good(story: &Story) -> (Run, Vec<(String, String)>) {
        let numbered = || (1..).zip(&story.orders);
        let charges: Vec<Charge> = numbered().map(|(number, order)| charge(number, &order.key)).collect();
        let requests =
            charges.iter().map(|charge| Arrived { order: charge.order.clone(), at: charge.at }).collect();
        let at = SystemTime::UNIX_EPOCH;
        let carried = numbered().map(|(number, order)| Carried {
            order: order.key.clone(),
            seen: vec![(at, Seen::Sent), (at, told(number))],
        });
        let keys = story.orders.iter().map(|order| (order.key.clone(), "completed".to_owned())).collect();
        let run = Run {
            carried: carried.collect(),
            ledger: Ledger { requests, charges, questions: Vec::new() },
            death: None,
        };
        (run, keys)
    }

    type Harm<'a> = &'a dyn Fn(&mut Run, &mut Vec<(String, String)>);

    #[test]
    fn every_kind_of_harm_is_seen() {
        let story = Story::new(1, 10);
        let (run, keys) = good(&story);
        assert_eq!(wrong(&story, &run, &keys), Vec::<String>::new());
        let harmed = |harm: Harm<'_>| {
            let (mut run, mut keys) = good(&story);
            harm(&mut run, &mut keys);
            wrong(&story, &run, &keys).join("; ")
        };
        let harms: [(&str, Harm<'_>); 8] = [
            ("order-0003 was charged 2 times", &|run, _| run.ledger.charges.push(charge(11, "order-0003"))),
            ("order-0010 was not charged", &|run, _| drop(run.ledger.charges.pop())),
            ("an order that nobody placed", &|run, _| run.ledger.charges.push(charge(11, "order-9999"))),
            ("the key of order-0001 is unknown", &|_, keys| keys[0].1 = "unknown".into()),
            ("the key of order-0010 is absent", &|_, keys| drop(keys.pop())),
            ("order-0002 was told of charge 7", &|run, _| run.carried[1].seen[1].1 = told(7)),
            ("order-0002 has no answer", &|run, _| drop(run.carried[1].seen.pop())),
            ("order-0002 was told 500 no", &|run, _| {
                run.carried[1].seen[1].1 = Seen::Surprise { status: 500, body: "no".into() };
            }),
        ];
        for (said, harm) in harms {
            assert!(harmed(harm).contains(said), "{said}: {:?}", harmed(harm));
        }
    }

    #[test]
    fn the_figures_are_counted_from_ledger_and_clients() {
        let story = Story::new(1, 10);
        let (mut run, _) = good(&story);
        run.ledger.charges.extend([charge(11, "order-0003"), charge(12, "order-0003")]);
        let question = |charged| Question { order: "order-0004".into(), charged, at: 0 };
        run.ledger.questions = vec![question(false), question(false), question(true)];
        let later = || Seen::Later { status: 409, code: "in-flight".into(), retry_after: Some(1) };
        let replay = Seen::Charged { status: 201, number: 1, replayed: true };
        let at = SystemTime::UNIX_EPOCH;
        let more = [Seen::Sent, later(), Seen::Sent, later(), Seen::Sent, Seen::Broke, Seen::Sent, replay];
        run.carried[0].seen.extend(more.map(|seen| (at, seen)));
        let expected = Figures {
            orders: 10,
            requests_sent: 14,
            requests_received: 10,
            charges: 12,
            double_charges: 2,
            orders_charged_twice: 1,
            answers: 11,
            replays: 1,
            refused: BTreeMap::from([("409 in-flight".to_owned(), 2)]),
            unanswered: 1,
            unknown_charged: 1,
            unknown_not_charged: 1,
        };
        assert_eq!(Figures::of(&run), expected);
        assert_eq!((expected.refused_in_all(), expected.unknown()), (2, 2));
    }
}
