//! Which server, and how: from a URL.
//!
//! 1. `mysql://user:password@host:3306/database?pool=8`; `mariadb://` is the same. User and password are percent-encoded.
//! 2. An unknown parameter is an error that names the nearest known one. Nothing is guessed.
//! 3. The password goes to the driver only; [`Address::name`] is for people.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use mysql_async::{ClientIdentity, Opts, OptsBuilder, SslOpts};
use url::Url;

use crate::ConnectError;

/// Connections for claims and settlements, unless the URL says otherwise: half for each.
const POOL: u16 = 8;

/// Texts of statements that a connection keeps prepared.
const STATEMENTS_MAX: usize = 128;

/// A peer that is gone without a word is noticed by the system after this and some probes.
const KEEPALIVE: Duration = Duration::from_secs(15);

const PARAMETERS: [&str; 6] = ["pool", "isolation", "require_ssl", "ssl_ca", "ssl_cert", "ssl_key"];

/// The isolation level of this store's own connections. Both are right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Isolation {
    /// Locks no gap for a key that is not there, so claims of different keys do not meet.
    ReadCommitted,
    /// For a server whose binary log is one of statements, which refuses the other one.
    RepeatableRead,
}

/// A server and a database.
#[derive(Clone)]
pub(super) struct Address {
    pub(super) options: Opts,
    /// Without the password.
    pub(super) name: Arc<str>,
    pub(super) pool: u16,
    pub(super) isolation: Isolation,
    pub(super) is_encrypted: bool,
}

impl Address {
    /// Reads a URL.
    pub(super) fn parse(text: &str) -> Result<Address, ConnectError> {
        let mut url = Url::parse(text).map_err(|error| refuse(format!("the store's URL: {error}")))?;
        if url.host_str().is_none_or(str::is_empty) {
            return Err(refuse(format!("{}:// names no host: {FORM}", url.scheme())));
        }
        let database = url.path().trim_start_matches('/').to_owned();
        if database.is_empty() || database.contains('/') {
            return Err(refuse(format!("{} names no database: {FORM}", name(&url))));
        }
        let parameters = Parameters::of(&url)?;
        let name = name(&url).into();
        url.set_query(None);
        url.set_fragment(None);
        let _ = url.set_scheme("mysql");
        // What the driver says may repeat the URL, password and all.
        let options = Opts::from_url(url.as_str())
            .map_err(|_| refuse(format!("{name} cannot be read: percent-encode user and password")))?;
        let (pool, isolation) = (parameters.pool, parameters.isolation);
        let tls = parameters.tls()?;
        let is_encrypted = tls.is_some();
        let options = OptsBuilder::from_opts(options)
            .ssl_opts(tls)
            .prefer_socket(false)
            .stmt_cache_size(STATEMENTS_MAX)
            .tcp_keepalive(Some(KEEPALIVE))
            .into();
        Ok(Address { options, name, pool, isolation, is_encrypted })
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({})", self.name)
    }
}

const FORM: &str = "it is written mysql://user:password@host:3306/database";

fn refuse(text: String) -> ConnectError {
    ConnectError::Url(text)
}

/// The URL without password and parameters.
fn name(url: &Url) -> String {
    let user = if url.username().is_empty() { String::new() } else { format!("{}@", url.username()) };
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    format!("mysql://{user}{}{port}{}", url.host_str().unwrap_or_default(), url.path())
}

/// What follows the question mark.
struct Parameters {
    pool: u16,
    isolation: Isolation,
    require_ssl: Option<bool>,
    ssl_ca: Option<PathBuf>,
    ssl_cert: Option<PathBuf>,
    ssl_key: Option<PathBuf>,
}

impl Parameters {
    fn of(url: &Url) -> Result<Parameters, ConnectError> {
        let mut parameters = Parameters {
            pool: POOL,
            isolation: Isolation::ReadCommitted,
            require_ssl: None,
            ssl_ca: None,
            ssl_cert: None,
            ssl_key: None,
        };
        for (key, value) in url.query_pairs() {
            match key.as_ref() {
                "pool" => parameters.pool = pool(&value)?,
                "isolation" => parameters.isolation = isolation(&value)?,
                "require_ssl" => parameters.require_ssl = Some(truth(&value)?),
                "ssl_ca" => parameters.ssl_ca = Some(value.as_ref().into()),
                "ssl_cert" => parameters.ssl_cert = Some(value.as_ref().into()),
                "ssl_key" => parameters.ssl_key = Some(value.as_ref().into()),
                other => return Err(unknown(other)),
            }
        }
        Ok(parameters)
    }

