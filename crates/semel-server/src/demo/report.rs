//! What is said before and after: the plan, the table, the end; and the same as JSON.

use std::io::{self, Write};
use std::path::Path;

use super::audit::Outcome;
use super::stage::CONFIG;
use super::story::Story;
use crate::Failure;
use crate::terminal::{Terminal, unwritten};

/// What is about to happen.
pub fn beginning(story: &Story, keep: Option<&Path>) -> Vec<String> {
    let (orders, faults, seed) = (story.orders.len(), story.faults(), story.seed);
    let text = format!(
        "{orders} orders go to a payment service that charges on every request it receives; {faults} of them meet a \
         fault that makes clients send them again: a second press of the button, a hang-up, a late or lost answer. \
         First straight at the service, then through `semel gateway` in front of it, which is killed halfway."
    );
    let left = keep.map_or("nothing".to_owned(), |path| format!("only {}", path.display()));
    let bounds = format!("It takes some 15 seconds, uses 127.0.0.1 only, and leaves {left} behind.");
    let seed = format!("Seed {seed}: --seed {seed} brings the same orders back.");
    [wrapped(&text), vec![String::new()], wrapped(&bounds), vec![seed, String::new()]].concat()
}

/// Both runs side by side.
pub fn table(outcome: &Outcome, terminal: &Terminal) -> Vec<String> {
    let (straight, guarded) = (&outcome.straight, &outcome.guarded);
    let row = |name: &str, straight: &str, guarded: &str| format!("{name:<46}{straight:>13}{guarded:>17}");
    let both =
        |name: &str, straight: usize, guarded: usize| row(name, &straight.to_string(), &guarded.to_string());
    let doubles = both("double charges", straight.double_charges, guarded.double_charges);
    let is_good = guarded.double_charges == 0;
    let mut lines = vec![
        terminal.bold(&row("", "straight", "through Semel")),
        both("orders", straight.orders, guarded.orders),
        both("requests sent by the clients", straight.requests_sent, guarded.requests_sent),
        both("  no answer: late, hung up, broken", straight.unanswered, guarded.unanswered),
        both(
            "  refused for now: later, with the same key",
            straight.refused_in_all(),
            guarded.refused_in_all(),
        ),
        both("  answered with a charge", straight.answers, guarded.answers),
        row("    of these replays, from the record", "-", &guarded.replays.to_string()),
        both("requests that reached the service", straight.requests_received, guarded.requests_received),
        both("charges", straight.charges, guarded.charges),
        if is_good { terminal.bold(&doubles) } else { terminal.red(&doubles) },
        row("unknown, resolved by asking the service", "-", &guarded.unknown().to_string()),
        String::new(),
    ];
    lines.extend(wrapped(&notes(outcome)));
    lines
}

fn notes(outcome: &Outcome) -> String {
    let guarded = &outcome.guarded;
    let refused: Vec<String> =
        guarded.refused.iter().map(|(what, count)| format!("{count} x {what}")).collect();
    format!(
        "Requests and charges are the service's own ledger. Refused by the gateway: {}. Unknown is an order whose \
         request was with the service when the gateway or the connection died: {} had been charged and were not charged \
         again, {} had not been and then were.",
        if refused.is_empty() { "none".to_owned() } else { refused.join(", ") },
        guarded.unknown_charged,
        guarded.unknown_not_charged,
    )
}

/// The verdict, and where to go on.
pub fn ending(story: &Story, outcome: &Outcome, keep: Option<&Path>, terminal: &Terminal) -> Vec<String> {
    let seconds = outcome.seconds;
    let verdict = match outcome.wrong.as_slice() {
        [] => terminal.green(&format!(
            "Through the gateway each of the {} orders was charged exactly once ({seconds:.0} s).",
            story.orders.len(),
        )),
        wrong => terminal.red(&format!("This is not as it must be: {}.", few(wrong))),
    };
    let kept = match keep {
        Some(path) => {
            format!("Kept in {}: the gateway's {CONFIG}, its store and log, both ledgers.", path.display())
        }
        None => format!("The gateway's {CONFIG}, its store and both ledgers: semel demo --keep DIR"),
    };
    let more = [
        String::new(),
        "In front of your own service:  semel gateway --upstream http://127.0.0.1:9000".to_owned(),
        kept,
        "Read on: README.md; what is promised, and on what condition: docs/guarantees.md".to_owned(),
    ];
    [vec![String::new(), verdict], more.to_vec()].concat()
}

/// The figures, for programs.
pub fn json(story: &Story, outcome: &Outcome) -> Result<(), Failure> {
    let text = serde_json::json!({
        "seed": story.seed,
        "seconds": (outcome.seconds * 1000.0).round() / 1000.0,
        "straight": outcome.straight,
        "gateway": outcome.guarded,
        "wrong": outcome.wrong,
    });
    writeln!(io::stdout(), "{text:#}").map_err(unwritten)
}

/// The first ones, and how many there are.
pub fn few(wrong: &[String]) -> String {
    const SHOWN: usize = 3;
    let more = wrong.len().saturating_sub(SHOWN);
    let shown = wrong.iter().take(SHOWN).cloned().collect::<Vec<_>>().join("; ");
    if more == 0 { shown } else { format!("{shown}; and {more} more") }
}

/// In lines that fit a terminal of 80 columns.
fn wrapped(text: &str) -> Vec<String> {
    const WIDTH: usize = 78;
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.len() + 1 + word.len() <= WIDTH => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}
