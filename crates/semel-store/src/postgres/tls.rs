//! TLS as libpq's `sslmode` says: who the server is, is checked with `verify-ca` and `verify-full` only.
//!
//! The cryptography is handed over, never installed for the whole process: another part of the program may have its own.

use std::path::Path;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::ConnectError;

/// How sure the client wants to be of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trust {
    /// Encrypted, whoever it is.
    Anyone,
    /// Somebody with a certificate of a known authority.
    Authority,
    /// The server of that name.
    Name,
}

/// # Errors
///
/// When there are no roots to check against, or their file cannot be read.
pub(super) fn connector(trust: Trust, roots: Option<&Path>) -> Result<MakeRustlsConnect, ConnectError> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| ConnectError::Unavailable(Box::new(error)))?;
    let config = match trust {
        Trust::Name => builder.with_root_certificates(root_store(roots)?).with_no_client_auth(),
        Trust::Anyone | Trust::Authority => {
            let authority = (trust == Trust::Authority).then(|| verifier(roots, &provider)).transpose()?;
            let lenient = Lenient { authority, provider };
            builder.dangerous().with_custom_certificate_verifier(Arc::new(lenient)).with_no_client_auth()
        }
    };
    Ok(MakeRustlsConnect::new(config))
}

fn verifier(
    roots: Option<&Path>,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<WebPkiServerVerifier>, ConnectError> {
    let roots = Arc::new(root_store(roots)?);
    WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(provider))
        .build()
        .map_err(|error| ConnectError::Unavailable(Box::new(error)))
}

/// The roots of a file, else those of the system.
fn root_store(file: Option<&Path>) -> Result<RootCertStore, ConnectError> {
    let mut roots = RootCertStore::empty();
    match file {
        Some(path) => {
            let refuse = |why: String| ConnectError::Url(format!("sslrootcert={}: {why}", path.display()));
            let certificates =
                CertificateDer::pem_file_iter(path).map_err(|error| refuse(error.to_string()))?;
            for certificate in certificates {
                let certificate = certificate.map_err(|error| refuse(error.to_string()))?;
                roots.add(certificate).map_err(|error| refuse(error.to_string()))?;
            }
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    if roots.is_empty() {
        let text =
            "there is no certificate of an authority to check the server by: name a file with sslrootcert=";
        return Err(ConnectError::Url(text.to_owned()));
    }
    Ok(roots)
}

/// Checks less than the name: nothing, or only the authority.
#[derive(Debug)]
struct Lenient {
    authority: Option<Arc<WebPkiServerVerifier>>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Lenient {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(authority) = &self.authority else { return Ok(ServerCertVerified::assertion()) };
        match authority.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
