//! Who a caller may be, as settings: `principal`, `trusted_proxies`, `jwks` and `auth_check`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use semel_http::{Network, Principal, TrustedProxies, Verifier};
use serde::de::{self, Deserialize, Deserializer};

use super::Settings;
use crate::values::{Upstream, nearest};

/// An entry of `principal`: somebody, or that somebody must be there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PrincipalEntry {
    /// The scope is made of it, where the request has it.
    Is(Principal),
    /// Whoever is none of those before it is refused.
    Required,
}

/// A network of proxies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Proxy(pub Network);

/// Where the keys of tokens are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySource {
    /// In a file of this machine.
    File(PathBuf),
    /// At an address.
    Url(Location),
}

/// What one GET asks for: `http://auth.internal:9000/check`, fixed by whoever configures it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    /// Who is asked.
    pub upstream: Upstream,
    /// How its `Host` is written.
    pub host: String,
    /// Path and query.
    pub target: String,
}

/// Who may call, on one route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Callers {
    /// In the order in which they are looked for.
    pub principals: Vec<Principal>,
    /// Whether whoever is none of them is refused.
    pub required: bool,
}

/// Where tokens come from, and who verifies them.
#[derive(Debug, Clone)]
pub struct Tokens {
    /// Where their keys are.
    pub source: KeySource,
    /// Without keys yet.
    pub verifier: Verifier,
}

impl Callers {
    /// # Errors
    ///
    /// One line that says what does not fit.
    pub(super) fn of(settings: &Settings) -> Result<Callers, String> {
        let entries = settings.principal.as_deref().unwrap_or_default();
        let (required, entries) = match entries {
            [named @ .., PrincipalEntry::Required] => (true, named),
            named => (false, named),
        };
        let mut principals = Vec::new();
        for entry in entries {
            match entry {
                PrincipalEntry::Is(principal) => principals.push(principal.clone()),
                PrincipalEntry::Required => {
                    return Err("--principal: 'required' stands once, at the end of the list".into());
                }
            }
        }
        if principals.is_empty() {
            principals.push(Principal::Authorization);
        }
        let callers = Callers { principals, required };
        callers.check(settings)?;
        Ok(callers)
    }

    fn check(&self, settings: &Settings) -> Result<(), String> {
        for principal in &self.principals {
            let missing = match principal {
                Principal::Jwt { .. } => missing_for_tokens(settings)?,
                Principal::Header(_) if settings.trusted_proxies.is_none() => {
                    vec!["--trusted-proxies, such as 10.0.0.0/8"]
                }
                Principal::ClientCertificate if settings.tls_client_ca.is_none() => vec!["--tls-client-ca"],
                _ => Vec::new(),
            };
            if let Some((last, others)) = missing.split_last() {
                let all = if others.is_empty() {
                    (*last).into()
                } else {
                    format!("{} and {last}", others.join(", "))
                };
                return Err(format!("--principal {principal} needs {all}"));
            }
        }
        Ok(())
    }

    /// Whether one of them is a token's claim.
    pub(super) fn by_token(&self) -> bool {
        self.principals.iter().any(|principal| matches!(principal, Principal::Jwt { .. }))
    }

    /// As they are written.
    pub fn written(&self) -> Vec<String> {
        let required = self.required.then(|| "required".to_owned());
        self.principals.iter().map(ToString::to_string).chain(required).collect()
    }
}

fn missing_for_tokens(settings: &Settings) -> Result<Vec<&'static str>, String> {
    if !cfg!(feature = "jwt") {
        return Err(
            "--principal jwt: this program was built without it; build it with the feature 'jwt'".into()
        );
    }
    let needed = [
        ("--jwks", settings.jwks.is_none()),
        ("--jwt-issuer", settings.jwt_issuer.is_none()),
        ("--jwt-audience", settings.jwt_audience.is_none()),
    ];
    Ok(needed.into_iter().filter(|(_, missing)| *missing).map(|(name, _)| name).collect())
}

/// Who verifies tokens, if some route takes them.
///
/// # Errors
///
/// One line that says what does not fit.
pub(super) fn tokens(settings: &Settings, by_token: bool) -> Result<Option<Tokens>, String> {
    let Some(source) = &settings.jwks else {
        let alone = settings.jwt_issuer.as_ref().map(|_| "--jwt-issuer");
        let alone = alone.or(settings.jwt_audience.as_ref().map(|_| "--jwt-audience"));
        return alone.map_or(Ok(None), |name| Err(format!("{name} counts only with --jwks")));
    };
    if !by_token {
        return Err("--jwks counts only with a principal such as jwt:sub".into());
    }
    let issuer = settings.jwt_issuer.clone().unwrap_or_default();
    let verifier = Verifier::new(issuer, settings.jwt_audience.iter().flatten());
    let verifier = verifier.map_err(|error| format!("--jwks: {error}"))?;
    Ok(Some(Tokens { source: source.clone(), verifier }))
}

