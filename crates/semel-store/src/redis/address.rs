//! The URL of a Redis store.
//!
//! ```text
//! redis://[user[:password]@]host[:port][/number][?parameters]
//! redis+cluster://[user[:password]@]host[:port][,host[:port]…][?parameters]      any of its nodes
//! rediss://…   rediss+cluster://…                                                the same, by TLS
//! ```
//!
//! 1. The password is percent-encoded, as in every URL, and never shown again.
//! 2. TLS is always verified: the certificate and the name, against the system's authorities or those of `ca`.
//! 3. An unknown parameter is an error: a typing error in `allow_loss` or `prefix` would be another store.

use std::path::PathBuf;

use url::Url;

use crate::ConnectError;

/// The parameters, by their names.
const PARAMETERS: [&str; 4] = ["allow_loss", "ca", "prefix", "wait"];

const PREFIX_BYTES_MAX: usize = 64;

/// Redis refuses what it cannot know to have: more replicas than anybody runs.
const WAIT_MAX: u32 = 16;

/// What a URL says.
#[derive(Clone)]
pub(super) struct Address {
    /// One for the server, or some nodes of the cluster; as redis-rs reads them, with the password.
    pub(super) nodes: Vec<String>,
    pub(super) is_cluster: bool,
    pub(super) parameters: Parameters,
}

/// What may follow the `?`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Parameters {
    /// Before every name in the server, so that several systems share one.
    pub(super) prefix: String,
    /// Open a server that may evict records, or lose them when it stops.
    pub(super) allow_loss: bool,
    /// So many replicas must have a write before it is answered.
    pub(super) wait: u32,
    /// The authorities, as PEM, in place of the system's.
    pub(super) ca: Option<PathBuf>,
}

impl Default for Parameters {
    fn default() -> Parameters {
        Parameters { prefix: "semel".to_owned(), allow_loss: false, wait: 0, ca: None }
    }
}

impl Address {
    pub(super) fn parse(url: &str) -> Result<Address, ConnectError> {
        let refuse = |text: &str| ConnectError::Url(text.to_owned());
        let (scheme, rest) = url.split_once("://").ok_or_else(|| refuse(FORM))?;
        let is_cluster = scheme.ends_with("+cluster");
        let plain = scheme.trim_end_matches("+cluster");
        if rest.contains('#') {
            return Err(refuse(
                "nothing may follow # in a Redis store's URL; in a password it is written %23",
            ));
        }
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = place.split_once('/').unwrap_or((place, ""));
        let (login, hosts) =
            authority.rsplit_once('@').map_or((None, authority), |(login, hosts)| (Some(login), hosts));
        if !is_cluster && hosts.contains(',') {
            return Err(refuse("several hosts are a cluster's nodes: write redis+cluster://HOST,HOST"));
        }
        if is_cluster && !matches!(path, "" | "0") {
            return Err(refuse(
                "a cluster has no numbered databases: leave the number out of redis+cluster://",
            ));
        }
        let login = login.map_or(String::new(), |login| format!("{login}@"));
        let node = |host: &str| format!("{plain}://{login}{host}/{path}");
        let nodes: Vec<String> = hosts.split(',').map(node).collect();
        nodes.iter().try_for_each(|node| check(node))?;
        let parameters = Parameters::parse(query)?;
        if is_cluster && parameters.wait > 0 {
            return Err(refuse(
                "wait is not offered on a cluster: leave it out, or use one server with replicas",
            ));
        }
        if parameters.ca.is_some() && plain == "redis" {
            return Err(refuse("ca counts only with TLS: write rediss://"));
        }
        Ok(Address { nodes, is_cluster, parameters })
    }

    /// For people, without user and password.
    pub(super) fn shown(&self) -> String {
        let hosts = self.nodes.iter().map(|node| match Url::parse(node) {
            Ok(url) => {
                let port = url.port().map_or(String::new(), |port| format!(":{port}"));
                format!("{}{port}{}", url.host_str().unwrap_or_default(), url.path().trim_end_matches('/'))
            }
            Err(_) => String::new(),
        });
        let plain = if self.nodes[0].starts_with("rediss:") { "rediss" } else { "redis" };
        let cluster = if self.is_cluster { "+cluster" } else { "" };
        format!("{plain}{cluster}://{}", hosts.collect::<Vec<_>>().join(","))
    }
}

const FORM: &str = "a Redis store is written redis://HOST:PORT/0, or redis+cluster://HOST:PORT for a cluster";

