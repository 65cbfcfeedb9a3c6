#![no_main]

// A program is no library: its modules are compiled here once more, from where they are.
#[path = "../../crates/semel-server/src"]
#[allow(dead_code, unused_imports, reason = "the program uses more of them")]
mod program {
    pub mod config;
    #[path = "config/fuzzing.rs"]
    pub mod fuzzing;
    pub mod origin;
    pub mod values;
}

use program::{config, fuzzing, origin, values};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzzing::config(bytes));