/// The proxies whose headers are believed.
pub(super) fn trusted_proxies(settings: &Settings) -> TrustedProxies {
    settings.trusted_proxies.iter().flatten().map(|proxy| proxy.0).collect()
}

impl FromStr for PrincipalEntry {
    type Err = String;

    fn from_str(text: &str) -> Result<PrincipalEntry, String> {
        const WORDS: [&str; 4] = ["authorization", "certificate", "required", "header:x-account-id"];
        let text = text.trim();
        if text == "required" {
            return Ok(PrincipalEntry::Required);
        }
        text.parse().map(PrincipalEntry::Is).map_err(|error| {
            let token = text.to_ascii_lowercase().starts_with("jwt").then_some("jwt:sub");
            let near = token.or_else(|| nearest(&text.to_ascii_lowercase(), WORDS));
            match near.filter(|_| error == semel_http::PrincipalError::Form) {
                Some(near) => format!("{error}; did you mean '{near}'?"),
                None => error.to_string(),
            }
        })
    }
}

impl FromStr for Proxy {
    type Err = String;

    fn from_str(text: &str) -> Result<Proxy, String> {
        text.trim().parse().map(Proxy).map_err(|error: semel_http::NetworkError| error.to_string())
    }
}

impl FromStr for KeySource {
    type Err = String;

    fn from_str(text: &str) -> Result<KeySource, String> {
        if text.is_empty() {
            return Err("it is a file or a URL".into());
        }
        match text.split_once("://") {
            Some(_) => text.parse().map(KeySource::Url),
            None => Ok(KeySource::File(text.into())),
        }
    }
}

impl FromStr for Location {
    type Err = String;

    fn from_str(text: &str) -> Result<Location, String> {
        const FORM: &str = "it is written http://HOST/PATH or https://HOST/PATH";
        let url = url::Url::parse(text).map_err(|_| FORM.to_owned())?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(format!("{FORM}, without a user"));
        }
        if url.fragment().is_some() {
            return Err(format!("{FORM}, without a '#'"));
        }
        let origin = url.origin().ascii_serialization();
        let upstream = origin.parse().map_err(|_| FORM.to_owned())?;
        let host = url[url::Position::BeforeHost..url::Position::AfterPort].to_owned();
        let target = match url.query() {
            Some(query) => format!("{}?{query}", url.path()),
            None => url.path().to_owned(),
        };
        Ok(Location { upstream, host, target })
    }
}

impl fmt::Display for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeySource::File(path) => path.display().fmt(f),
            KeySource::Url(location) => location.fmt(f),
        }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.upstream, self.target)
    }
}

/// One text, or an array of them.
pub(super) fn several<'de, D, T>(deserializer: D) -> Result<Option<Vec<T>>, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err: fmt::Display>,
{
    #[derive(serde::Deserialize)]
    #[serde(untagged, expecting = "it is a text in quotes, or an array of them")]
    enum Written {
        One(String),
        Several(Vec<String>),
    }
    let texts = match Written::deserialize(deserializer)? {
        Written::One(text) => vec![text],
        Written::Several(texts) => texts,
    };
    texts.iter().map(|text| text.parse()).collect::<Result<_, _>>().map(Some).map_err(de::Error::custom)
}

macro_rules! from_toml {
    ($($type:ty),*) => {$(
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<$type, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
            }
        }
    )*};
}

from_toml!(KeySource, Location);

#[cfg(test)]
mod tests {
    use super::*;

    const TOKENS: &str = "jwks = \"keys.json\"\njwt_issuer = \"https://i\"\njwt_audience = [\"shop\"]";

    fn settings(text: &str) -> Settings {
        toml::from_str(text).unwrap()
    }

    fn callers(text: &str) -> Result<Callers, String> {
        Callers::of(&settings(text))
    }

