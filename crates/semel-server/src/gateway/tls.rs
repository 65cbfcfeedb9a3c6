//! TLS on both sides, by rustls.
//!
//! 1. Towards callers: HTTP/2 and HTTP/1.1 by ALPN; a caller without ALPN speaks HTTP/1.1. TLS 1.2 and 1.3, and no
//!    early data: a request in it could be repeated by whoever saw it.
//! 2. A handshake is bounded in time, and only so many callers are in one at the same time. A caller that has not
//!    sent its first message yet takes no place among them.
//! 3. The caller's certificate, where one was asked for and verified, is known by its SHA-256. It is verified anew for
//!    each connection: no session is resumed, in which one that has expired meanwhile would still count.
//! 4. SIGHUP reads the files again. What cannot be used is said, and what was used before stays in use. Connections
//!    that are open stay as they are.
//! 5. Towards a service: verified by the host that its URL names, against the roots of this system, or against those
//!    of `--upstream-ca` and no others.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{Acceptor as Hello, NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use semel_http::ClientCertificate;
use sha2::{Digest, Sha256};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_rustls::{LazyConfigAcceptor, TlsConnector, client, server};

use super::upstream::Speaks;
use crate::config::{ClientAuthority, ClientCertificatePolicy, TlsFiles};

/// How long a handshake may take.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);

/// Callers in the middle of a handshake.
const HANDSHAKES_MAX: usize = 1024;

const HTTP_1: &[u8] = b"http/1.1";
const HTTP_2: &[u8] = b"h2";

/// Takes TLS connections. Clones share the certificate.
#[derive(Clone)]
pub struct Acceptor(Arc<Accepting>);

struct Accepting {
    files: TlsFiles,
    config: RwLock<Arc<ServerConfig>>,
    handshakes: Semaphore,
}

/// A caller whose handshake has succeeded.
pub struct Accepted<S> {
    pub stream: server::TlsStream<S>,
    /// Whether HTTP/2 was agreed on.
    pub is_http2: bool,
    /// The caller's own certificate, verified.
    pub certificate: Option<ClientCertificate>,
}

impl Acceptor {
    /// Reads the files.
    ///
    /// # Errors
    ///
    /// One line that names the setting and the file.
    pub fn load(files: TlsFiles) -> Result<Acceptor, String> {
        let config = RwLock::new(server_config(&files)?);
        Ok(Acceptor(Arc::new(Accepting { files, config, handshakes: Semaphore::new(HANDSHAKES_MAX) })))
    }

    /// Reads the files again.
    ///
    /// # Errors
    ///
    /// As [`Acceptor::load`]; then what was used before stays in use.
    pub fn reload(&self) -> Result<(), String> {
        let config = server_config(&self.0.files)?;
        *self.0.config.write().unwrap_or_else(PoisonError::into_inner) = config;
        Ok(())
    }

    /// The handshake.
    ///
    /// # Errors
    ///
    /// The caller speaks no TLS, shows no good certificate, or takes too long. It has been told, as far as TLS can.
    pub async fn accept<S: AsyncRead + AsyncWrite + Unpin>(&self, stream: S) -> io::Result<Accepted<S>> {
        timeout(HANDSHAKE_MAX, self.shake_hands(stream)).await.map_err(|_| io::ErrorKind::TimedOut)?
    }

    async fn shake_hands<S: AsyncRead + AsyncWrite + Unpin>(&self, stream: S) -> io::Result<Accepted<S>> {
        let begun = LazyConfigAcceptor::new(Hello::default(), stream).await?;
        let _place = self.0.handshakes.acquire().await.map_err(io::Error::other)?;
        let config = self.0.config.read().unwrap_or_else(PoisonError::into_inner).clone();
        let stream = begun.into_stream(config).await?;
        let (_, agreed) = stream.get_ref();
        let leaf = agreed.peer_certificates().and_then(<[_]>::first);
        let certificate = leaf.map(|leaf| ClientCertificate(Sha256::digest(leaf).into()));
        let is_http2 = agreed.alpn_protocol() == Some(HTTP_2);
        Ok(Accepted { stream, is_http2, certificate })
    }
}

impl fmt::Debug for Acceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Acceptor").field(&self.0.files).finish()
    }
}

