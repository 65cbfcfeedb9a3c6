//! How durations, sizes and addresses are written: on the command line, in the environment and in TOML alike.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::str::FromStr;
use std::time::Duration;

use serde::de::{self, Deserialize, Deserializer};

/// A duration: `250ms`, `30s`, `5m`, `24h`, `30d`, or `forever`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span(pub Duration);

const UNITS: [(&str, u64); 5] =
    [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 60 * 60_000), ("d", 24 * 60 * 60_000)];

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Span, String> {
        if text == "forever" {
            return Ok(Span(semel::FOREVER));
        }
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        let number: u64 = number.parse().map_err(|_| not_a_duration(text, None))?;
        let millis = UNITS.iter().find(|(name, _)| *name == unit).map(|(_, millis)| *millis);
        let millis = millis.ok_or_else(|| not_a_duration(text, Some((number, unit))))?;
        let total = number.checked_mul(millis).ok_or("it is too long; 'forever' has no end")?;
        Ok(Span(Duration::from_millis(total)))
    }
}

fn not_a_duration(text: &str, parts: Option<(u64, &str)>) -> String {
    const FORMS: &str = "a duration is written 250ms, 30s, 5m, 24h, 30d or forever";
    match parts {
        None if nearest(text, ["forever"]).is_some() => format!("{FORMS}; did you mean 'forever'?"),
        None => FORMS.into(),
        Some((number, unit)) => {
            let (number, unit) = match days(unit) {
                Some(days) => (number.saturating_mul(days), "d"),
                None => (number, nearest_unit(unit)),
            };
            format!("{FORMS}; did you mean '{number}{unit}'?")
        }
    }
}

/// What is longer than a day has no unit here. `1month` for a minute would be a key that is forgotten at once.
fn days(unit: &str) -> Option<u64> {
    let unit = unit.trim().to_ascii_lowercase();
    [("w", 7), ("mo", 30), ("y", 365)]
        .into_iter()
        .find(|(start, _)| unit.starts_with(start))
        .map(|(_, days)| days)
}

/// `sec`, `mins`, `hours` and `days` begin with their unit; nothing at all is most often seconds.
fn nearest_unit(unit: &str) -> &'static str {
    let unit = unit.to_ascii_lowercase();
    let unit = unit.trim();
    if unit.starts_with("mil") || unit == "msec" {
        return "ms";
    }
    UNITS.iter().map(|(name, _)| *name).find(|name| *name != "ms" && unit.starts_with(name)).unwrap_or("s")
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == semel::FOREVER {
            return f.write_str("forever");
        }
        if self.0.is_zero() {
            return f.write_str("0s");
        }
        let millis = u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX);
        // One day is written as it is in the defaults: 24h.
        let units = UNITS.iter().rev().filter(|(name, unit)| *name != "d" || millis > *unit);
        match units.into_iter().find(|(_, unit)| millis >= *unit && millis % unit == 0) {
            Some((name, unit)) => write!(f, "{}{name}", millis / unit),
            None => write!(f, "{millis}ms"),
        }
    }
}

/// A number of bytes: `1048576`, `64KiB`, `1MiB`, `1GiB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size(pub usize);

const SIZES: [(&str, usize); 4] = [("", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)];

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Size, String> {
        const FORMS: &str = "a size is written 65536, 64KiB, 1MiB or 1GiB";
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        let number: usize = number.parse().map_err(|_| FORMS.to_owned())?;
        let factor = SIZES.iter().find(|(name, _)| *name == unit).map(|(_, factor)| *factor);
        let factor = factor.ok_or_else(|| {
            let near = SIZES[1..]
                .iter()
                .find(|(name, _)| name[..1].eq_ignore_ascii_case(unit.get(..1).unwrap_or("")));
            near.map_or(FORMS.into(), |(name, _)| format!("{FORMS}; did you mean '{number}{name}'?"))
        })?;
        number.checked_mul(factor).map(Size).ok_or_else(|| "it is too large".into())
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let largest = SIZES.iter().rev().find(|(_, unit)| self.0 >= *unit && self.0.is_multiple_of(*unit));
        let (name, unit) = largest.unwrap_or(&SIZES[0]);
        write!(f, "{}{name}", self.0 / unit)
    }
}

