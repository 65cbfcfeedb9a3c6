//! Records, as a person or a program reads them.

use std::io::{self, Write, stdout};
use std::time::Duration;

use bytes::Bytes;
use semel::{Entry, View};
use semel_http::Kept;
use serde_json::{Value, json};

use super::cause;
use super::select::Counts;

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

    /// How many there are, in place of the rows.
    pub fn counts(&self, counts: &Counts) -> io::Result<()> {
        let mut out = stdout().lock();
        if self.json {
            let group = |((state, cause), count): (&(String, String), &u64)| json!({ "state": state, "cause": Some(cause).filter(|cause| !cause.is_empty()), "count": count });
            let by: Vec<_> = counts.by.iter().map(group).collect();
            return writeln!(out, "{}", json!({ "total": counts.total, "by": by }));
        }
        writeln!(out, "{:<10} {:<20} {:>10}", "STATE", "CAUSE", "KEYS")?;
        for ((state, cause), count) in &counts.by {
            writeln!(out, "{state:<10} {cause:<20} {count:>10}")?;
        }
        writeln!(out, "{:<10} {:<20} {:>10}", "all", "", counts.total)
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

/// What a program reads of a record.
pub fn as_json(entry: &Entry) -> Value {
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
        "instance": entry.attempt.instance().to_string(),
        "status": kept.as_ref().map(|kept| kept.status.as_u16()),
        "body_bytes": kept.as_ref().and_then(|kept| kept.body.as_ref().map(Bytes::len)),
    })
}

/// What a log's line has in place of the key. It is made of the key in clear, which the store may not have.
pub fn digest(entry: &Entry) -> Option<String> {
    (!entry.key.as_str().starts_with("hmac-")).then(|| entry.key.digest())
}

pub fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The two largest units are enough for a person.
pub fn age(duration: Duration) -> String {
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
