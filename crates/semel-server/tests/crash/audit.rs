//! The ledger after the campaign: what was answered is replayed, what is unknown can be resolved, and nothing has
//! taken effect twice, before and after.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

use crate::load::{self, Load, Operation};
use crate::support::{Answer, Client, Gateway, Record, Service, note, until};

/// Processes of the operator's at a time.
const OPERATORS: usize = 4;

pub(crate) struct Audit<'a> {
    gateway: &'a Gateway,
    service: &'a Service,
    /// Each operation, and the answer that its client saw.
    operations: BTreeMap<Operation, Option<Answer>>,
}

impl<'a> Audit<'a> {
    pub(crate) fn new(gateway: &'a Gateway, service: &'a Service, load: &Load) -> Audit<'a> {
        Audit { gateway, service, operations: load.operations.lock().unwrap().clone() }
    }

    pub(crate) fn run(&self) {
        let records = self.settled_records();
        self.service.ledger().wait_idle();
        self.nothing_twice();
        let mut states = BTreeMap::new();
        for operation in self.operations.keys() {
            let state = records.get(&operation.key).map_or("absent", |record| record.state.as_str());
            assert!(
                matches!(state, "absent" | "completed" | "released" | "unknown"),
                "{operation:?}: {state}"
            );
            *states.entry(state).or_insert(0) += 1;
        }
        note(&format!("records: {states:?} of {} operations", self.operations.len()));

        let replayed = self.what_was_answered_is_replayed();
        // From here on it makes no new trouble.
        self.service.set(load::honest);
        let (completed, rerun) = self.what_is_unknown_can_be_resolved(&records);
        self.every_key_has_an_answer();
        self.nothing_twice();
        self.fences_rise();
        note(&format!(
            "audit: {replayed} answers replayed as they were seen; unknown and resolved: {completed} completed, \
             {rerun} run again; {} effects, no key twice",
            self.service.ledger().effects_count()
        ));
    }

    /// All records, when none is running any more: leases that nobody renews have lapsed.
    fn settled_records(&self) -> HashMap<String, Record> {
        let records = until("nothing is running", || {
            let records = self.gateway.operator().keys();
            records.iter().all(|record| record.state != "running").then_some(records)
        });
        records.into_iter().map(|record| (record.key.clone(), record)).collect()
    }

    fn nothing_twice(&self) {
        assert_eq!(self.service.ledger().twice(), Vec::new(), "these keys took effect more than once");
    }

    fn what_was_answered_is_replayed(&self) -> usize {
        let mut client = self.gateway.connect();
        let mut replayed = 0;
        for (operation, seen) in &self.operations {
            let Some(seen) = seen else { continue };
            let again = client.call(&operation.call()).expect("the gateway answers");
            assert!(again.is_replay(), "{operation:?} was answered with {seen:?}, and now with {again:?}");
            assert_eq!(kept(&again), kept(seen), "{operation:?}");
            replayed += 1;
        }
        replayed
    }

    /// As an operator would who knows the ledger. Gives how many had taken effect, and how many had not.
    fn what_is_unknown_can_be_resolved(&self, records: &HashMap<String, Record>) -> (usize, usize) {
        let unknown: Vec<_> = self
            .operations
            .keys()
            .filter(|operation| records.get(&operation.key).is_some_and(|record| record.state == "unknown"))
            .collect();
        let share = unknown.len().div_ceil(OPERATORS).max(1);
        let counts = std::thread::scope(|scope| {
            let shares = unknown.chunks(share);
            let shares: Vec<_> = shares.map(|share| scope.spawn(|| self.resolve(share))).collect();
            shares.into_iter().map(|share| share.join().expect("resolved")).collect::<Vec<_>>()
        });
        counts.into_iter().fold((0, 0), |sum, count| (sum.0 + count.0, sum.1 + count.1))
    }

    fn resolve(&self, share: &[&Operation]) -> (usize, usize) {
        let mut client = self.gateway.connect();
        let (mut completed, mut rerun) = (0, 0);
        for operation in share {
            match self.service.ledger().effects(&operation.key) {
                0 => {
                    self.gateway.operator().resolve_rerun(&operation.key);
                    rerun += 1;
                }
                _ => {
                    self.resolve_completed(operation, &mut client);
                    completed += 1;
                }
            }
        }
        (completed, rerun)
    }

    fn resolve_completed(&self, operation: &Operation, client: &mut Client) {
        let (text, file) = self.response_file(operation);
        self.gateway.operator().resolve_completed(&operation.key, 201, &file);
        let answer = client.call(&operation.call()).expect("the gateway answers");
        assert!(answer.is_replay() && answer.status == 201, "{operation:?} was resolved, and got {answer:?}");
        assert_eq!(answer.text(), text);
    }

    fn response_file(&self, operation: &Operation) -> (String, PathBuf) {
        let text = format!("{{\"found in the ledger\":\"{}\"}}", operation.key);
        let file = self.gateway.launch().directory().join(format!("{}.json", operation.key));
        std::fs::write(&file, &text).expect("a file");
        (text, file)
    }

    /// Also the keys that were never claimed, released, or are to run again. After that the ledger is exact.
    fn every_key_has_an_answer(&self) {
        let mut client = self.gateway.connect();
        for operation in self.operations.keys() {
            let answer = until("an answer that ends it", || {
                let answer = client.call(&operation.call()).expect("the gateway answers");
                matches!(answer.status, 201 | 402).then_some(answer)
            });
            assert_ne!(answer.header("semel-recorded"), Some("false"));
            let effects = self.service.ledger().effects(&operation.key);
            assert_eq!(effects, operation.effects(), "{operation:?} took effect {effects} times");
        }
    }

    /// A service that refuses a lower fence than it has seen never refuses an attempt in its turn.
    fn fences_rise(&self) {
        let mut last = HashMap::new();
        for received in self.service.ledger().received() {
            let fence = received.header("semel-fence").and_then(|fence| fence.parse::<u64>().ok());
            let fence = fence.expect("each request carries its fence");
            let before = last.insert(received.key().to_owned(), fence);
            assert!(before < Some(fence), "{} has fence {fence} after {before:?}", received.key());
        }
    }
}

/// Everything of an answer but what is the moment's: the date, and the mark of a replay.
fn kept(answer: &Answer) -> (u16, Vec<&(String, String)>, &[u8]) {
    let moments = ["date", "idempotent-replayed"];
    let lines = answer.headers.iter().filter(|(name, _)| !moments.contains(&name.as_str()));
    (answer.status, lines.collect(), &answer.body)
}
