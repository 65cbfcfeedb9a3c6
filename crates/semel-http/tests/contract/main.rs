//! The contract over the whole service: a memory store, an inner service in this process, no sockets.

mod answer;
mod arrive;
mod cases;
mod in_axum;
mod seen;
mod support;
