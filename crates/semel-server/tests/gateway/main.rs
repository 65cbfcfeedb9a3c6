//! The gateway from outside: the real program, a real socket, a service that counts what takes effect.
//!
//! One named test for each rule of the contract (`h8_…`, `g4_…`, `k9_…`), and one for each public failure of
//! another system that it must not repeat (`c01_…`).

#[path = "../support/mod.rs"]
mod support;

mod allowed;
mod assert;
mod bodies;
mod bounds;
mod comparisons;
mod cors;
mod fingerprints;
mod framing;
mod keys;
mod outcomes;
mod passing;
mod policy;
mod principals;
mod replays;
mod running;
mod sharing;
mod slow;
mod streams;
#[cfg(feature = "jwt")]
mod tokens;
mod unknowns;
mod wire;
