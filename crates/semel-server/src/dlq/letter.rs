//! A dead letter, for people and for programs.

use std::io::{self, Write};
use std::time::Duration;

use semel::Entry;
use semel_messaging::{Fate, Grave, Message, RedriveError};
use serde_json::{Value, json};

use crate::Failure;
use crate::config::escaped;
use crate::terminal::unwritten;
use crate::values::Span;

use std::sync::Arc;

/// So much of what was said stands in a list.
const SAID_CHARS: usize = 60;

/// What it can be called: its message id, and its key.
pub fn names(letter: &Message) -> impl Iterator<Item = &str> {
    letter.id.as_deref().into_iter().chain(letter.headers.text(Grave::KEY))
}

/// What it is called.
pub fn name(letter: &Message) -> String {
    escaped(names(letter).next().unwrap_or("(no id)"))
}

/// How long ago, for people.
pub fn ago(age: Duration) -> String {
    Span(Duration::from_secs(age.as_secs())).to_string()
}

/// A line on standard output.
pub fn say(text: &str) -> Result<(), Failure> {
    writeln!(io::stdout(), "{text}").map_err(unwritten)
}

/// A line of JSON.
pub fn line(value: &Value) -> Result<(), Failure> {
    say(&value.to_string())
}

/// For programs; without the body, which may be large or secret.
pub fn json(letter: &Message) -> Value {
    let text = |name| letter.headers.text(name);
    let attempts = text(Grave::ATTEMPTS).and_then(|attempts| attempts.parse::<u32>().ok());
    let history: Vec<&str> = text(Grave::HISTORY).unwrap_or_default().lines().collect();
    json!({
        "id": letter.id,
        "key": text(Grave::KEY),
        "scope": text(Grave::SCOPE),
        "reason": text(Grave::REASON),
        "said": text(Grave::SAID),
        "attempts": attempts,
        "history": history,
        "consumer": text(Grave::CONSUMER),
        "origin": text(Grave::ORIGIN),
        "subject": letter.subject,
        "content_type": letter.content_type,
        "body_bytes": letter.body.len(),
    })
}

/// What became of it.
pub fn moved(letter: &Message, fate: &Result<Fate, RedriveError>, gone: &str) -> Value {
    let (word, why) = match fate {
        Ok(Fate::Gone) => (gone.to_owned(), None),
        Ok(Fate::WouldGo) => (format!("would-be-{gone}"), None),
        Ok(Fate::Done { .. }) => ("done".to_owned(), Some("it has taken effect".to_owned())),
        Ok(Fate::Stays(why)) => ("stays".to_owned(), Some((*why).to_owned())),
        Ok(_) => ("stays".to_owned(), None),
        Err(error) => ("failed".to_owned(), Some(error.to_string())),
    };
    let mut json = json(letter);
    json["fate"] = json!(word);
    json["why"] = json!(why);
    json
}

/// A row each.
pub fn table(letters: &[Arc<Message>], all: usize) -> Result<(), Failure> {
    let head = ["ID", "REASON", "ATTEMPTS", "BYTES", "SAID"].map(str::to_owned);
    let rows: Vec<_> = std::iter::once(head).chain(letters.iter().map(|letter| row(letter))).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths = [0, 1, 2, 3].map(width);
    for [id, reason, attempts, bytes, said] in &rows {
        let [w0, w1, w2, w3] = widths;
        let line = format!("{id:<w0$}  {reason:<w1$}  {attempts:>w2$}  {bytes:>w3$}  {said}");
        say(line.trim_end())?;
    }
    if letters.len() < all {
        say(&format!("… {} of {all}; --limit shows more", letters.len()))?;
    }
    Ok(())
}

fn row(letter: &Message) -> [String; 5] {
    let text = |name| escaped(letter.headers.text(name).unwrap_or_default());
    let said =
        letter.headers.text(Grave::SAID).or_else(|| letter.headers.text(Grave::HISTORY)?.lines().last());
    let said = escaped(said.unwrap_or_default());
    let short = match said.char_indices().nth(SAID_CHARS) {
        Some((at, _)) => format!("{}…", &said[..at]),
        None => said,
    };
    [name(letter), text(Grave::REASON), text(Grave::ATTEMPTS), letter.body.len().to_string(), short]
}

/// All that is written on it, and what the store knows of its key, or why that is not known.
pub fn show(
    letter: &Message,
    record: &Result<Option<Entry>, String>,
    body: bool,
    as_json: bool,
) -> Result<(), Failure> {
    let text = std::str::from_utf8(&letter.body).ok();
    if as_json {
        let mut json = json(letter);
        json["record"] = match record {
            Ok(entry) => json!(entry.as_ref().map(|entry| entry.view.name())),
            Err(_) => Value::Null,
        };
        let own = letter.headers.iter().filter(|(name, _)| !Grave::HEADERS.contains(name));
        json["headers"] = own.map(|(name, value)| json!([name, String::from_utf8_lossy(value)])).collect();
        if body {
            json["body"] = json!(text);
            json["body_hex"] = json!(text.is_none().then(|| hex(&letter.body)));
        }
        return line(&json);
    }
    say(&name(letter))?;
    for (title, value) in fields(letter, record) {
        say(&format!("  {title:<9} {value}"))?;
    }
    for attempt in letter.headers.text(Grave::HISTORY).unwrap_or_default().lines() {
        say(&format!("  attempt   {}", escaped(attempt)))?;
    }
    for (header, value) in letter.headers.iter().filter(|(name, _)| !Grave::HEADERS.contains(name)) {
        say(&format!("  header    {}: {}", escaped(header), escaped(&String::from_utf8_lossy(value))))?;
    }
    if body {
        say(&text.map_or_else(|| hex(&letter.body), shown))?;
    }
    Ok(())
}

fn fields(letter: &Message, record: &Result<Option<Entry>, String>) -> Vec<(&'static str, String)> {
    let text = |name| letter.headers.text(name).map(escaped);
    let kind = letter.content_type.as_deref().map(|kind| format!(", {}", escaped(kind))).unwrap_or_default();
    let record = match record {
        Ok(Some(entry)) => format!("{}{}", entry.view.name(), advice(entry)),
        Ok(None) => "none".to_owned(),
        Err(said) => format!("not known: {said}"),
    };
    let fields = [
        ("reason", text(Grave::REASON)),
        ("said", text(Grave::SAID)),
        ("attempts", text(Grave::ATTEMPTS)),
        ("key", text(Grave::KEY)),
        ("scope", text(Grave::SCOPE)),
        ("record", Some(record)),
        ("consumer", text(Grave::CONSUMER)),
        ("origin", text(Grave::ORIGIN)),
        ("subject", Some(escaped(&letter.subject))),
        ("body", Some(format!("{} bytes{kind}", letter.body.len()))),
    ];
    fields.into_iter().filter_map(|(title, value)| Some((title, value?))).collect()
}

fn advice(entry: &Entry) -> &'static str {
    match entry.view {
        semel::View::Completed { .. } | semel::View::Forgotten => {
            ": it has taken effect; a redrive leaves it"
        }
        semel::View::Unknown { .. } => ": it may have taken effect; see `semel show` and `semel resolve`",
        semel::View::Running { .. } => ": an attempt runs",
        semel::View::Released { .. } | semel::View::Dead { .. } => ": a redrive sends it again",
    }
}

/// Lines stay lines; whatever else a terminal would obey is shown.
fn shown(text: &str) -> String {
    text.lines().map(|line| escaped(&line.replace('\t', "    "))).collect::<Vec<_>>().join("\n")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
