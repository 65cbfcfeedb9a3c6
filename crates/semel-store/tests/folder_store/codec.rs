//! Between a record and the bytes of its file. Whatever cannot be read is an error, never a record that is not there.

use semel::record::{Record, State};
use semel::{Algorithm, AttemptId, Cause, Fence, Fingerprint, Key, Label, Outcome, Scope, Timestamp, Was};
use serde_json::{Value, json};

type Error = Box<dyn std::error::Error + Send + Sync>;

/// A file's name: the hexadecimal digits of a SHA-256, each part with its length before it.
pub(crate) fn name(scope: &Scope, key: &Key) -> String {
    let parts =
        Fingerprint::builder(Algorithm::EXACT).part(scope.as_str().as_bytes()).part(key.as_str().as_bytes());
    hex(&parts.finish().digest)
}

pub(crate) fn encode(scope: &Scope, key: &Key, record: &Record) -> Vec<u8> {
    let file = json!({
        "scope": scope.as_str(),
        "key": key.as_str(),
        "fence": record.fence.0,
        "attempt": hex(&record.attempt.0),
        "spent": record.spent.iter().map(|attempt| hex(&attempt.0)).collect::<Vec<_>>(),
        "attempts": record.attempts,
        "fingerprint": record.fingerprint.map(|bound| json!([bound.algorithm.0, hex(&bound.digest)])),
        "bound_by": record.bound_by.0,
        "doubt": record.doubt,
        "first_at": record.first_at.0,
        "since": record.since.0,
        "label": record.label.as_str(),
        "input": record.input.as_ref().map(|input| hex(input)),
        "state": state(&record.state),
    });
    file.to_string().into_bytes()
}

fn state(state: &State) -> Value {
    match state {
        State::Running { until, was, settles } => json!(["running", until.0, was_number(*was), settles]),
        State::Released { not_before, forget_at } => json!(["released", not_before.0, forget_at.0]),
        State::Completed { outcome, replay_until, forget_at } => {
            let outcome = outcome.as_ref().map(|outcome| json!([outcome.format, hex(&outcome.bytes)]));
            json!(["completed", replay_until.0, forget_at.0, outcome])
        }
        State::Unknown { cause } => json!(["unknown", cause.as_str()]),
        State::Dead { cause } => json!(["dead", cause.as_str()]),
    }
}

pub(crate) fn decode(bytes: &[u8]) -> Result<(Scope, Key, Record), Error> {
    let file: Value = serde_json::from_slice(bytes)?;
    let record = Record {
        fence: Fence(number(&file["fence"])?.try_into()?),
        attempt: attempt(&file["attempt"])?,
        spent: list(&file["spent"])?.iter().map(attempt).collect::<Result<_, _>>()?,
        attempts: number(&file["attempts"])?.try_into()?,
        fingerprint: optional(&file["fingerprint"]).map(fingerprint).transpose()?,
        bound_by: Fence(number(&file["bound_by"])?.try_into()?),
        doubt: file["doubt"].as_bool().ok_or("no truth value")?,
        first_at: instant(&file["first_at"])?,
        since: instant(&file["since"])?,
        label: Label::new(text(&file["label"])?),
        input: optional(&file["input"]).map(unhex).transpose()?.map(Into::into),
        state: read_state(&file["state"])?,
    };
    Ok((Scope::new(text(&file["scope"])?)?, Key::new(text(&file["key"])?)?, record))
}

fn read_state(value: &Value) -> Result<State, Error> {
    Ok(match text(&value[0])? {
        "running" => State::Running {
            until: instant(&value[1])?,
            was: *WAS.get(usize::try_from(number(&value[2])?)?).ok_or("no such state")?,
            settles: value[3].as_bool().ok_or("no truth value")?,
        },
        "released" => State::Released { not_before: instant(&value[1])?, forget_at: instant(&value[2])? },
        "completed" => State::Completed {
            replay_until: instant(&value[1])?,
            forget_at: instant(&value[2])?,
            outcome: optional(&value[3]).map(outcome).transpose()?,
        },
        "unknown" => State::Unknown { cause: Cause::new(text(&value[1])?) },
        "dead" => State::Dead { cause: Cause::new(text(&value[1])?) },
        other => return Err(format!("{other:?} is no state").into()),
    })
}

const WAS: [Was; 6] = [Was::New, Was::Released, Was::Lapsed, Was::Unknown, Was::Dead, Was::Running];

fn was_number(was: Was) -> Option<usize> {
    WAS.iter().position(|one| *one == was)
}

fn outcome(value: &Value) -> Result<Outcome, Error> {
    Ok(Outcome { format: number(&value[0])?.try_into()?, bytes: unhex(&value[1])?.into() })
}

fn fingerprint(value: &Value) -> Result<Fingerprint, Error> {
    let digest = unhex(&value[1])?.try_into().map_err(|_| "a digest has 32 bytes")?;
    Ok(Fingerprint { algorithm: Algorithm(number(&value[0])?.try_into()?), digest })
}

fn attempt(value: &Value) -> Result<AttemptId, Error> {
    Ok(AttemptId(unhex(value)?.try_into().map_err(|_| "an attempt's id has 16 bytes")?))
}

fn optional(value: &Value) -> Option<&Value> {
    (!value.is_null()).then_some(value)
}

fn instant(value: &Value) -> Result<Timestamp, Error> {
    number(value).map(Timestamp)
}

fn number(value: &Value) -> Result<i64, Error> {
    value.as_i64().ok_or_else(|| "no number".into())
}

fn text(value: &Value) -> Result<&str, Error> {
    value.as_str().ok_or_else(|| "no text".into())
}

fn list(value: &Value) -> Result<&Vec<Value>, Error> {
    value.as_array().ok_or_else(|| "no list".into())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(value: &Value) -> Result<Vec<u8>, Error> {
    let digits = text(value)?;
    let byte = |at| digits.get(at..at + 2).ok_or("half a byte").map(|pair| u8::from_str_radix(pair, 16));
    (0..digits.len()).step_by(2).map(|at| Ok(byte(at)??)).collect()
}
