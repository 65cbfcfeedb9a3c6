//! How requests travel: TLS and HTTP/2 on both sides, and connections that change their protocol. What holds for
//! HTTP/1.1 in clear text, which the target `gateway` tests, holds here.

#[path = "../support/mod.rs"]
mod support;

mod bridge;
mod certificates;
mod frames;
mod http2;

mod callers;
mod http2_in;
mod http2_out;
mod streams;
mod tls_in;
mod tls_out;
mod websocket;
