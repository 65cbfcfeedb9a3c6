//! What a route can choose, through the real program and a real socket: H1, H4, H6, H8, H9, H11, H15, H18, G5.

#[path = "../support/mod.rs"]
mod support;

#[path = "../gateway/assert.rs"]
#[allow(dead_code, reason = "shared with the tests of the gateway, which use more of it")]
mod assert;

mod ages;
mod comparing;
mod keeping;
mod matching;
mod naming;
mod observing;
mod probing;
mod waiting;
mod webhooks;

use std::net::SocketAddr;

use support::{Gateway, Launch, Service};

/// A gateway with this file, whose `{upstream}` is the service.
pub(crate) fn configured(service: &Service, toml: &str) -> Gateway {
    launch(service.address(), toml).start()
}

pub(crate) fn launch(upstream: SocketAddr, toml: &str) -> Launch {
    let launch = Launch::new(upstream);
    let file = launch.directory().join("semel.toml");
    std::fs::write(&file, toml).unwrap();
    let path = file.to_str().unwrap().to_owned();
    launch.args(["--config", path.as_str()])
}
