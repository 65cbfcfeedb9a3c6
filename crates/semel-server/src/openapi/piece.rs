//! What is put into a document: written as JSON, or as YAML's block style.

/// A value.
#[derive(Debug, Clone, PartialEq)]
pub enum Piece {
    Map(Vec<(String, Piece)>),
    List(Vec<Piece>),
    Text(String),
    /// As it is written: a number, `true`.
    Plain(&'static str),
    Number(u64),
}

/// A mapping of members in this order.
pub fn map<const N: usize>(members: [(&str, Piece); N]) -> Piece {
    Piece::Map(members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

/// A string.
pub fn text(text: impl Into<String>) -> Piece {
    Piece::Text(text.into())
}

/// Strings.
pub fn texts<'a>(texts: impl IntoIterator<Item = &'a str>) -> Piece {
    Piece::List(texts.into_iter().map(text).collect())
}

/// A reference to something in the same document.
pub fn reference(to: &str) -> Piece {
    map([("$ref", text(to))])
}

/// A string of JSON, which is one of YAML's too.
pub fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

impl Piece {
    /// JSON in one line, with that after each comma and colon.
    pub fn flat(&self, space: &str) -> String {
        let joined = |parts: Vec<String>| parts.join(&format!(",{space}"));
        match self {
            Piece::Map(members) => {
                let member = |(name, value): &(String, Piece)| {
                    format!("{}:{space}{}", quoted(name), value.flat(space))
                };
                format!("{{{}}}", joined(members.iter().map(member).collect()))
            }
            Piece::List(items) => {
                format!("[{}]", joined(items.iter().map(|item| item.flat(space)).collect()))
            }
            _ => self.scalar(quoted),
        }
    }

    /// JSON with a line for each member; `indent` is its own line's.
    pub fn tall(&self, indent: &str, unit: &str) -> String {
        let inner = format!("{indent}{unit}");
        let lines = |parts: Vec<String>, open: char, close: char| {
            let parts: Vec<_> = parts.into_iter().map(|part| format!("\n{inner}{part}")).collect();
            format!("{open}{}\n{indent}{close}", parts.join(","))
        };
        match self {
            Piece::Map(members) => {
                let member = |(name, value): &(String, Piece)| {
                    format!("{}: {}", quoted(name), value.tall(&inner, unit))
                };
                lines(members.iter().map(member).collect(), '{', '}')
            }
            Piece::List(items) => lines(items.iter().map(|item| item.tall(&inner, unit)).collect(), '[', ']'),
            _ => self.scalar(quoted),
        }
    }

    /// Lines of YAML: a member of a mapping that is indented so.
    pub fn block_member(&self, name: &str, indent: &str) -> String {
        let name = bare(name);
        match self {
            Piece::Map(members) => {
                let inner = format!("{indent}  ");
                let members = members.iter().map(|(name, value)| value.block_member(name, &inner));
                format!("{indent}{name}:\n{}", members.collect::<String>())
            }
            Piece::List(items) => {
                let inner = format!("{indent}  ");
                let items = items.iter().map(|item| item.block_item(&inner));
                format!("{indent}{name}:\n{}", items.collect::<String>())
            }
            _ => format!("{indent}{name}: {}\n", self.scalar(bare)),
        }
    }

    /// Lines of YAML: an item of a list whose dashes are indented so.
    pub fn block_item(&self, indent: &str) -> String {
        match self {
            Piece::Map(members) => {
                let inner = format!("{indent}  ");
                let members: String =
                    members.iter().map(|(name, value)| value.block_member(name, &inner)).collect();
                format!("{indent}- {}", members.trim_start())
            }
            Piece::List(_) => format!("{indent}- {}\n", self.flat(" ")),
            _ => format!("{indent}- {}\n", self.scalar(bare)),
        }
    }

    fn scalar(&self, string: fn(&str) -> String) -> String {
        match self {
            Piece::Text(text) => string(text),
            Piece::Plain(text) => (*text).to_owned(),
            Piece::Number(number) => number.to_string(),
            Piece::Map(_) | Piece::List(_) => String::new(),
        }
    }
}

/// A string of YAML, without quotes where no reader could take it for anything else: YAML 1.1 has many words for yes
/// and no, and reads `on:` as one of them.
fn bare(text: &str) -> String {
    const WORDS: [&str; 10] = ["true", "false", "yes", "no", "on", "off", "null", "y", "n", "nan"];
    let begins = text.starts_with(|char: char| char.is_ascii_alphabetic() || char == '$');
    let plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"$-_/.+".contains(&byte));
    if begins && plain && !WORDS.contains(&text.to_ascii_lowercase().as_str()) {
        text.to_owned()
    } else {
        quoted(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_is_json_and_yaml() {
        let piece = map([
            ("name", text("Idempotency-Key")),
            ("on", Piece::Plain("true")),
            ("409", map([("max", Piece::Number(255)), ("of", texts(["a b", "null"]))])),
            ("list", Piece::List(vec![map([("a", text("x: y")), ("b", text(""))]), texts(["z"])])),
        ]);
        let expected = serde_json::json!({
            "name": "Idempotency-Key",
            "on": true,
            "409": { "max": 255, "of": ["a b", "null"] },
            "list": [{ "a": "x: y", "b": "" }, ["z"]],
        });
        for json in [piece.flat(""), piece.flat(" "), piece.tall("", "\t")] {
            assert_eq!(serde_json::from_str::<serde_json::Value>(&json).unwrap(), expected, "{json}");
        }
        assert_eq!(
            piece.block_member("top", "  "),
            "  top:\n    name: Idempotency-Key\n    \"on\": true\n    \"409\":\n      max: 255\n      of:\n        \
             - \"a b\"\n        - \"null\"\n    list:\n      - a: \"x: y\"\n        b: \"\"\n      - [\"z\"]\n"
        );
    }
}