fn check(node: &str) -> Result<(), ConnectError> {
    let url = Url::parse(node).map_err(|_| ConnectError::Url(FORM.to_owned()))?;
    let number = url.path().trim_start_matches('/');
    if url.host_str().is_none_or(str::is_empty) || !(number.is_empty() || number.parse::<u32>().is_ok()) {
        return Err(ConnectError::Url(FORM.to_owned()));
    }
    Ok(())
}

impl Parameters {
    fn parse(query: &str) -> Result<Parameters, ConnectError> {
        let mut parameters = Parameters::default();
        let mut seen = Vec::new();
        for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
            if seen.contains(&name) {
                return Err(ConnectError::Url(format!("{name} stands twice in the store's URL")));
            }
            parameters.set(&name, &value)?;
            seen.push(name);
        }
        Ok(parameters)
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), ConnectError> {
        let unfit = |what: &str| Err(ConnectError::Url(format!("{name} in the store's URL {what}")));
        match name {
            "allow_loss" => match value {
                "true" => self.allow_loss = true,
                "false" => self.allow_loss = false,
                _ => return unfit("is true or false"),
            },
            "ca" if value.is_empty() => return unfit("is a file with certificates in PEM"),
            "ca" => self.ca = Some(PathBuf::from(value)),
            "prefix" if is_prefix(value) => self.prefix = value.to_owned(),
            "prefix" => return unfit("is 1 to 64 letters, digits, and any of - _ . :"),
            "wait" => match value.parse() {
                Ok(replicas) if replicas <= WAIT_MAX => self.wait = replicas,
                _ => return unfit("is a number of replicas, 0 to 16"),
            },
            _ => return Err(unknown(name)),
        }
        Ok(())
    }
}

/// Without braces, which Redis reads as what places a name in a cluster.
fn is_prefix(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
    (1..=PREFIX_BYTES_MAX).contains(&text.len()) && text.bytes().all(fits)
}

fn unknown(name: &str) -> ConnectError {
    let likeness = |known: &str| strsim::jaro_winkler(name, known);
    let nearest = PARAMETERS
        .into_iter()
        .max_by(|one, other| likeness(one).total_cmp(&likeness(other)))
        .filter(|known| likeness(known) > 0.7);
    let hint = match nearest {
        Some(known) => format!("did you mean {known}?"),
        None => format!("known are {}", PARAMETERS.join(", ")),
    };
    ConnectError::Url(format!("a Redis store has no parameter {name:?}: {hint}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(url: &str) -> String {
        Address::parse(url).err().unwrap_or_else(|| panic!("{url} is taken")).to_string()
    }

    #[test]
    fn a_url_says_where_and_how() {
        let address =
            Address::parse("redis://me:p%40ss@one:7000/3?prefix=pay&allow_loss=true&wait=1").unwrap();
        assert_eq!(address.nodes, ["redis://me:p%40ss@one:7000/3"]);
        let expected = Parameters { prefix: "pay".to_owned(), allow_loss: true, wait: 1, ca: None };
        assert_eq!((address.is_cluster, &address.parameters), (false, &expected));
        assert_eq!(address.shown(), "redis://one:7000/3");
        let address = Address::parse("rediss+cluster://:secret@one:7000,two:7001").unwrap();
        assert_eq!(address.nodes, ["rediss://:secret@one:7000/", "rediss://:secret@two:7001/"]);
        assert_eq!(address.shown(), "rediss+cluster://one:7000,two:7001");
        assert_eq!(Address::parse("redis://h").unwrap().parameters, Parameters::default());
    }

    #[test]
    fn an_unknown_parameter_names_the_nearest_one() {
        let said = refusal("redis://h?alow_loss=true");
        assert_eq!(said, "a Redis store has no parameter \"alow_loss\": did you mean allow_loss?");
        assert!(refusal("redis://h?zzz=1").ends_with("known are allow_loss, ca, prefix, wait"));
        assert!(refusal("redis://h?wait=1&wait=2").contains("twice"));
    }

    #[test]
    fn what_does_not_fit_is_refused_and_a_password_is_never_shown() {
        for url in [
            "redis://me:secret@h?allow_loss=yes",
            "redis://me:secret@h?prefix=a{b}",
            "redis://me:secret@h?prefix=",
            "redis://me:secret@h?wait=many",
            "redis://me:secret@h?ca=/some/ca.pem",
            "redis://me:secret@h/name",
            "redis://me:secret@h:port",
            "redis://me:secret@",
            "redis://me:secret@one,two",
            "redis+cluster://me:secret@one,two/3",
            "redis+cluster://me:secret@one?wait=1",
            "redis://me:sec#ret@h",
            "redis:me:secret@h",
        ] {
            let said = refusal(url);
            assert!(!said.contains("sec"), "{said}");
        }
    }
}
