//! The operations that these tests run.

use std::sync::Arc;

use semel::testing::sample;
use semel::{Key, OnUnknown, Operation, Policy};

/// Asks for the same thing as every other; nothing unknown is run again.
pub(crate) fn operation(key: &str) -> Operation {
    Operation::new(
        sample::scope(),
        Key::new(key).expect("a key"),
        sample::fingerprint("same"),
        Arc::new(Policy::new(OnUnknown::Park)),
    )
}
