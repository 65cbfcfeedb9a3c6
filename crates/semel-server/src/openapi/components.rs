//! What is put into a document: the parameter, the refusals, and what both refer to.

use semel_http::{KeyPolicy, Options, Row, TABLE};

use super::piece::{Piece, map, reference, text, texts};

pub const RESPONSES: &str = "responses";
pub const PROBLEM_JSON: &str = "application/problem+json";

/// What the additions refer to. One that the document already has, under that name, is taken as it is.
pub const SCHEMA: (&str, &str) = ("schemas", "IdempotencyProblem");
pub const REPLAYED: (&str, &str) = ("headers", "IdempotentReplayed");
pub const RETRY_AFTER: (&str, &str) = ("headers", "RetryAfter");

/// A header that carries the key.
pub fn parameter(name: &str, options: &Options, required: bool) -> Piece {
    let others: Vec<_> = options.key_names.iter().map(|name| proper(name.as_str())).collect();
    let mut description =
        "The caller's name for this operation: the same for each retry of it, and for nothing else."
            .to_owned();
    match &options.key {
        _ if others.len() > 1 && options.key == KeyPolicy::Required => {
            description += &format!(" One of {} is required.", others.join(", "));
        }
        KeyPolicy::Optional => {
            description += " A request without one may take effect as often as it arrives."
        }
        KeyPolicy::Generate => description += " A request without one gets one, and its retry another.",
        _ => {}
    }
    let max = semel::Key::BYTES_MAX as u64;
    let schema =
        map([("type", text("string")), ("minLength", Piece::Number(1)), ("maxLength", Piece::Number(max))]);
    map([
        ("name", text(name)),
        ("in", text("header")),
        ("required", Piece::Plain(if required { "true" } else { "false" })),
        ("description", text(description)),
        ("schema", schema),
        ("example", text("\"4b1bd7a3-0d5e-4d0c-9a86-53ba8a3e3c53\"")),
    ])
}

/// As people write it: `Idempotency-Key`.
pub fn proper(name: &str) -> String {
    let words = name.split('-').map(|word| {
        let mut chars = word.chars();
        chars.next().map(|first| first.to_ascii_uppercase().to_string() + chars.as_str()).unwrap_or_default()
    });
    words.collect::<Vec<_>>().join("-")
}

/// Whether one of them says when to come back.
pub fn retries(rows: &[&Row]) -> bool {
    rows.iter().any(|row| row.retry_after.is_some())
}

/// A refusal, or several at one status.
pub fn response(rows: &[&Row]) -> Piece {
    let said: Vec<_> = rows.iter().map(|row| format!("{}: {}.", row.word, row.title)).collect();
    let mut members = vec![("description".to_owned(), text(said.join(" ")))];
    if retries(rows) {
        members.push(("headers".to_owned(), map([("Retry-After", to(RETRY_AFTER))])));
    }
    members.push(("content".to_owned(), content(rows)));
    Piece::Map(members)
}

/// The body of a refusal.
pub fn content(rows: &[&Row]) -> Piece {
    map([(PROBLEM_JSON, media_type(rows))])
}

/// The shared schema, with the codes that stand at one status.
pub fn media_type(rows: &[&Row]) -> Piece {
    let codes = map([("enum", texts(rows.iter().map(|row| row.word)))]);
    let here = map([("type", text("object")), ("properties", map([("code", codes)]))]);
    map([("schema", map([("allOf", Piece::List(vec![to(SCHEMA), here]))]))])
}

/// What a refusal is called in the document: it holds its codes, so that two routes share it only where they have the
/// same ones at one status.
pub fn name_of(rows: &[&Row]) -> String {
    let words = rows.iter().flat_map(|row| row.word.split('-'));
    ["Idempotency".to_owned()].into_iter().chain(words.map(proper)).collect()
}

/// A reference to a component.
pub fn to(component: (&str, &str)) -> Piece {
    reference(&path_of(component))
}

/// Where a component stands.
pub fn path_of((kind, name): (&str, &str)) -> String {
    format!("#/components/{kind}/{name}")
}

/// A problem document, as `semel_http` writes it (H10).
pub fn problem() -> Piece {
    let string = || map([("type", text("string"))]);
    let described =
        |kind: &str, description: &str| map([("type", text(kind)), ("description", text(description))]);
    let words = |words: Piece, description: &str| {
        map([("type", text("string")), ("enum", words), ("description", text(description))])
    };
    let properties = map([
        ("type", string()),
        ("title", string()),
        ("status", map([("type", text("integer"))])),
        ("detail", string()),
        (
            "code",
            words(texts(TABLE.iter().map(|row| row.word)), "What it is, in a word that does not change."),
        ),
        (
            "retryable",
            described("boolean", "Whether the same request, with the same key, may succeed later."),
        ),
        (
            "effect",
            words(
                texts(["none", "done", "unknown"]),
                "What the operation has done, as far as is known. A new key is safe only with none.",
            ),
        ),
        ("original_status", described("integer", "The status of the answer that was not kept.")),
        ("location", described("string", "The Location of the answer that was not kept.")),
        ("upstream_status", described("integer", "What the service answered, where that does not tell.")),
        (
            "error",
            map([
                ("type", text("object")),
                ("properties", map([("type", string()), ("code", string()), ("message", string())])),
            ]),
        ),
    ]);
    map([
        ("type", text("object")),
        ("description", text("Why a request with an Idempotency-Key was refused (RFC 9457).")),
        ("required", texts(["type", "title", "status", "detail", "retryable", "effect"])),
        ("properties", properties),
    ])
}

/// `Idempotent-Replayed`.
pub fn replayed() -> Piece {
    map([
        ("description", text("true on a stored answer: nothing ran. Absent on a fresh one.")),
        ("schema", map([("type", text("string")), ("enum", texts(["true"]))])),
    ])
}

/// `Retry-After`.
pub fn retry_after() -> Piece {
    map([
        ("description", text("Seconds until the same request, with the same key, is worth another try.")),
        ("schema", map([("type", text("integer")), ("minimum", Piece::Number(1))])),
    ])
}
