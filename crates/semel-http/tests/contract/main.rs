//! The contract over the whole service: a memory store, an inner service in this process, no sockets.

mod aged;
mod answer;
mod around;
mod arrive;
mod callers;
mod cases;
mod in_axum;
mod in_tonic;
mod seen;
mod support;
mod traced;
