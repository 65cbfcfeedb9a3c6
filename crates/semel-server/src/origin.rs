//! A web origin as a setting (H16).

use std::fmt;
use std::str::FromStr;

use serde::de::{self, Deserialize, Deserializer};
use url::Url;

/// Whose pages may call: `https://shop.example`, or `*` for every page there is.
///
/// Written as browsers send it (RFC 6454 §6.2), since it is compared byte by byte: small letters, no path, no port
/// where it is the scheme's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin(pub String);

impl Origin {
    pub const ANY: &str = "*";
}

impl FromStr for Origin {
    type Err = String;

    fn from_str(text: &str) -> Result<Origin, String> {
        const FORM: &str = "an origin is written https://shop.example, or '*' for every one";
        if text == Origin::ANY {
            return Ok(Origin(text.to_owned()));
        }
        if text == "null" {
            return Err(format!("{FORM}; 'null' is not one page but every sandboxed one"));
        }
        let as_sent = Url::parse(text).ok().and_then(|url| as_sent(&url));
        match as_sent {
            Some(as_sent) if as_sent == text => Ok(Origin(as_sent)),
            Some(as_sent) => Err(format!("{FORM}; did you mean '{as_sent}'?")),
            // `shop.example` has no scheme; in `shop.example:8080` it would be the host that is one.
            None => {
                match Url::parse(&format!("https://{text}")).ok().and_then(|url| as_sent_by_https(&url)) {
                    Some(as_sent) if !text.contains('/') => Err(format!("{FORM}; did you mean '{as_sent}'?")),
                    _ => Err(FORM.to_owned()),
                }
            }
        }
    }
}

/// Apps and extensions have schemes of their own: `capacitor://localhost`.
fn as_sent(url: &Url) -> Option<String> {
    let host = url.host_str().filter(|host| !host.is_empty() && !host.contains('*'))?;
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    Some(format!("{}://{host}{port}", url.scheme()))
}

fn as_sent_by_https(url: &Url) -> Option<String> {
    as_sent(url).filter(|_| url.username().is_empty())
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Origin {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Origin, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_written_as_browsers_send_it() {
        for text in [
            "*",
            "https://shop.example",
            "http://localhost:3000",
            "http://127.0.0.1:8080",
            "http://[::1]:8080",
            "https://xn--bcher-kva.example",
            "capacitor://localhost",
            "chrome-extension://abcdefghijklmnop",
        ] {
            assert_eq!(text.parse::<Origin>().map(|origin| origin.to_string()), Ok(text.to_owned()));
        }
    }

    #[test]
    fn another_spelling_names_the_nearest_one() {
        for (typo, meant) in [
            ("https://shop.example/", "https://shop.example"),
            ("https://shop.example/cart?x=1", "https://shop.example"),
            ("https://Shop.Example", "https://shop.example"),
            ("HTTPS://shop.example", "https://shop.example"),
            ("https://shop.example:443", "https://shop.example"),
            ("http://shop.example:80", "http://shop.example"),
            ("https://user@shop.example", "https://shop.example"),
            ("https:shop.example", "https://shop.example"),
            ("https://bücher.example", "https://xn--bcher-kva.example"),
            ("shop.example", "https://shop.example"),
            ("shop.example:8080", "https://shop.example:8080"),
            ("localhost:3000", "https://localhost:3000"),
        ] {
            let error = typo.parse::<Origin>().unwrap_err();
            assert!(error.ends_with(&format!("did you mean '{meant}'?")), "{typo}: {error}");
        }
    }

    #[test]
    fn what_names_no_single_origin_is_refused() {
        for text in ["", "null", "https://", "https://*.shop.example", "https://*", "file:///tmp", "a b"] {
            assert!(text.parse::<Origin>().is_err(), "{text}");
        }
    }
}
