//! Which dead letters are meant: `reason=rejected`, `said=*account*`, `json:/account=a-7`.

use std::str::FromStr;

use semel_messaging::{Field, Grave, Message};

use crate::bridge::FieldWord;
use crate::values::nearest;

/// A field and what it must look like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Matching {
    what: What,
    pattern: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum What {
    /// What is written on the grave.
    Header(&'static str),
    Field(Field),
}

const NAMES: [(&str, &str); 7] = [
    ("reason", Grave::REASON),
    ("said", Grave::SAID),
    ("consumer", Grave::CONSUMER),
    ("origin", Grave::ORIGIN),
    ("key", Grave::KEY),
    ("attempts", Grave::ATTEMPTS),
    ("history", Grave::HISTORY),
];

impl FromStr for Matching {
    type Err = String;

    fn from_str(text: &str) -> Result<Matching, String> {
        const FORM: &str = "it is written FIELD=PATTERN, such as reason=rejected";
        let (name, pattern) = text.split_once('=').ok_or(FORM)?;
        Ok(Matching { what: what(name)?, pattern: pattern.to_owned() })
    }
}

fn what(name: &str) -> Result<What, String> {
    if let Some((_, header)) = NAMES.iter().find(|(known, _)| *known == name) {
        return Ok(What::Header(header));
    }
    let name = if name == "id" { "message-id" } else { name };
    name.parse::<FieldWord>().map(|word| What::Field(word.0)).map_err(|error| {
        let names = NAMES.iter().map(|(name, _)| *name).chain(["id"]);
        match nearest(name, names) {
            Some(near) if !name.contains(':') => format!("unknown field '{name}'; did you mean '{near}'?"),
            _ => error,
        }
    })
}

impl Matching {
    /// Whether a dead letter has it. What has no such field does not fit.
    pub fn fits(&self, letter: &Message) -> bool {
        let value = match &self.what {
            What::Header(name) => letter.headers.text(name).map(str::to_owned),
            What::Field(field) => field.of(letter),
        };
        value.is_some_and(|value| fits(&self.pattern, &value))
    }
}

/// `*` stands for any text, also for none.
fn fits(pattern: &str, text: &str) -> bool {
    let mut pieces = pattern.split('*');
    let first = pieces.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let mut pieces: Vec<&str> = pieces.collect();
    let Some(last) = pieces.pop() else { return rest.is_empty() };
    for piece in pieces {
        let Some((_, behind)) = rest.split_once(piece) else { return false };
        rest = behind;
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_anything() {
        for (pattern, text, is) in [
            ("rejected", "rejected", true),
            ("rejected", "rejected!", false),
            ("re*", "rejected", true),
            ("*ted", "rejected", true),
            ("*ject*", "rejected", true),
            ("r*j*d", "rejected", true),
            ("a*a", "a", false),
            ("*", "", true),
            ("*ab*ab", "ab", false),
            ("", "", true),
        ] {
            assert_eq!(fits(pattern, text), is, "{pattern} {text}");
        }
    }

    #[test]
    fn a_letter_fits_by_what_is_written_on_it_or_in_it() {
        let letter = Message::new("orders", r#"{"account":"a-7"}"#)
            .with_id("order-7")
            .with_header(Grave::REASON, "rejected")
            .with_header("tenant", "blue");
        let fits = |text: &str| text.parse::<Matching>().unwrap().fits(&letter);
        for text in
            ["reason=rejected", "id=order-*", "header:tenant=blue", "json:/account=a-7", "subject=orders"]
        {
            assert!(fits(text), "{text}");
        }
        for text in ["reason=key-reused", "said=*", "json:/other=*"] {
            assert!(!fits(text), "{text}");
        }
    }

    #[test]
    fn a_bad_field_names_the_nearest_one() {
        assert!("reson=rejected".parse::<Matching>().unwrap_err().contains("'reason'"));
        assert!("rejected".parse::<Matching>().unwrap_err().contains("FIELD=PATTERN"));
        assert!("headr:a=b".parse::<Matching>().unwrap_err().contains("'header:a'"));
    }
}
