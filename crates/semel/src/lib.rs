//! Operations that take effect once, however often they arrive: the rules.
//!
//! No HTTP, no SQL, no sockets here. Start reading at [`record`], which is the life of a key as pure functions,
//! then [`store`], the contract that every store keeps.

pub mod engine;
pub mod environment;
pub mod fingerprint;
pub mod inspect;
pub mod key;
pub mod memory;
pub mod observe;
pub mod policy;
pub mod record;
pub mod retry;
pub mod store;
#[cfg(feature = "testing")]
pub mod testing;

pub use engine::{Answer, Bounds, Engine, Operation, Patience, Resolved, Verdict};
pub use environment::{Clock, Entropy, SystemClock, Timestamp};
pub use fingerprint::{Algorithm, Fingerprint};
pub use inspect::{Filter, Inspect, StateName};
pub use key::{Key, KeyError, Scope};
pub use memory::MemoryStore;
pub use policy::{FOREVER, OnUnknown, Policy, PolicyError};
pub use store::{
    AttemptId, BoxError, Cause, Claim, ClaimRequest, Cursor, Entry, Fence, Label, Lease, Outcome, Purpose,
    Settlement, Store, StoreError, Swept, View, Was,
};