/// Where to listen: `127.0.0.1:8080`, `[::1]:8080`, `localhost:8080`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Address(pub SocketAddr);

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Address, String> {
        let forms = || match text.parse::<u16>().or_else(|_| text.trim_start_matches(':').parse::<u16>()) {
            Ok(port) => format!("an address has a host and a port; did you mean '127.0.0.1:{port}'?"),
            Err(_) => "an address is written 127.0.0.1:8080, [::1]:8080 or localhost:8080".to_owned(),
        };
        let (host, _) = text.rsplit_once(':').ok_or_else(forms)?;
        if host.is_empty() {
            return Err(forms());
        }
        text.to_socket_addrs().ok().and_then(|mut found| found.next()).map(Address).ok_or_else(forms)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The service behind the gateway: `http://HOST`, `https://HOST`, with or without a port.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Upstream {
    /// Whether TLS is spoken to it.
    pub secure: bool,
    /// A name or an address; IPv6 without its brackets.
    pub host: String,
    /// The port.
    pub port: u16,
}

impl FromStr for Upstream {
    type Err = String;

    fn from_str(text: &str) -> Result<Upstream, String> {
        const FORM: &str = "an upstream is written http://127.0.0.1:9000 or https://shop.example";
        let Ok(url) = url::Url::parse(text) else { return Err(no_url(text, FORM)) };
        // `http:/host` and `http:host` are read as URLs too.
        let scheme = matches!(url.scheme(), "http" | "https").then(|| format!("{}://", url.scheme()));
        if scheme.is_some_and(|scheme| !text.to_ascii_lowercase().starts_with(&scheme)) {
            return Err(format!("{FORM}; did you mean '{}'?", url.as_str().trim_end_matches('/')));
        }
        let secure = match url.scheme() {
            "http" => false,
            "https" => true,
            other => {
                return Err(match nearest(other, ["http", "https"]) {
                    Some(near) => format!("{FORM}; did you mean '{}'?", text.replacen(other, near, 1)),
                    None => no_url(text, FORM),
                });
            }
        };
        if url.path() != "/" || url.query().is_some() || url.fragment().is_some() {
            return Err(format!("{FORM}, without a path: the caller's path is kept"));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(format!("{FORM}, without a user"));
        }
        let host = match url.host() {
            Some(url::Host::Ipv6(address)) => address.to_string(),
            Some(host) => host.to_string(),
            None => return Err(FORM.into()),
        };
        Ok(Upstream { secure, host, port: url.port_or_known_default().unwrap_or(80) })
    }
}

/// `127.0.0.1:9000` and `localhost:9000` lack their scheme; the latter even parses as a URL of scheme `localhost`.
fn no_url(text: &str, form: &str) -> String {
    let candidate = format!("http://{text}");
    match url::Url::parse(&candidate) {
        Ok(url) if url.port().is_some() && !text.contains("//") => {
            format!("{form}; did you mean '{candidate}'?")
        }
        _ => form.to_owned(),
    }
}

impl fmt::Display for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.secure { "https" } else { "http" };
        if self.host.contains(':') {
            write!(f, "{scheme}://[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{scheme}://{}:{}", self.host, self.port)
        }
    }
}

/// Which HTTP is spoken to the service: `auto`, `1` or `2`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum HttpVersion {
    /// HTTP/1.1 on clear text; over TLS what the service chooses.
    #[default]
    Auto,
    /// HTTP/1.1.
    One,
    /// HTTP/2, on clear text without asking first.
    Two,
}

impl FromStr for HttpVersion {
    type Err = String;

    fn from_str(text: &str) -> Result<HttpVersion, String> {
        const FORM: &str = "it is auto, 1 or 2";
        match text {
            "auto" => Ok(HttpVersion::Auto),
            "1" => Ok(HttpVersion::One),
            "2" => Ok(HttpVersion::Two),
            "1.1" | "http/1.1" | "http1" | "h1" => Err(format!("{FORM}; did you mean '1'?")),
            "2.0" | "http/2" | "http2" | "h2" | "h2c" => Err(format!("{FORM}; did you mean '2'?")),
            other => Err(match nearest(other, ["auto"]) {
                Some(near) => format!("{FORM}; did you mean '{near}'?"),
                None => FORM.into(),
            }),
        }
    }
}

impl fmt::Display for HttpVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            HttpVersion::Auto => "auto",
            HttpVersion::One => "1",
            HttpVersion::Two => "2",
        })
    }
}