    #[test]
    fn h5_the_list_is_read_in_its_order() {
        let written = |text: &str| callers(text).map(|callers| callers.written());
        assert_eq!(written(""), Ok(vec!["authorization".to_owned()]));
        assert_eq!(written("principal = \"required\"").unwrap(), ["authorization", "required"]);
        let text = format!("principal = [\"jwt:sub\", \"authorization\", \"required\"]\n{TOKENS}");
        assert_eq!(written(&text).unwrap(), ["jwt:sub", "authorization", "required"]);
        let text = "principal = \"header:X-Account-Id\"\ntrusted_proxies = [\"10.0.0.0/8\", \"::1\"]";
        assert_eq!(written(text).unwrap(), ["header:x-account-id"]);
        for text in
            ["principal = [\"required\", \"authorization\"]", "principal = [\"required\", \"required\"]"]
        {
            assert!(callers(text).unwrap_err().contains("at the end"), "{text}");
        }
    }

    #[test]
    fn h5_what_a_principal_needs_is_named() {
        for (text, missing) in [
            ("principal = \"jwt:sub\"", "--principal jwt:sub needs --jwks, --jwt-issuer and --jwt-audience"),
            (
                "principal = \"jwt:sub\"\njwks = \"k\"\njwt_issuer = \"i\"",
                "--principal jwt:sub needs --jwt-audience",
            ),
            (
                "principal = \"header:x-account-id\"",
                "--principal header:x-account-id needs --trusted-proxies, such as 10.0.0.0/8",
            ),
            ("principal = \"certificate\"", "--principal certificate needs --tls-client-ca"),
        ] {
            assert_eq!(callers(text).unwrap_err(), missing);
        }
    }

    #[test]
    fn what_holds_is_shown_in_the_words_of_the_file() {
        let text = format!("upstream = \"http://h\"\nprincipal = [\"jwt:sub\", \"required\"]\n{TOKENS}");
        let config = settings(&text).resolve().unwrap();
        let shown = config.effective();
        assert_eq!(config.otherwise.effective()["principal"], serde_json::json!(["jwt:sub", "required"]));
        assert_eq!((&shown["jwks"], &shown["jwt_issuer"]), (&"keys.json".into(), &"https://i".into()));
        assert_eq!(shown["jwt_audience"], serde_json::json!(["shop"]));
        let nothing = settings("upstream = \"http://h\"").resolve().unwrap();
        assert!(!nothing.effective().contains_key("jwks"));
    }

    #[test]
    fn what_is_set_in_vain_is_refused() {
        let tokens = |text: &str, by_token| tokens(&settings(text), by_token).map(|tokens| tokens.is_some());
        assert_eq!(tokens(TOKENS, true), Ok(true));
        assert_eq!(tokens("", false), Ok(false));
        assert!(tokens(TOKENS, false).unwrap_err().contains("jwt:sub"));
        assert!(tokens("jwt_audience = \"shop\"", false).unwrap_err().contains("--jwks"));
        let empty = TOKENS.replace("https://i", "");
        assert!(tokens(&empty, true).unwrap_err().contains("issuer"));
    }

    #[test]
    fn a_bad_principal_names_the_nearest_one() {
        for (typo, meant) in [
            ("Authorization", "'authorization'"),
            ("cert", "'certificate'"),
            ("requierd", "'required'"),
            ("jwt", "'jwt:sub'"),
            ("JWT:sub", "'jwt:sub'"),
            ("headr:x-account-id", "'header:x-account-id'"),
        ] {
            let error = typo.parse::<PrincipalEntry>().unwrap_err();
            assert!(error.ends_with(&format!("did you mean {meant}?")), "{typo}: {error}");
        }
        assert!("header:x-forwarded-for".parse::<PrincipalEntry>().unwrap_err().contains("address"));
        assert!("10.0.0.1/8".parse::<Proxy>().unwrap_err().contains("'10.0.0.0/8'"));
    }

    #[test]
    fn keys_are_in_a_file_or_at_an_address() {
        assert_eq!("keys/jwks.json".parse(), Ok(KeySource::File("keys/jwks.json".into())));
        for text in ["https://issuer.example:443/.well-known/jwks.json?v=1", "http://127.0.0.1:9000/"] {
            let source: KeySource = text.parse().unwrap();
            assert!(matches!(source, KeySource::Url(_)));
            assert_eq!(source.to_string(), text);
        }
        for text in ["ftp://h/k", "http://u@h/k", "http://u:p@h/k", "https:///k#a", "http://h/k#a", ""] {
            assert!(text.parse::<KeySource>().is_err(), "{text}");
        }
    }
}
