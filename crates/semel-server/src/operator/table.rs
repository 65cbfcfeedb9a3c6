//! Records, as a person or a program reads them.

use std::io::{self, Write, stdout};
use std::time::Duration;

use bytes::Bytes;
use semel::{Entry, Outcome, View};
use semel_http::Kept;
use serde_json::{Value, json};

use super::cause;

/// The rows of `semel keys`.
pub struct Keys {
    json: bool,
    rows: u32,
}

impl Keys {
    pub fn new(json: bool) -> Keys {
        Keys { json, rows: 0 }
    }

    pub fn row(&mut self, entry: &Entry) -> io::Result<()> {
        let mut out = stdout().lock();
        if self.json {
            return writeln!(out, "{}", as_json(entry));
        }
        if self.rows == 0 {
            writeln!(
                out,
                "{:<10} {:<11} {:>8} {:>8}  {:<22} {:<40} SCOPE",
                "STATE", "CAUSE", "SINCE", "ATTEMPTS", "WHAT", "KEY"
            )?;
        }
        self.rows += 1;
        let (state, label, key) = (entry.view.name(), entry.label.as_str(), entry.key.as_str());
        let since = age(entry.since);
        let cause = cause(entry).map_or("", |cause| cause.as_str());
        let (attempts, scope) = (entry.attempts, &entry.scope);
        writeln!(out, "{state:<10} {cause:<11} {since:>8} {attempts:>8}  {label:<22} {key:<40} {scope}")
    }

    /// The end, or only the end of what was asked for. Where there is nothing, the store is named: it may be the wrong one.
    pub fn end(self, limited: bool, store: &str) -> io::Result<()> {
        match (self.json, self.rows) {
            (true, _) => Ok(()),
            (false, 0) => writeln!(stdout(), "no such keys in {store}"),
            (false, _) if limited => writeln!(stdout(), "perhaps more: --limit says how many are listed"),
            (false, _) => Ok(()),
        }
    }
}

/// One record whole.
pub fn show(entry: &Entry, as_json_text: bool) -> io::Result<()> {
    let mut out = stdout().lock();
    if as_json_text {
        return writeln!(out, "{:#}", as_json(entry));
    }
    let mut line = |name: &str, value: &dyn std::fmt::Display| writeln!(out, "{name:<12} {value}");
    line("key", &entry.key.as_str())?;
    if let Some(digest) = digest(entry) {
        line("in the log", &digest)?;
    }
    line("scope", &entry.scope)?;
    line("state", &entry.view.name())?;
    if let Some(cause) = cause(entry) {
        line("cause", cause)?;
    }
    if let View::Running { lease_left } = &entry.view {
        line("lease left", &age(*lease_left))?;
    }
    line("what", &entry.label.as_str())?;
    line("first seen", &format_args!("{} ago", age(entry.age)))?;
    line("since", &format_args!("{} ago", age(entry.since)))?;
    line("attempts", &entry.attempts)?;
    line("fence", &entry.fence.0)?;
    if let View::Completed { outcome } = &entry.view {
        response(outcome, &mut out)?;
    }
    Ok(())
}

fn response(outcome: &Outcome, out: &mut impl Write) -> io::Result<()> {
    let Ok(kept) = Kept::decode(outcome) else {
        return writeln!(out, "{:<12} {} bytes of format {}", "outcome", outcome.bytes.len(), outcome.format);
    };
    writeln!(out, "{:<12} {}", "status", kept.status.as_u16())?;
    for (name, value) in &kept.headers {
        writeln!(out, "{:<12} {name}: {}", "header", String::from_utf8_lossy(value.as_bytes()))?;
    }
    match &kept.body {
        Some(body) => writeln!(out, "{:<12} {} bytes", "body", body.len()),
        None => writeln!(out, "{:<12} not kept", "body"),
    }
}

fn as_json(entry: &Entry) -> Value {
    let kept = match &entry.view {
        View::Completed { outcome } => Kept::decode(outcome).ok(),
        _ => None,
    };
    json!({
        "key": entry.key.as_str(),
        "digest": digest(entry),
        "scope": entry.scope.as_str(),
        "state": entry.view.name(),
        "cause": cause(entry).map(|cause| cause.as_str()),
        "what": entry.label.as_str(),
        "age_ms": millis(entry.age),
        "since_ms": millis(entry.since),
        "attempts": entry.attempts,
        "fence": entry.fence.0,
        "status": kept.as_ref().map(|kept| kept.status.as_u16()),
        "body_bytes": kept.as_ref().and_then(|kept| kept.body.as_ref().map(Bytes::len)),
    })
}

/// What a log's line has in place of the key. It is made of the key in clear, which the store may not have.
fn digest(entry: &Entry) -> Option<String> {
    (!entry.key.as_str().starts_with("hmac-")).then(|| entry.key.digest())
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The two largest units are enough for a person.
fn age(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0 => format!("{}ms", duration.as_millis()),
        1..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{}h{:02}m", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{}d{:02}h", seconds / 86_400, seconds / 3_600 % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_is_short() {
        for (seconds, text) in [(5, "5s"), (65, "1m05s"), (3_700, "1h01m"), (90_000, "1d01h")] {
            assert_eq!(age(Duration::from_secs(seconds)), text);
        }
    }
}
