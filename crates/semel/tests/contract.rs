//! The memory store keeps the contract.

mod memory;

use memory::Memory;
use semel::testing::random::each_seed;
use semel::testing::{model, run};

semel::contract_suite!(Memory::default());
semel::inspect_suite!(Memory::default());
semel::history_suite!(Memory::default());

/// The memory store against itself. That the comparison sees differences is shown by `tests/mutants.rs`.
#[test]
fn random_histories_answer_as_the_model_does() {
    each_seed(300, |seed| run(model::compare(&Memory::default(), seed)));
}

/// A clause that the suite does not name would be no test of any store.
#[test]
fn the_suite_names_every_clause() {
    let suite = include_str!("../src/testing/contract.rs");
    let clauses = [
        include_str!("../src/testing/contract/claim.rs"),
        include_str!("../src/testing/contract/repeat.rs"),
        include_str!("../src/testing/contract/settle.rs"),
        include_str!("../src/testing/contract/retain.rs"),
        include_str!("../src/testing/contract/list.rs"),
        include_str!("../src/testing/contract/value.rs"),
        include_str!("../src/testing/contract/race.rs"),
        include_str!("../src/testing/contract/inspect.rs"),
    ];
    let mut count = 0;
    for line in clauses.iter().flat_map(|file| file.lines()) {
        let Some(rest) = line.strip_prefix("pub async fn ") else { continue };
        let name = rest.split('(').next().unwrap();
        assert!(suite.lines().any(|line| line.trim() == name), "the suite leaves out {name}");
        count += 1;
    }
    assert!(count > 90, "{count}");
}
