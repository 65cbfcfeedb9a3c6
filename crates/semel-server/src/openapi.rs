//! `semel openapi`: the contract in a user's OpenAPI document (H17).
//!
//! 1. The settings are checked as `semel gateway` checks them, and an operation has those of its route, which the routes
//!    themselves are asked for. What no gateway would guard (its method, `natural`, `observe`) stays as it is.
//! 2. A guarded operation gets what it lacks: the header that carries the key, with its aliases, unless the key is derived
//!    or stands in the body; each refusal that can happen on its route, at the status that it has there; the header
//!    `Idempotent-Replayed` on those of its own answers that are kept; and a link to the policy.
//! 3. Nothing that is there is changed, to the byte: see `document.rs`. So a second run changes nothing. What had to be
//!    left out is said in a line each, on standard error.
//! 4. `{id}` in a path stands for any segment but those that a route names; see `matching.rs`.
//!
//! Not read: what a `$ref` to another file holds, `webhooks`, `callbacks`.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::Failure;
use crate::cli::Openapi;
use crate::config::layered;
use crate::gateway;
use document::{Document, Format, Node};

mod components;
mod document;
mod json;
mod matching;
mod piece;
mod publish;
mod yaml;

/// `semel openapi`.
pub fn run(args: Openapi) -> Result<(), Failure> {
    let Openapi { file, output, config, settings } = args;
    let settings = layered(settings, config.as_ref()).map_err(Failure::Usage)?;
    let routes = gateway::checked(settings)?.routes;
    let named = |error: String| Failure::Usage(format!("{}: {error}", file.display()));
    let text = std::fs::read_to_string(&file).map_err(|error| named(error.to_string()))?;
    let format = format(&file, &text);
    let (mark, text) = match text.strip_prefix('\u{feff}') {
        Some(rest) => ("\u{feff}", rest.to_owned()),
        None => ("", text),
    };
    let mut document = Document::parse(text, format).map_err(named)?;
    check_version(&document.root()).map_err(named)?;
    let notes = publish::into(&mut document, &routes);
    let text = document.finish();
    // Whatever a writer of YAML has thought of: a document that cannot be read any more goes nowhere.
    Document::parse(text.clone(), format).map_err(|error| {
        Failure::Failed(format!(
            "{}: it is written in a way that cannot be added to: {error}",
            file.display()
        ))
    })?;
    let text = [mark, &text].concat();
    for note in notes {
        let _ = writeln!(io::stderr(), "semel: {note}");
    }
    match output {
        Some(output) => write_whole(&output, &text)
            .map_err(|error| Failure::Failed(format!("--output {}: {error}", output.display()))),
        None => io::stdout().write_all(text.as_bytes()).map_err(|error| match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::Unread,
            _ => Failure::Failed(format!("standard output: {error}")),
        }),
    }
}

/// By its name, and where that says nothing, by how it begins: JSON is an object here.
fn format(file: &Path, text: &str) -> Format {
    let extension = file.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    match extension.to_ascii_lowercase().as_str() {
        "json" => Format::Json,
        "yaml" | "yml" => Format::Yaml,
        _ if text.trim_start_matches('\u{feff}').trim_start().starts_with('{') => Format::Json,
        _ => Format::Yaml,
    }
}

fn check_version(root: &Node) -> Result<(), String> {
    match (root.text_of("openapi"), root.text_of("swagger")) {
        (Some(version), _) if version.starts_with("3.0.") || version.starts_with("3.1.") => Ok(()),
        (Some(version), _) => Err(format!("OpenAPI {version} is not known here: 3.0 and 3.1 are")),
        (None, Some(version)) => Err(format!("Swagger {version} must be converted to OpenAPI 3 first")),
        (None, None) => Err("it is no OpenAPI document: 'openapi' is missing".to_owned()),
    }
}

/// All of it or nothing: the file may be the document itself, which nobody wants to lose half of.
fn write_whole(path: &Path, text: &str) -> io::Result<()> {
    // A link stays one.
    let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let mut beside = PathBuf::from(&path).into_os_string();
    beside.push(".semel");
    let written = std::fs::write(&beside, text).and_then(|()| {
        if let Ok(there) = std::fs::metadata(&path) {
            std::fs::set_permissions(&beside, there.permissions())?;
        }
        std::fs::rename(&beside, &path)
    });
    if written.is_err() {
        let _ = std::fs::remove_file(&beside);
    }
    written
}