    /// Asking for a certificate of anybody asks for TLS. The server's is verified always: its chain, and its name.
    fn tls(self) -> Result<Option<SslOpts>, ConnectError> {
        let is_implied = self.ssl_ca.is_some() || self.ssl_cert.is_some() || self.ssl_key.is_some();
        if !self.require_ssl.unwrap_or(is_implied) {
            return if is_implied {
                Err(refuse("ssl_ca, ssl_cert and ssl_key need TLS: leave out require_ssl=false".to_owned()))
            } else {
                Ok(None)
            };
        }
        let own = self.ssl_ca.is_some();
        let roots = self.ssl_ca.into_iter().map(Into::into).collect();
        let options = SslOpts::default().with_root_certs(roots).with_disable_built_in_roots(own);
        match (self.ssl_cert, self.ssl_key) {
            (None, None) => Ok(Some(options)),
            (Some(cert), Some(key)) => {
                let identity = ClientIdentity::new(cert.into(), key.into());
                Ok(Some(options.with_client_identity(Some(identity))))
            }
            _ => Err(refuse("ssl_cert and ssl_key go together".to_owned())),
        }
    }
}

fn pool(value: &str) -> Result<u16, ConnectError> {
    let number = value.parse().ok().filter(|number| (1..=256).contains(number));
    number.ok_or_else(|| refuse(format!("pool={value}: a number of connections from 1 to 256")))
}

fn isolation(value: &str) -> Result<Isolation, ConnectError> {
    match value {
        "read-committed" => Ok(Isolation::ReadCommitted),
        "repeatable-read" => Ok(Isolation::RepeatableRead),
        _ => Err(refuse(format!("isolation={value}: read-committed or repeatable-read"))),
    }
}

fn truth(value: &str) -> Result<bool, ConnectError> {
    value.parse().map_err(|_| refuse(format!("require_ssl={value}: true or false")))
}

/// A parameter's value may be secret, its name is not.
fn unknown(name: &str) -> ConnectError {
    let likeness = |known: &str| strsim::jaro_winkler(&name.to_ascii_lowercase(), known);
    let nearest = PARAMETERS
        .into_iter()
        .max_by(|one, other| likeness(one).total_cmp(&likeness(other)))
        .filter(|known| likeness(known) > 0.7);
    let hint = match nearest {
        Some(known) => format!("did you mean {known}?"),
        None => format!("one of {} is", PARAMETERS.join(" ")),
    };
    refuse(format!("{name:?} is no parameter of a MySQL store: {hint}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(url: &str) -> String {
        Address::parse(url).expect_err(url).to_string()
    }

    #[test]
    fn a_url_names_user_host_and_database_and_never_its_password() {
        let address = Address::parse("mariadb://ann:p%40ss@db:3307/semel?pool=3").expect("an address");
        assert_eq!(&*address.name, "mysql://ann@db:3307/semel");
        assert_eq!(address.options.pass(), Some("p@ss"));
        assert_eq!(address.options.db_name(), Some("semel"));
        assert_eq!((address.options.tcp_port(), address.pool), (3307, 3));
        assert_eq!(address.isolation, Isolation::ReadCommitted);
        assert!(!format!("{address:?}").contains("p@ss"));
    }

    #[test]
    fn what_is_wrong_is_refused_with_what_would_be_right() {
        for (url, hint) in [
            ("mysql://u:secret@h/db?pol=3", "did you mean pool?"),
            ("mysql://u:secret@h/db?sslca=x", "did you mean ssl_ca?"),
            ("mysql://u:secret@h/db?zzz=1", "one of pool"),
            ("mysql://u:secret@h/db?pool=0", "from 1 to 256"),
            ("mysql://u:secret@h/db?isolation=serializable", "repeatable-read"),
            ("mysql://u:secret@h/db?require_ssl=yes", "true or false"),
            ("mysql://u:secret@h/db?ssl_cert=a", "go together"),
            ("mysql://u:secret@h/db?require_ssl=false&ssl_ca=a", "need TLS"),
            ("mysql://u:secret@h", "names no database"),
            ("mysql://u:secret@h/a/b", "names no database"),
            ("mysql:///db", "names no host"),
            ("mysql://u:secret@h:port/db", "port"),
        ] {
            let error = error(url);
            assert!(error.contains(hint), "{url}: {error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn a_certificate_of_anybody_asks_for_tls_and_the_servers_is_verified() {
        for (parameters, is_encrypted) in [
            ("", false),
            ("?require_ssl=true", true),
            ("?ssl_ca=/ca.pem", true),
            ("?require_ssl=false", false),
        ] {
            let address = Address::parse(&format!("mysql://u@h/db{parameters}")).expect("an address");
            assert_eq!(address.is_encrypted, is_encrypted, "{parameters}");
            if let Some(tls) = address.options.ssl_opts() {
                assert!(!tls.accept_invalid_certs() && !tls.skip_domain_validation());
            }
        }
    }
}
