//! What `Content-Type` says: RFC 9110, sections 5.6.6 and 8.3.

/// The most parameters that are read.
const PARAMETERS_MAX: usize = 16;

/// A media type, with what has no case in lower case.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct MediaType {
    /// `type/subtype`.
    pub(super) essence: String,
    /// The parameters in their order; values without quotes and escapes.
    pub(super) parameters: Vec<(String, Vec<u8>)>,
}

impl MediaType {
    /// `None` when it is malformed, has more than [`PARAMETERS_MAX`], or has a parameter twice: readers differ in which
    /// one they take.
    pub(super) fn parse(value: &[u8]) -> Option<MediaType> {
        let (class, rest) = token(value.trim_ascii())?;
        let (subtype, mut rest) = token(rest.strip_prefix(b"/")?)?;
        let mut parameters: Vec<(String, Vec<u8>)> = Vec::new();
        loop {
            rest = rest.trim_ascii_start();
            if rest.is_empty() {
                return Some(MediaType { essence: [&class, "/", &subtype].concat(), parameters });
            }
            rest = rest.strip_prefix(b";")?.trim_ascii_start();
            if rest.is_empty() || rest.starts_with(b";") {
                continue;
            }
            let (name, after) = token(rest)?;
            let (value, after) = value_of(after.strip_prefix(b"=")?)?;
            if parameters.len() == PARAMETERS_MAX || parameters.iter().any(|(other, _)| *other == name) {
                return None;
            }
            parameters.push((name, value));
            rest = after;
        }
    }

    /// Takes a parameter out.
    pub(super) fn take(&mut self, name: &str) -> Option<Vec<u8>> {
        let at = self.parameters.iter().position(|(other, _)| other == name)?;
        Some(self.parameters.remove(at).1)
    }
}

/// Whether names in HTTP and MIME may hold the byte.
pub(super) fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// The token that the bytes begin with, in lower case, and what is left.
fn token(bytes: &[u8]) -> Option<(String, &[u8])> {
    let length = bytes.iter().take_while(|byte| is_token(**byte)).count();
    let text = std::str::from_utf8(&bytes[..length]).ok().filter(|text| !text.is_empty())?;
    Some((text.to_ascii_lowercase(), &bytes[length..]))
}

/// A token as it is written, or what a quoted string holds.
fn value_of(bytes: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let Some(mut rest) = bytes.strip_prefix(b"\"") else {
        let length = bytes.iter().take_while(|byte| is_token(**byte)).count();
        return (length > 0).then(|| (bytes[..length].to_vec(), &bytes[length..]));
    };
    let mut value = Vec::new();
    loop {
        let (byte, after) = rest.split_first()?;
        let (byte, after) = match byte {
            b'"' => return Some((value, after)),
            b'\\' => after.split_first()?,
            _ => (byte, after),
        };
        value.push(*byte);
        rest = after;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(value: &str) -> Option<(String, Vec<(String, String)>)> {
        let MediaType { essence, parameters } = MediaType::parse(value.as_bytes())?;
        let text = |(name, value)| (name, String::from_utf8(value).unwrap());
        Some((essence, parameters.into_iter().map(text).collect()))
    }

    #[test]
    fn case_space_and_quotes_do_not_count() {
        for same in ["a/b;c=d", "A/B ; C=d", "a/b;c=\"d\"", "a/b; ;c=\"\\d\";", " a/b;;c=d\t"] {
            assert_eq!(of(same), Some(("a/b".to_owned(), vec![("c".to_owned(), "d".to_owned())])), "{same}");
        }
        assert_eq!(of("a/b;c=\"x; y\\\"\"").unwrap().1[0].1, "x; y\"");
    }

    #[test]
    fn k11_parameters_are_bounded() {
        let many = |count| (0..count).fold("a/b".to_owned(), |text, at| format!("{text};p{at}=1"));
        assert_eq!(of(&many(PARAMETERS_MAX)).unwrap().1.len(), PARAMETERS_MAX);
        assert_eq!(of(&many(PARAMETERS_MAX + 1)), None);
    }

    #[test]
    fn what_is_malformed_or_ambiguous_is_none() {
        for broken in
            ["", "a", "a/", "/b", "a/b c", "a/b;c", "a/b;c=", "a/b;=d", "a/b;c=\"d", "a/b;c=d;C=e", "a/b,c/d"]
        {
            assert_eq!(of(broken), None, "{broken}");
        }
    }
}
