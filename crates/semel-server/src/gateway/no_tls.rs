//! What stands for [`tls`](super::tls) in a build without it: nothing can be made, and every attempt says so.

use std::convert::Infallible;
use std::io;
use std::path::Path;

use semel_http::ClientCertificate;
use tokio::io::{AsyncRead, AsyncWrite};

use super::upstream::Speaks;
use crate::config::TlsFiles;

/// There is none.
#[derive(Debug, Clone)]
pub struct Acceptor(Infallible);

/// There is none.
pub struct Accepted<S> {
    pub stream: S,
    pub is_http2: bool,
    pub certificate: Option<ClientCertificate>,
}

impl Acceptor {
    pub fn load(_: TlsFiles) -> Result<Acceptor, String> {
        Err("--tls-cert: this program was built without TLS; build it with the feature 'tls'".to_owned())
    }

    pub fn reload(&self) -> Result<(), String> {
        match self.0 {}
    }

    pub async fn accept<S>(&self, _: S) -> io::Result<Accepted<S>> {
        match self.0 {}
    }
}

/// There is none.
#[derive(Debug, Clone)]
pub struct Connector(Infallible);

impl Connector {
    pub fn load(_: Option<&Path>) -> Result<Connector, String> {
        Err("--upstream is https, and this program was built without TLS; build it with the feature 'tls'"
            .to_owned())
    }

    pub async fn connect<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        _: &str,
        _: S,
        _: Speaks,
    ) -> io::Result<(S, bool)> {
        match self.0 {}
    }
}