/// The candidate that a misspelling was most likely meant to be.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    candidates
        .into_iter()
        .map(|candidate| (strsim::jaro_winkler(word, candidate), candidate))
        .filter(|(likeness, _)| *likeness > 0.75)
        .max_by(|(one, _), (other, _)| one.total_cmp(other))
        .map(|(_, candidate)| candidate)
}

/// In TOML these are strings, and a size may also be a plain number. Whatever else stands there is read as text, so
/// that the error says how it is written.
macro_rules! from_toml {
    ($($type:ty),*) => {$(
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<$type, D::Error> {
                Written::deserialize(deserializer)?.to_string().parse().map_err(de::Error::custom)
            }
        }
    )*};
}

from_toml!(Span, Address, Upstream, HttpVersion, Size);

#[derive(serde::Deserialize)]
#[serde(untagged, expecting = "it is written in quotes")]
enum Written {
    Number(i64),
    Text(String),
}

impl fmt::Display for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Written::Number(number) => number.fmt(f),
            Written::Text(text) => text.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_written_alike() {
        for text in ["0s", "250ms", "30s", "5m", "24h", "30d", "forever"] {
            let span: Span = text.parse().unwrap();
            assert_eq!(span.to_string().parse::<Span>(), Ok(span));
        }
        assert_eq!("90s".parse::<Span>(), Ok(Span(Duration::from_secs(90))));
        assert_eq!(Span(Duration::from_secs(86_400)).to_string(), "24h");
    }

    #[test]
    fn a_bad_duration_names_the_nearest_one() {
        for (typo, meant) in
            [("30", "30s"), ("30sec", "30s"), ("5min", "5m"), ("2hours", "2h"), ("foreverr", "forever")]
        {
            let error = typo.parse::<Span>().unwrap_err();
            assert!(error.contains(&format!("'{meant}'")), "{typo}: {error}");
        }
        assert!("-5s".parse::<Span>().is_err());
        assert!("".parse::<Span>().is_err());
    }

    #[test]
    fn a_bad_size_names_the_nearest_one() {
        assert_eq!("1MiB".parse(), Ok(Size(1 << 20)));
        assert_eq!("512".parse(), Ok(Size(512)));
        assert!("1MB".parse::<Size>().unwrap_err().contains("'1MiB'"));
        assert!("99999999999999GiB".parse::<Size>().is_err());
    }

    #[test]
    fn a_bad_upstream_names_the_nearest_one() {
        for (typo, meant) in [
            ("127.0.0.1:9000", "http://127.0.0.1:9000"),
            ("localhost:9000", "http://localhost:9000"),
            ("htp://127.0.0.1:9000", "http://127.0.0.1:9000"),
            ("http:/127.0.0.1:9000", "http://127.0.0.1:9000"),
            ("http:127.0.0.1:9000", "http://127.0.0.1:9000"),
            ("htps://shop.example", "https://shop.example"),
            ("https:shop.example", "https://shop.example"),
        ] {
            let error = typo.parse::<Upstream>().unwrap_err();
            assert!(error.contains(&format!("'{meant}'")), "{typo}: {error}");
        }
        assert!("http://127.0.0.1:9000/base".parse::<Upstream>().unwrap_err().contains("without a path"));
        for (text, written) in [
            ("http://[::1]:9000", "http://[::1]:9000"),
            ("http://shop.example", "http://shop.example:80"),
            ("https://shop.example", "https://shop.example:443"),
            ("https://[::1]", "https://[::1]:443"),
        ] {
            assert_eq!(text.parse::<Upstream>().unwrap().to_string(), written);
        }
    }

    #[test]
    fn a_bad_http_version_names_the_nearest_one() {
        for version in [HttpVersion::Auto, HttpVersion::One, HttpVersion::Two] {
            assert_eq!(version.to_string().parse(), Ok(version));
        }
        for (typo, meant) in [("h2", "2"), ("http/2", "2"), ("1.1", "1"), ("atuo", "auto")] {
            assert!(typo.parse::<HttpVersion>().unwrap_err().ends_with(&format!("'{meant}'?")), "{typo}");
        }
        assert!("3".parse::<HttpVersion>().is_err());
    }

    #[test]
    fn a_port_alone_is_no_address() {
        assert!(":8080".parse::<Address>().unwrap_err().contains("'127.0.0.1:8080'"));
        assert!("8080".parse::<Address>().unwrap_err().contains("'127.0.0.1:8080'"));
    }
}
