//! What is written on a dead letter: why, after how many attempts, and what they said.
//!
//! 1. A dead letter is the message itself, with the headers of [`Grave::headers`] added: whoever reads the dead letters
//!    with the broker's own tools sees why, and `redrive` finds the way back.
//! 2. The reason is a stable word ([`reason`]): alarms go by it. What a handler said is beside it, cut to
//!    [`Grave::SAID_BYTES_MAX`], and never holds the body.
//! 3. Everything has a bound: the latest [`Grave::HISTORY_MAX`] attempts, whatever their number.

use semel::Cause;

/// Why a message was given up, as stable words.
pub mod reason {
    use semel::Cause;

    /// The same id came with another payload (M4).
    pub const KEY_REUSED: &str = "key-reused";
    /// It has no id, and the consumer makes none up (M2).
    pub const KEY_MISSING: &str = "key-missing";
    /// Its id is none: too long, or with control characters. It is never cut (C89).
    pub const KEY_MALFORMED: &str = "key-malformed";
    /// The handler said that it will never succeed.
    pub const REJECTED: &str = "rejected";
    /// It may have taken effect, and the policy is to wait for a person.
    pub const OUTCOME_UNKNOWN: &str = "outcome-unknown";
    /// Larger than the consumer takes.
    pub const BODY_TOO_LARGE: &str = "body-too-large";
    /// Tried as often as is allowed. The engine's word.
    #[must_use]
    pub fn attempts_exhausted() -> Cause {
        Cause::ATTEMPTS_EXHAUSTED
    }
}

/// What is written on a dead letter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grave {
    /// Why: a stable word.
    pub reason: Cause,
    /// What there is to say about it, for people.
    pub said: String,
    /// Which consumer gave it up.
    pub consumer: String,
    /// Where it came from, and goes back to when it is redriven.
    pub origin: String,
    /// The key that it was claimed under, if it got that far.
    pub key: Option<String>,
    /// The scope of that key.
    pub scope: Option<String>,
    /// Attempts so far, as far as this consumer knows.
    pub attempts: u32,
    /// What they said, the latest last.
    pub history: Vec<String>,
}

impl Grave {
    /// The longest word of a handler that is kept.
    pub const SAID_BYTES_MAX: usize = 500;
    /// So many attempts are written down.
    pub const HISTORY_MAX: usize = 10;
    /// The header with the reason.
    pub const REASON: &'static str = "semel-reason";
    /// The header with what there is to say.
    pub const SAID: &'static str = "semel-said";
    /// The header with the consumer's name.
    pub const CONSUMER: &'static str = "semel-consumer";
    /// The header with the place that it came from.
    pub const ORIGIN: &'static str = "semel-origin";
    /// The header with the key.
    pub const KEY: &'static str = "semel-key";
    /// The header with the key's scope.
    pub const SCOPE: &'static str = "semel-scope";
    /// The header with the number of attempts.
    pub const ATTEMPTS: &'static str = "semel-attempts";
    /// The header with what the attempts said, one a line.
    pub const HISTORY: &'static str = "semel-history";
    /// The header with the subject of a message that goes by a queue's name. It is no part of a grave: whoever receives
    /// the message reads its subject there.
    pub const SUBJECT: &'static str = "semel-subject";
    /// All of them: what a redrive takes off again.
    pub const HEADERS: [&'static str; 8] = [
        Grave::REASON,
        Grave::SAID,
        Grave::CONSUMER,
        Grave::ORIGIN,
        Grave::KEY,
        Grave::SCOPE,
        Grave::ATTEMPTS,
        Grave::HISTORY,
    ];

    /// The headers of the dead letter; what there is not has none.
    pub fn headers(&self) -> impl Iterator<Item = (&'static str, String)> {
        let some = |text: &str| (!text.is_empty()).then(|| one_line(text));
        let latest = &self.history[self.history.len().saturating_sub(Grave::HISTORY_MAX)..];
        let history: Vec<String> = latest.iter().map(|said| one_line(said)).collect();
        [
            (Grave::REASON, Some(self.reason.as_str().to_owned())),
            (Grave::SAID, some(&self.said)),
            (Grave::CONSUMER, some(&self.consumer)),
            (Grave::ORIGIN, Some(self.origin.clone())),
            (Grave::KEY, self.key.clone()),
            (Grave::SCOPE, self.scope.clone()),
            (Grave::ATTEMPTS, Some(self.attempts.to_string())),
            (Grave::HISTORY, (!history.is_empty()).then(|| history.join("\n"))),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)))
    }
}

/// At most [`Grave::SAID_BYTES_MAX`], cut at a character's border, without control characters.
fn one_line(text: &str) -> String {
    let cut = &text[..text.floor_char_boundary(Grave::SAID_BYTES_MAX)];
    cut.chars().map(|one| if one.is_control() { ' ' } else { one }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grave(said: &str, history: usize) -> Grave {
        Grave {
            reason: Cause::new(reason::REJECTED),
            said: said.into(),
            consumer: "billing".into(),
            origin: "orders".into(),
            key: None,
            scope: None,
            attempts: 3,
            history: (0..history).map(|n| format!("attempt {n}\nfailed")).collect(),
        }
    }

    fn header(grave: &Grave, name: &str) -> Option<String> {
        grave.headers().find(|(own, _)| *own == name).map(|(_, value)| value)
    }

    #[test]
    fn m5_a_grave_says_why_how_often_and_what_the_attempts_said() {
        let grave = grave("no such account", 2);
        assert_eq!(header(&grave, Grave::REASON).as_deref(), Some("rejected"));
        assert_eq!(header(&grave, Grave::ATTEMPTS).as_deref(), Some("3"));
        assert_eq!(header(&grave, Grave::HISTORY).as_deref(), Some("attempt 0 failed\nattempt 1 failed"));
        assert_eq!(header(&grave, Grave::KEY), None);
        assert!(grave.headers().all(|(name, _)| Grave::HEADERS.contains(&name)));
    }

    #[test]
    fn k11_a_grave_has_bounds() {
        let grave = grave(&"ä".repeat(10_000), 1_000);
        assert!(header(&grave, Grave::SAID).unwrap().len() <= Grave::SAID_BYTES_MAX);
        let history = header(&grave, Grave::HISTORY).unwrap();
        assert_eq!(history.lines().count(), Grave::HISTORY_MAX);
        assert!(history.ends_with("attempt 999 failed"));
    }
}
