//! TLS towards callers, as a setting.

use std::fmt;
use std::path::PathBuf;

use clap::ValueEnum;

use super::Settings;

/// Whether a caller must show a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClientCertificatePolicy {
    /// A caller without one is not let in
    Required,
    /// It is asked for, and one that is shown must be good
    Optional,
}

impl fmt::Display for ClientCertificatePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ClientCertificatePolicy::Required => "required",
            ClientCertificatePolicy::Optional => "optional",
        })
    }
}

/// The files that TLS towards callers is made of.
#[derive(Debug, Clone)]
pub struct TlsFiles {
    /// The certificate, and those between it and its root, in PEM.
    pub certificate: PathBuf,
    /// Its private key, in PEM.
    pub key: PathBuf,
    /// Who may sign the callers' certificates; without it none is asked for.
    pub clients: Option<ClientAuthority>,
}

/// Who may sign the callers' certificates.
#[derive(Debug, Clone)]
pub struct ClientAuthority {
    /// The authorities' certificates, in PEM.
    pub file: PathBuf,
    /// Whether a caller must have one.
    pub policy: ClientCertificatePolicy,
}

/// The files, if TLS is asked for.
///
/// # Errors
///
/// One line that names what is missing.
pub(super) fn files(settings: &Settings) -> Result<Option<TlsFiles>, String> {
    let clients = match (&settings.tls_client_ca, settings.tls_client_cert) {
        (Some(file), policy) => Some(ClientAuthority {
            file: file.clone(),
            policy: policy.unwrap_or(ClientCertificatePolicy::Required),
        }),
        (None, Some(_)) => {
            return Err("--tls-client-cert needs --tls-client-ca: who may sign the certificates".into());
        }
        (None, None) => None,
    };
    match (&settings.tls_cert, &settings.tls_key) {
        (Some(certificate), Some(key)) => {
            Ok(Some(TlsFiles { certificate: certificate.clone(), key: key.clone(), clients }))
        }
        (Some(_), None) => Err("--tls-cert needs --tls-key: the certificate's private key".into()),
        (None, Some(_)) => Err("--tls-key needs --tls-cert: the key's certificate".into()),
        (None, None) if clients.is_some() => {
            Err("--tls-client-ca needs --tls-cert and --tls-key: TLS has to end here".into())
        }
        (None, None) => Ok(None),
    }
}
