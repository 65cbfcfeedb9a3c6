//! What a running bridge says of itself: at start, on `/readyz`, and to whoever checks its file.

use semel::OnUnknown;
use semel_messaging::Missing;
use semel_store::Connected;
use serde_json::{Value, json};

use super::config::Config;
use super::words::{Declare, FieldWord};
use crate::config::without_password;
use crate::values::Span;

/// Names and values, in their order, and where the guarantees end.
#[derive(Debug)]
pub struct Statement {
    title: String,
    lines: Vec<(&'static str, String)>,
    limits: Vec<String>,
}

impl Statement {
    pub fn new(config: &Config, store: Option<&Connected>) -> Statement {
        let lane = config.lane.as_ref().map(|field| FieldWord(field.clone()).to_string());
        let shared = match store {
            Some(store) if store.shared => ", shared",
            Some(_) => ", for this machine alone",
            None => "",
        };
        Statement {
            title: format!("{} goes to {}", config.place, config.target),
            lines: vec![
                ("name", config.name.clone()),
                ("queue", format!("{} at {}", config.place.queue, config.place.broker)),
                ("dead_letters", config.place.dead_letters.clone()),
                ("target", config.target.to_string()),
                ("store", format!("{}{shared}", without_password(&config.store))),
                ("lane", lane.unwrap_or_else(|| "none".into())),
                ("attempts_max", config.attempts_max.to_string()),
                ("in_flight_max", config.in_flight_max.to_string()),
                ("timeout", Span(config.timeout).to_string()),
                ("on_unknown", config.on_unknown.as_str().to_owned()),
                ("remember_for", Span(config.remember_for).to_string()),
            ],
            limits: limits(config, store),
        }
    }

    /// In one line.
    pub fn title(&self) -> &str {
        &self.title
    }

    /// For programs.
    pub fn json(&self) -> Value {
        let mut json: serde_json::Map<_, _> =
            self.lines.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
        json.insert("limits".into(), json!(self.limits));
        Value::Object(json)
    }

    /// For people.
    pub fn text(&self) -> String {
        let lines =
            self.lines.iter().map(|(name, value)| format!("  {:<14} {value}\n", name.replace('_', " ")));
        let limits = self.limits.iter().map(|limit| format!("  - {limit}\n"));
        format!("{}\nWhere the guarantees end:\n{}", lines.collect::<String>(), limits.collect::<String>())
    }
}

fn limits(config: &Config, store: Option<&Connected>) -> Vec<String> {
    let mut limits = Vec::new();
    if store.is_some_and(|store| store.lossy) {
        limits.push(
            "the store may lose what it has acknowledged: a message that it forgot runs again".to_owned(),
        );
    }
    if store.is_some_and(|store| !store.shared) {
        limits.push(
            "the store is a local one: a bridge on another machine does not know what this one did"
                .to_owned(),
        );
    }
    if config.lane.is_none() {
        limits.push("messages keep no order (--lane names what does)".to_owned());
    } else if config.declare != Declare::SingleActive {
        limits.push(
            "a lane keeps its order within this process: several bridges on one queue need single-active"
                .to_owned(),
        );
    }
    if config.missing == Missing::Generate {
        limits.push("a message without an id is never recognised as a duplicate".to_owned());
    }
    limits.push(match config.on_unknown {
        OnUnknown::Rerun => "what is unknown is sent again: at least once, not at most once".to_owned(),
        _ => "a 500 or 503 of the service is taken to mean that nothing took effect, and the message is sent again"
            .to_owned(),
    });
    let remembered = Span(config.remember_for);
    limits.push(format!("a message is remembered for {remembered} from its end; after that it is new again"));
    limits
}
