//! Processes that are killed, stopped, put to sleep and starved of their store: what was promised holds.
//!
//! `SEMEL_SEED` replays the random choices of a run (not its timing), `SEMEL_LONG=1` makes ten times as many.

mod support;

#[path = "crash/audit.rs"]
mod audit;
#[path = "crash/campaign.rs"]
mod campaign;
#[path = "crash/load.rs"]
mod load;
#[path = "crash/outage.rs"]
mod outage;
#[path = "crash/quiet.rs"]
mod quiet;
#[path = "crash/stop.rs"]
mod stop;