fn server_config(files: &TlsFiles) -> Result<Arc<ServerConfig>, String> {
    let (chain, key) = (certificates("--tls-cert", &files.certificate)?, private_key(&files.key)?);
    let config = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
    let config = config.map_err(|error| error.to_string())?;
    let config = match &files.clients {
        Some(clients) => config.with_client_cert_verifier(verifier(clients)?),
        None => config.with_no_client_auth(),
    };
    let mut config = config.with_single_cert(chain, key).map_err(|error| {
        let (certificate, key) = (files.certificate.display(), files.key.display());
        match error {
            rustls::Error::InconsistentKeys(_) => {
                format!("--tls-key {key}: it is not the key of the certificate in {certificate}")
            }
            error => format!("--tls-cert {certificate} with --tls-key {key}: {error}"),
        }
    })?;
    config.alpn_protocols = vec![HTTP_2.to_vec(), HTTP_1.to_vec()];
    if files.clients.is_some() {
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
    }
    Ok(Arc::new(config))
}

fn verifier(clients: &ClientAuthority) -> Result<Arc<dyn ClientCertVerifier>, String> {
    const SETTING: &str = "--tls-client-ca";
    let roots = Arc::new(roots(SETTING, &clients.file)?);
    let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider());
    let verifier = match clients.policy {
        ClientCertificatePolicy::Required => verifier,
        ClientCertificatePolicy::Optional => verifier.allow_unauthenticated(),
    };
    verifier.build().map_err(|error| format!("{SETTING} {}: {error}", clients.file.display()))
}

/// Makes TLS connections.
#[derive(Debug, Clone)]
pub struct Connector {
    either: Arc<ClientConfig>,
    http1: Arc<ClientConfig>,
    http2: Arc<ClientConfig>,
}

impl Connector {
    /// With the roots in the file and no others, or with those of this system.
    ///
    /// # Errors
    ///
    /// One line that says what is missing.
    pub fn load(authority: Option<&Path>) -> Result<Connector, String> {
        let roots = match authority {
            Some(file) => roots("--upstream-ca", file)?,
            None => roots_of_the_system()?,
        };
        let config = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
        let config = config.map_err(|error| error.to_string())?;
        let config = config.with_root_certificates(roots).with_no_client_auth();
        let offering = |protocols: &[&[u8]]| {
            let mut config = config.clone();
            config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
            Arc::new(config)
        };
        Ok(Connector {
            either: offering(&[HTTP_2, HTTP_1]),
            http1: offering(&[HTTP_1]),
            http2: offering(&[HTTP_2]),
        })
    }

    /// The handshake; and whether HTTP/2 was agreed on.
    ///
    /// # Errors
    ///
    /// The service speaks no TLS, is not who it should be, or does not speak what was offered. Nothing was sent.
    pub async fn connect<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        host: &str,
        stream: S,
        offered: Speaks,
    ) -> io::Result<(client::TlsStream<S>, bool)> {
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        let config = match offered {
            Speaks::Either => &self.either,
            Speaks::Http1 => &self.http1,
            Speaks::Http2 => &self.http2,
        };
        let stream = TlsConnector::from(config.clone()).connect(name, stream).await?;
        let is_http2 = stream.get_ref().1.alpn_protocol() == Some(HTTP_2);
        // A service without ALPN chose nothing, so it speaks HTTP/1.1.
        if offered == Speaks::Http2 && !is_http2 {
            return Err(io::Error::other("the service did not agree on HTTP/2"));
        }
        Ok((stream, is_http2))
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

fn roots(setting: &str, file: &Path) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(setting, file)? {
        roots.add(certificate).map_err(|error| format!("{setting} {}: {error}", file.display()))?;
    }
    Ok(roots)
}

/// Without root certificates nothing could be verified: said at start, instead of at each request.
fn roots_of_the_system() -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    for error in &found.errors {
        tracing::warn!(%error, "a root certificate of this system cannot be read");
    }
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        return Err("--upstream is https, and this system has no root certificates: install the package \
                    ca-certificates, or name the service's authority with --upstream-ca FILE"
            .to_owned());
    }
    Ok(roots)
}

fn certificates(setting: &str, file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let unread = |error| format!("{setting} {}: {}", file.display(), unreadable(&error));
    match read.map_err(unread)? {
        none if none.is_empty() => {
            Err(format!("{setting} {}: there is no certificate in it; it must be PEM", file.display()))
        }
        some => Ok(some),
    }
}

fn private_key(file: &Path) -> Result<PrivateKeyDer<'static>, String> {
    PrivateKeyDer::from_pem_file(file).map_err(|error| {
        let reason = match error {
            pem::Error::NoItemsFound => {
                "there is no private key in it; it must be PEM, and not encrypted".to_owned()
            }
            error => unreadable(&error),
        };
        format!("--tls-key {}: {reason}", file.display())
    })
}

/// On one line, whatever stands in the file.
fn unreadable(error: &pem::Error) -> String {
    match error {
        pem::Error::Io(error) => error.to_string(),
        _ => "it is not PEM as it should be".to_owned(),
    }
}
