//! `semel show`: one record, in sentences that can be understood at three in the morning, and what to do next. For a
//! program, everything as JSON: fields are added to it, and none changes its meaning.

use std::io::{self, Write, stdout};

use semel::{Entry, Instance, Outcome, Past, Through, View, What};
use semel_http::Kept;
use serde_json::json;

use super::resolve::OPERATOR;
use super::table::{age, as_json, digest, millis};
use super::{cause, select};
use crate::cli::{Show, Where};

/// One record whole.
pub fn show(entry: &Entry, history: &[Past], args: &Show) -> io::Result<()> {
    let mut out = stdout().lock();
    if args.json {
        return writeln!(out, "{:#}", whole(entry, history));
    }
    story(entry).iter().try_for_each(|line| writeln!(out, "{line}"))?;
    writeln!(out)?;
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
    line("instance", &instance(entry))?;
    if let View::Completed { outcome } = &entry.view {
        response(outcome, &mut out)?;
    }
    if !history.is_empty() {
        writeln!(out, "\nWhat happened")?;
        history.iter().try_for_each(|past| writeln!(out, "  {}", event(past)))?;
    }
    writeln!(out, "\nWhat to do")?;
    next(entry, args).iter().try_for_each(|line| writeln!(out, "  {line}"))
}

/// What happened, and what it means for a retry.
fn story(entry: &Entry) -> Vec<String> {
    let (key, since) = (entry.key.as_str(), age(entry.since));
    let what = if entry.label.as_str().is_empty() { "The operation" } else { entry.label.as_str() };
    let why = || cause(entry).map(|cause| meaning(cause.as_str())).unwrap_or_default();
    match &entry.view {
        View::Running { lease_left } => vec![
            format!("{key} has been running for {since}."),
            format!(
                "{what} is under way. Its lease ends in {} unless it is renewed; retries",
                age(*lease_left)
            ),
            "get 409 in-flight until then.".into(),
        ],
        View::Released { not_before } => {
            let when = if not_before.is_zero() {
                "The next retry runs.".into()
            } else {
                format!("A retry runs, not before {} from now.", age(*not_before))
            };
            vec![
                format!("{key} has been free again for {since}."),
                format!("{what} was tried and took no effect. {when}"),
            ]
        }
        View::Unknown { .. } => vec![
            format!("{key} has been unknown for {since}: {}.", why()),
            format!("{what} may or may not have taken effect, and nobody can tell from here. It is not run"),
            "again; retries get 409 outcome-unknown until a probe or a person has found out.".into(),
        ],
        View::Completed { .. } => vec![
            format!("{key} was completed {since} ago."),
            format!("{what} has its answer. Retries get the same one, and nothing runs."),
        ],
        View::Forgotten => vec![
            format!("{key} was completed, and its answer was dropped {since} ago."),
            format!("{what} is done. Late retries get 410 key-expired, and nothing runs."),
        ],
        View::Dead { .. } => vec![
            format!("{key} was given up {since} ago: {}.", why()),
            format!("{what} is not tried any more; retries get 409 attempts-exhausted."),
        ],
    }
}

/// One line of the timeline.
fn event(Past { ago, event }: &Past) -> String {
    let what = match (event.what, event.through) {
        (What::Completed, Through::Late) => "completed, after its caller had been told that nobody knows",
        (What::Completed, Through::Probe) => "completed: a probe found its answer",
        (What::Completed, Through::Operator) => "completed by an operator",
        (What::Completed, _) => "completed",
        (What::Released, Through::Late) => "took no effect, as was found out late",
        (What::Released, Through::Probe) => "took no effect: a probe said so",
        (What::Released, Through::Operator) => "let run again by an operator",
        (What::Released, _) => "took no effect",
        (What::Parked, _) => "unknown",
        (What::Buried, Through::Operator) => "found exhausted by an operator, before it was let run again",
        (What::Buried, _) => "given up",
        (What::Lost, _) => "ended after another one had taken the key, and was refused",
        (What::Lapsed, _) => "took over: the lease of the one before had run out",
        (_, _) => event.what.as_str(),
    };
    let cause = event.cause.as_ref().map(|cause| format!(" ({cause})")).unwrap_or_default();
    let ran_for = event.ran_for.map(|ran| format!(", ran for {}", age(ran))).unwrap_or_default();
    let by = event.by.as_ref().map(|by| format!(", by {by}")).unwrap_or_default();
    let reason = event.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
    let (fence, instance) = (event.fence.0, event.attempt.instance());
    let instance = if event.through == Through::Operator { String::new() } else { format!(" on {instance}") };
    format!("{:>7} ago  fence {fence}{instance}: {what}{cause}{ran_for}{by}{reason}", age(*ago))
}

/// A cause in words.
fn meaning(cause: &str) -> String {
    match cause {
        "lapsed" => "its lease ran out, so the process that ran it died or slept (lapsed)".into(),
        "timeout" => "the service did not answer in the time that it has (timeout)".into(),
        "cut" => "the connection to the service broke after the request was sent (cut)".into(),
        "panic" => "the handler panicked while it ran (panic)".into(),
        "shutdown" => "the process was stopped while it ran (shutdown)".into(),
        "said" => "the service itself answered that it does not know (said)".into(),
        "attempts-exhausted" => {
            "it was tried as often as it may be, and never came to an end (attempts-exhausted)".into()
        }
        other => match other.strip_prefix("status-") {
            Some(status) => {
                format!("the answer was {status}, which does not say whether anything happened ({other})")
            }
            None => other.to_owned(),
        },
    }
}

