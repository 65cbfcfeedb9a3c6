//! Operations that take effect once, however often they arrive: the rules.
//!
//! No HTTP, no SQL, no sockets here. Start reading at [`engine`], where the one decision is; then [`record`], the
//! life of a key as pure functions, and [`store`], the contract that every store keeps.
//!
//! ```
//! use std::sync::Arc;
//! use semel::{
//!     Algorithm, Answer, Engine, Entropy, Fingerprint, Key, MemoryStore, OnUnknown, Operation, Outcome, Policy, Scope,
//!     Verdict,
//! };
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), semel::KeyError> {
//! let engine = Engine::new(Arc::new(MemoryStore::new()), Entropy::system());
//! let policy = Arc::new(Policy::new(OnUnknown::Park));
//! let charge = Operation::new(
//!     Scope::new("shop:customer-7")?,
//!     Key::new("order-77")?,
//!     Fingerprint::builder(Algorithm::EXACT).part(b"charge").part(b"1200").finish(),
//!     policy,
//! );
//!
//! // The first time it runs, and its outcome is kept before the caller hears of it.
//! let first = engine.once(charge.clone(), |_lease| async { (Verdict::Keep(Outcome::value("paid")), "paid") }).await;
//! assert!(matches!(first, Answer::Ran { value: "paid", recorded: true, .. }));
//!
//! // However often it arrives again, it does not run.
//! let again = engine.once(charge, |_lease| async { unreachable!() as (Verdict, &str) }).await;
//! assert!(matches!(again, Answer::Replay { outcome, .. } if outcome == Outcome::value("paid")));
//! # Ok(())
//! # }
//! ```

pub mod engine;
pub mod environment;
pub mod fingerprint;
pub mod history;
pub mod inspect;
pub mod instance;
pub mod key;
pub mod memory;
pub mod observe;
pub mod policy;
pub mod record;
pub mod retry;
pub mod store;
#[cfg(feature = "testing")]
pub mod testing;
pub mod transaction;
pub mod transition;

pub use engine::{
    Age, Answer, Asked, Asking, Bounds, Engine, Heard, Open, Operation, Patience, Probe, Probed, Probing,
    Resolved, Told, Verdict, Waiting, Word,
};
pub use environment::{Clock, Entropy, SystemClock, Timestamp};
pub use fingerprint::{Algorithm, Fingerprint};
pub use history::{Event, History, Past, Through, What};
pub use inspect::{Filter, Inspect, StateName};
pub use instance::{AttemptId, Instance};
pub use key::{Key, KeyError, Scope};
pub use memory::MemoryStore;
pub use policy::{FOREVER, OnUnknown, Policy, PolicyError};
pub use store::{
    BoxError, Cause, Claim, ClaimRequest, Cursor, Entry, Fence, Label, Lease, Outcome, Purpose, Settlement,
    Store, StoreError, Swept, View, Was,
};
pub use transaction::{
    CommitError, Done, InTransaction, Once, Ran, Rerun, Run, Savepoints, TransactionError, Transactions,
    Twin, Whole, WholeError,
};
