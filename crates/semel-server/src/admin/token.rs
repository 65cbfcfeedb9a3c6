//! The token of the admin address.
//!
//! It comes from a file, never from an argument or a variable, which other users of the machine could read; and it is
//! compared in a time that does not depend on how much of it was guessed. Nothing prints it.

use std::fmt;
use std::path::Path;

use http::HeaderMap;
use http::header::AUTHORIZATION;
use semel::{Algorithm, Fingerprint};

/// A shorter one could be guessed.
const BYTES_MIN: usize = 16;

/// What `Authorization: Bearer …` is compared with: its digest.
#[derive(Clone)]
pub struct Token([u8; 32]);

impl Token {
    /// Reads the file. A line's end behind the token is no part of it.
    ///
    /// # Errors
    ///
    /// One line that says what is wrong with it, and nothing of what it holds.
    pub fn read(path: &Path) -> Result<Token, String> {
        let named = |error: String| format!("--admin-token-file {}: {error}", path.display());
        let text = std::fs::read(path).map_err(|error| named(error.to_string()))?;
        let token = text.trim_ascii_end();
        if token.len() < BYTES_MIN {
            return Err(named(format!("the token has {} bytes; it needs {BYTES_MIN} or more", token.len())));
        }
        if !token.iter().all(u8::is_ascii_graphic) {
            return Err(named("a token is one line of visible ASCII without spaces".to_owned()));
        }
        Ok(Token(digest(token)))
    }

    /// Whether the request has it. Of two `Authorization` lines neither counts.
    pub fn is_in(&self, headers: &HeaderMap) -> bool {
        let mut lines = headers.get_all(AUTHORIZATION).iter();
        let (Some(line), None) = (lines.next(), lines.next()) else { return false };
        let Some((scheme, token)) = line.as_bytes().split_at_checked(b"Bearer ".len()) else { return false };
        scheme.eq_ignore_ascii_case(b"Bearer ") && same(&self.0, &digest(token.trim_ascii_start()))
    }
}

/// Digests are compared, so that a length says nothing either.
fn digest(token: &[u8]) -> [u8; 32] {
    Fingerprint::builder(Algorithm::EXACT).part(token).finish().digest
}

/// Looks at every byte, whatever the first ones are.
fn same(one: &[u8; 32], other: &[u8; 32]) -> bool {
    let different = one.iter().zip(other).fold(0, |different, (one, other)| different | (one ^ other));
    std::hint::black_box(different) == 0
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(***)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn of(text: &str) -> Result<Token, String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        Token::read(file.path())
    }

    fn headers(lines: &[&'static str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(AUTHORIZATION, HeaderValue::from_static(line));
        }
        headers
    }

    #[test]
    fn only_the_whole_token_is_the_token() {
        let token = of("0123456789abcdef\n").unwrap();
        for lines in
            [&["Bearer 0123456789abcdef"][..], &["bearer 0123456789abcdef"], &["Bearer  0123456789abcdef"]]
        {
            assert!(token.is_in(&headers(lines)), "{lines:?}");
        }
        for lines in [
            &[][..],
            &["Bearer"],
            &["Bearer "],
            &["Bearer 0123456789abcde"],
            &["Bearer 0123456789abcdef0"],
            &["Bearer 0123456789ABCDEF"],
            &["Basic 0123456789abcdef"],
            &["0123456789abcdef"],
            &["Bearer 0123456789abcdef", "Bearer 0123456789abcdef"],
        ] {
            assert!(!token.is_in(&headers(lines)), "{lines:?}");
        }
    }

    #[test]
    fn a_token_that_is_none_is_refused_and_not_shown() {
        for (text, wants) in [
            ("", "0 bytes"),
            ("\n", "0 bytes"),
            ("0123456789abcde\n", "15 bytes"),
            ("0123456789 abcdef", "one line"),
            ("0123456789abcdef\n0123456789abcdef", "one line"),
        ] {
            let error = of(text).unwrap_err();
            assert!(error.contains(wants) && error.starts_with("--admin-token-file"), "{text:?}: {error}");
            assert!(text.trim().is_empty() || !error.contains("0123456789"), "{error}");
        }
        assert_eq!(format!("{:?}", of("0123456789abcdef").unwrap()), "Token(***)");
        assert!(Token::read(Path::new("/nowhere/token")).unwrap_err().contains("/nowhere/token"));
    }
}