/// Who claimed it last.
fn instance(entry: &Entry) -> String {
    let instance = entry.attempt.instance();
    if instance == Instance::named(OPERATOR) {
        return format!("{instance} (an operator: {OPERATOR})");
    }
    format!("{instance} (which gateway: `instance_tag` on its /readyz)")
}

fn next(entry: &Entry, args: &Show) -> Vec<String> {
    let command = |rest: &str| resolve(args, rest);
    let completed = command("--completed --status 201 --body-file answer.json");
    let rerun = command("--rerun");
    let both = || {
        [
            "If it took effect, with the answer that retries shall get:".to_owned(),
            format!("  {completed}"),
            "If it certainly did not, and nothing of it is still under way:".to_owned(),
            format!("  {rerun}"),
        ]
    };
    match &entry.view {
        View::Unknown { .. } => {
            let find = [
                "Find out in the service whether it was done. The service got the key as Idempotency-Key;"
                    .to_owned(),
                format!(
                    "its requests carried Semel-Fence, the last one {} at most. Then say so:",
                    entry.fence.0
                ),
            ];
            let leave = ["If you cannot tell, leave it: unknown is safe, and it does not expire.".to_owned()];
            find.into_iter().chain(both()).chain(leave).collect()
        }
        View::Dead { .. } => {
            let find = [
                "Find out why the service fails for it, and mend that first. Then, if somebody still wants it:"
                    .to_owned(),
            ];
            find.into_iter().chain(both()).collect()
        }
        View::Running { .. } => vec![
            "Nothing: it ends by itself, or becomes unknown when its lease is over.".into(),
            "Only if you know that it will never end (its own answer will then be refused):".into(),
            format!("  {}", command("--rerun --force")),
        ],
        View::Released { .. } | View::Completed { .. } | View::Forgotten => vec!["Nothing.".into()],
    }
}

/// The command that resolves this record, as it can be pasted into a shell.
fn resolve(args: &Show, rest: &str) -> String {
    let Where { store, config, key_secret_file } = &args.place;
    let path = |path: &std::path::PathBuf| path.display().to_string();
    let given = [
        ("--config", config.as_ref().map(path)),
        ("--store", store.clone()),
        ("--key-secret-file", key_secret_file.as_ref().map(path)),
        ("--scope", args.which.scope.clone()),
    ];
    let given = given.into_iter().filter_map(|(flag, value)| Some(format!(" {flag} {}", quoted(&value?))));
    let key = quoted(&args.which.key);
    let key = if key.starts_with('-') { format!("-- {key}") } else { key };
    format!("semel resolve{} {rest} {key}", given.collect::<String>())
}

/// As a shell takes it for one word.
fn quoted(word: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:@%+=,".contains(&byte);
    if !word.is_empty() && word.bytes().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
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

/// What a row has, and what only a person who looks at one record wants.
fn whole(entry: &Entry, history: &[Past]) -> serde_json::Value {
    let mut whole = as_json(entry);
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let target = select::parts(&entry.label);
    let headers = match &entry.view {
        View::Completed { outcome } => Kept::decode(outcome).ok().map(|kept| {
            let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
            let pairs = kept.headers.iter().map(|(name, value)| json!([name.as_str(), text(value)]));
            pairs.collect::<Vec<_>>()
        }),
        _ => None,
    };
    let not_before = match &entry.view {
        View::Released { not_before } => Some(millis(*not_before)),
        _ => None,
    };
    let lease_left = match &entry.view {
        View::Running { lease_left } => Some(millis(*lease_left)),
        _ => None,
    };
    let more = json!({
        "means": cause(entry).map(|cause| meaning(cause.as_str())),
        "method": target.map(|(method, _, _)| method),
        "host": target.map(|(_, host, _)| host).filter(|host| !host.is_empty()),
        "path": target.map(|(_, _, path)| path),
        "attempt": entry.attempt.to_string(),
        "lease_left_ms": lease_left,
        "not_before_ms": not_before,
        "fingerprint": entry.fingerprint.map(|fingerprint| hex(&fingerprint.digest)),
        "fingerprint_algorithm": entry.fingerprint.map(|fingerprint| fingerprint.algorithm.0),
        "headers": headers,
        "history": history.iter().map(event_as_json).collect::<Vec<_>>(),
    });
    if let (Some(whole), serde_json::Value::Object(more)) = (whole.as_object_mut(), more) {
        whole.extend(more);
    }
    whole
}

fn event_as_json(Past { ago, event }: &Past) -> serde_json::Value {
    json!({
        "ago_ms": millis(*ago),
        "fence": event.fence.0,
        "attempt": event.attempt.to_string(),
        "attempts": event.attempts,
        "instance": event.attempt.instance().to_string(),
        "what": event.what.as_str(),
        "through": event.through.as_str(),
        "cause": event.cause.as_ref().map(semel::Cause::as_str),
        "ran_ms": event.ran_for.map(millis),
        "by": event.by,
        "reason": event.reason,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_quoted_where_a_shell_would_read_it() {
        for (word, text) in [
            ("order-77", "order-77"),
            ("a b", "'a b'"),
            ("$(rm)", "'$(rm)'"),
            ("it's", r"'it'\''s'"),
            ("", "''"),
        ] {
            assert_eq!(quoted(word), text);
        }
    }

    #[test]
    fn each_cause_of_ours_has_words() {
        for cause in select::CAUSES.into_iter().chain(["status-502"]) {
            let words = meaning(cause);
            assert!(words.ends_with(&format!(" ({cause})")), "{words}");
        }
        assert_eq!(meaning("of-its-own"), "of-its-own");
    }
}
