//! The URL: what libpq's users know, and a few parameters of the store's own.
//!
//! | Parameter | Default | |
//! |---|---|---|
//! | `pool` | 2 | connections that claims and settlements go over, 1 to 64; there are two more for reads and sweeps |
//! | `functions` | `on` | `off`: tables only, for people who may not create functions |
//! | `prepare` | `auto` | `on`: statements are prepared, so no pooler in transaction mode may stand between; `off`: never; `auto`: where the server names our own socket |
//! | `sslmode` | `prefer` | `disable`, `prefer`, `require`, `verify-ca`, `verify-full`, as libpq's |
//! | `sslrootcert` | the system's | a file with the authorities' certificates |
//! | `application_name`, `connect_timeout`, `host`, … | | as libpq's |

use std::path::PathBuf;
use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::{SslMode, TargetSessionAttrs};
use tokio_postgres_rustls::MakeRustlsConnect;
use url::form_urlencoded::{Serializer, parse};

use super::tls::{self, Trust};
use crate::ConnectError;

/// Where the database is, and how it is used.
#[derive(Clone)]
pub(super) struct Address {
    pub(super) config: Config,
    pub(super) tls: MakeRustlsConnect,
    pub(super) pool: usize,
    pub(super) functions: bool,
    pub(super) prepare: Prepare,
}

/// Whether statements are prepared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Prepare {
    /// Where it is found out that no pooler stands between.
    Auto,
    On,
    Off,
}

/// How long connecting to one host may take, unless the URL says otherwise.
const CONNECT_FOR: Duration = Duration::from_secs(5);

const OWN: [&str; 5] = ["pool", "functions", "prepare", "sslmode", "sslrootcert"];

/// What is handed on as it is.
const LIBPQ: [&str; 15] = [
    "user",
    "password",
    "dbname",
    "host",
    "hostaddr",
    "port",
    "application_name",
    "connect_timeout",
    "options",
    "target_session_attrs",
    "channel_binding",
    "keepalives",
    "keepalives_idle",
    "tcp_user_timeout",
    "load_balance_hosts",
];

impl Address {
    /// # Errors
    ///
    /// When something in the URL is not understood; the text says what would be right.
    pub(super) fn parse(url: &str) -> Result<Address, ConnectError> {
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        let mut own = Own::default();
        let mut rest = Serializer::new(String::new());
        for (name, value) in parse(query.as_bytes()) {
            if OWN.contains(&&*name) {
                own.take(&name, &value)?;
            } else if LIBPQ.contains(&&*name) {
                // libpq and the driver know no plus for a space.
                rest.append_pair(&name, &value);
            } else {
                return Err(unknown(&name));
            }
        }
        let text = [base, "?", &rest.finish().replace('+', "%20")].concat();
        let mut config: Config = text.parse().map_err(|error: tokio_postgres::Error| {
            let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
            ConnectError::Url(format!("the PostgreSQL URL is not understood: {cause}"))
        })?;
        own.complete(&mut config);
        let tls = tls::connector(own.trust, own.roots.as_deref())?;
        Ok(Address { config, tls, pool: own.pool, functions: own.functions, prepare: own.prepare })
    }

    /// The database for people, without user and password.
    pub(super) fn name(&self) -> String {
        let host = match self.config.get_hosts().first() {
            Some(tokio_postgres::config::Host::Tcp(host)) => host.clone(),
            #[cfg(unix)]
            Some(tokio_postgres::config::Host::Unix(path)) => path.display().to_string(),
            _ => String::new(),
        };
        let database = self.config.get_dbname().or(self.config.get_user()).unwrap_or_default();
        format!("postgres://{host}/{database}")
    }
}

struct Own {
    pool: usize,
    functions: bool,
    prepare: Prepare,
    mode: SslMode,
    trust: Trust,
    roots: Option<PathBuf>,
}

impl Default for Own {
    fn default() -> Own {
        Own {
            pool: 2,
            functions: true,
            prepare: Prepare::Auto,
            mode: SslMode::Prefer,
            trust: Trust::Anyone,
            roots: None,
        }
    }
}

impl Own {
    fn take(&mut self, name: &str, value: &str) -> Result<(), ConnectError> {
        let refuse = |may: &str| Err(ConnectError::Url(format!("{name}={value} in the store's URL: {may}")));
        match name {
            "pool" => match value.parse() {
                Ok(pool @ 1..=64) => self.pool = pool,
                _ => return refuse("it is a number from 1 to 64"),
            },
            "functions" => match value {
                "on" => self.functions = true,
                "off" => self.functions = false,
                _ => return refuse("it is on or off"),
            },
            "prepare" => {
                self.prepare = match value {
                    "auto" => Prepare::Auto,
                    "on" => Prepare::On,
                    "off" => Prepare::Off,
                    _ => return refuse("it is auto, on or off"),
                }
            }
            "sslmode" => {
                (self.mode, self.trust) = match value {
                    "disable" => (SslMode::Disable, Trust::Anyone),
                    "prefer" => (SslMode::Prefer, Trust::Anyone),
                    "require" => (SslMode::Require, Trust::Anyone),
                    "verify-ca" => (SslMode::Require, Trust::Authority),
                    "verify-full" => (SslMode::Require, Trust::Name),
                    _ => return refuse("it is disable, prefer, require, verify-ca or verify-full"),
                }
            }
            _ => self.roots = Some(PathBuf::from(value)),
        }
        Ok(())
    }

    fn complete(&self, config: &mut Config) {
        config.ssl_mode(self.mode);
        if config.get_application_name().is_none() {
            config.application_name("semel");
        }
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT_FOR);
        }
        // A standby may lag: what it says about a key decides nothing (case C87). Of several hosts, the primary is taken.
        if config.get_target_session_attrs() == TargetSessionAttrs::Any {
            config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        }
    }
}

fn unknown(name: &str) -> ConnectError {
    let nearest = OWN
        .into_iter()
        .chain(LIBPQ)
        .max_by(|one, other| strsim::jaro_winkler(name, one).total_cmp(&strsim::jaro_winkler(name, other)))
        .filter(|known| strsim::jaro_winkler(name, known) > 0.7);
    let hint = match nearest {
        Some(known) => format!("did you mean {known}?"),
        None => format!("there are {}, and those of libpq", OWN.join(", ")),
    };
    ConnectError::Url(format!("the store's URL has no parameter {name:?}: {hint}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(url: &str) -> String {
        Address::parse(url).map(|_| ()).expect_err("an error").to_string()
    }

    #[test]
    fn a_misspelt_parameter_is_named_with_the_nearest_and_the_password_is_not() {
        let text = refused("postgres://me:secret@host/db?functionss=off");
        assert!(text.contains("did you mean functions?") && !text.contains("secret"), "{text}");
        let text = refused("postgres://me:secret@host:port/db");
        assert!(!text.contains("secret"), "{text}");
        assert!(refused("postgres://host/db?pool=0").contains("from 1 to 64"));
        assert!(refused("postgres://host/db?sslmode=verify").contains("verify-full"));
    }

    #[test]
    fn what_libpq_knows_is_handed_on() {
        let address =
            Address::parse("postgres://me@one,two/db?options=-c%20work_mem%3D1MB&pool=3&functions=off")
                .unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(address.config.get_options(), Some("-c work_mem=1MB"));
        assert_eq!(address.config.get_hosts().len(), 2);
        assert_eq!((address.pool, address.functions), (3, false));
        assert_eq!(address.name(), "postgres://one/db");
        assert_eq!(address.config.get_target_session_attrs(), TargetSessionAttrs::ReadWrite);
    }
}
