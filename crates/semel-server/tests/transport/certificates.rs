//! Certificates that are made when they are needed, and good for as long as a test takes.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig};

/// Somebody whose word others take.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key.
pub(crate) struct Issued {
    pub(crate) certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
    certificate_pem: String,
    key_pem: String,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Authority {
        let mut parameters = CertificateParams::default();
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        parameters.distinguished_name.push(DnType::CommonName, name);
        Authority(CertifiedIssuer::self_signed(parameters, KeyPair::generate().unwrap()).unwrap())
    }

    pub(crate) fn file(&self, directory: &Path) -> PathBuf {
        written(directory, "authority.pem", &self.0.pem())
    }

    /// For a server or a client by these names.
    pub(crate) fn issue(&self, names: &[&str]) -> Issued {
        self.issue_with(names, |_| {})
    }

    /// One that was good until an hour ago.
    pub(crate) fn issue_expired(&self, names: &[&str]) -> Issued {
        self.issue_with(names, |parameters| {
            let hour = Duration::from_secs(3600);
            parameters.not_before = (std::time::SystemTime::now() - 24 * hour).into();
            parameters.not_after = (std::time::SystemTime::now() - hour).into();
        })
    }

    fn issue_with(&self, names: &[&str], change: impl FnOnce(&mut CertificateParams)) -> Issued {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut parameters = CertificateParams::new(names).unwrap();
        parameters.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        change(&mut parameters);
        let key = KeyPair::generate().unwrap();
        let certificate = parameters.signed_by(&key, &self.0).unwrap();
        Issued {
            certificate_pem: certificate.pem(),
            key_pem: key.serialize_pem(),
            certificate: certificate.der().clone(),
            key: PrivatePkcs8KeyDer::from(key.serialize_der()).into(),
        }
    }

    /// A client that trusts this authority, and speaks these protocols.
    pub(crate) fn client(&self, protocols: &[&str], own: Option<&Issued>) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone()).unwrap();
        let config = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
        let config = config.unwrap().with_root_certificates(roots);
        let mut config = match own {
            Some(own) => {
                config.with_client_auth_cert(vec![own.certificate.clone()], own.key.clone_key()).unwrap()
            }
            None => config.with_no_client_auth(),
        };
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
        Arc::new(config)
    }
}

impl Issued {
    /// `--tls-cert` and `--tls-key`, with files in the directory.
    pub(crate) fn args(&self, directory: &Path) -> [String; 4] {
        let certificate = written(directory, "server.pem", &self.certificate_pem);
        let key = written(directory, "server.key", &self.key_pem);
        let text = |path: PathBuf| path.to_str().unwrap().to_owned();
        ["--tls-cert".to_owned(), text(certificate), "--tls-key".to_owned(), text(key)]
    }

    /// A server by this certificate that speaks these protocols.
    pub(crate) fn server(&self, protocols: &[&str]) -> Arc<ServerConfig> {
        let config = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
        let config = config.unwrap().with_no_client_auth();
        let mut config =
            config.with_single_cert(vec![self.certificate.clone()], self.key.clone_key()).unwrap();
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
        Arc::new(config)
    }
}

pub(crate) fn written(directory: &Path, name: &str, text: &str) -> PathBuf {
    let path = directory.join(name);
    std::fs::write(&path, text).unwrap();
    path
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}
