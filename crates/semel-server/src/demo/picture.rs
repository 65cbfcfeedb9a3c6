//! Two pictures: the charges of every order, and the life of the one whose gateway died.

use std::time::{Duration, SystemTime};

use super::Run;
use super::client::Seen;
use super::ledger::time;
use super::story::Story;
use crate::terminal::Terminal;

/// Orders in a row of the picture, and in all of it.
const ROW: usize = 72;
const SHOWN: usize = 4 * ROW;

/// A mark for each order: how often it was charged.
pub fn charges(story: &Story, straight: &Run, guarded: &Run, terminal: &Terminal) -> Vec<String> {
    let mut lines = vec![String::new()];
    let shown = if story.orders.len() > SHOWN { format!(", the first {SHOWN}") } else { String::new() };
    lines.push(terminal.bold(&format!("Charges of each order{shown}: '.' one, 2 two, 3 three, '_' none")));
    for (name, run) in [("straight", straight), ("through Semel", guarded)] {
        lines.push(format!("  {name}"));
        let charges = run.ledger.charges_by_order();
        let orders: Vec<_> = story.orders.iter().take(SHOWN).collect();
        for row in orders.chunks(ROW) {
            let marks = row.iter().map(|order| match charges.get(order.key.as_str()) {
                Some(1) => ".".to_owned(),
                None => terminal.red("_"),
                Some(count) => terminal.red(&if *count > 9 { "+".into() } else { count.to_string() }),
            });
            lines.push(format!("    {}", marks.collect::<String>()));
        }
    }
    lines
}

/// A moment of an order: what the client, the gateway and the service did.
#[derive(Debug)]
struct Moment {
    at: SystemTime,
    client: String,
    gateway: &'static str,
    service: String,
    is_bad: bool,
    /// Of a client's request.
    is_end: bool,
}

/// The order whose client hung up and whose gateway died, in both runs.
pub fn one_order(story: &Story, straight: &Run, guarded: &Run, terminal: &Terminal) -> Vec<String> {
    let key = &story.witness().key;
    let title = format!("One order, {key}: its client hangs up, and meanwhile the gateway is killed");
    let mut lines = vec![String::new(), terminal.bold(&title)];
    for (name, run) in [("straight", straight), ("through Semel", guarded)] {
        let gateway = if run.death.is_some() { "gateway" } else { "" };
        lines.push(format!("  {name}"));
        lines.push(format!("    seconds  {:<36}{gateway:<15}service", "client"));
        let moments = moments(run, key);
        let begin = moments.first().map_or(SystemTime::UNIX_EPOCH, |moment| moment.at);
        lines.extend(moments.iter().map(|moment| moment.line(begin, terminal)));
    }
    lines
}

fn moments(run: &Run, key: &str) -> Vec<Moment> {
    let mut all = seen_by_client(run, key);
    for (at, charge) in run.ledger.charges.iter().filter(|charge| charge.order == key).enumerate() {
        let service = format!("charge no. {}", charge.number);
        all.push(Moment { service, is_bad: at > 0, ..Moment::new(time(charge.at)) });
    }
    if let Some((died, back)) = run.death {
        all.push(Moment { gateway: "killed", ..Moment::new(died) });
        all.push(Moment { gateway: "started again", ..Moment::new(back) });
    }
    for question in run.ledger.questions.iter().filter(|question| question.order == key) {
        let service = if question.charged { "yes" } else { "no" }.to_owned();
        all.push(Moment { gateway: "asks: charged?", service, ..Moment::new(time(question.at)) });
    }
    all.sort_by_key(|moment| moment.at);
    merged(all)
}

fn seen_by_client(run: &Run, key: &str) -> Vec<Moment> {
    let carried = run.carried.iter().find(|carried| carried.order == key);
    let seen = carried.into_iter().flat_map(|carried| &carried.seen).enumerate();
    let moment = |(number, (at, seen)): (usize, &(SystemTime, Seen))| {
        let client = match seen {
            Seen::Sent if number == 0 => "POST /charges".to_owned(),
            Seen::Sent => "POST again".to_owned(),
            _ => said(seen),
        };
        Moment { client, is_end: *seen != Seen::Sent, ..Moment::new(*at) }
    };
    seen.map(moment).collect()
}

/// A request and its end are one line, where nothing came between and it did not take long.
fn merged(moments: Vec<Moment>) -> Vec<Moment> {
    const AT_ONCE: Duration = Duration::from_millis(15);
    let mut merged: Vec<Moment> = Vec::new();
    for moment in moments {
        match merged.last_mut() {
            Some(sent)
                if moment.is_end
                    && !sent.is_end
                    && !sent.client.is_empty()
                    && moment.at.duration_since(sent.at).is_ok_and(|took| took < AT_ONCE) =>
            {
                sent.client = format!("{}: {}", sent.client, moment.client);
                sent.is_end = true;
            }
            _ => merged.push(moment),
        }
    }
    merged
}

fn said(seen: &Seen) -> String {
    match seen {
        Seen::Sent => "POST".to_owned(),
        Seen::HungUp => "hangs up".to_owned(),
        Seen::TimedOut => "no answer in time".to_owned(),
        Seen::Refused => "no connection".to_owned(),
        Seen::Broke => "the connection broke".to_owned(),
        Seen::Later { status, code, retry_after: None } => format!("{status} {code}"),
        Seen::Later { status, code, retry_after: Some(seconds) } => format!("{status} {code}, {seconds} s"),
        Seen::Charged { status, number, replayed: false } => format!("{status}, charge no. {number}"),
        Seen::Charged { number, replayed: true, .. } => format!("replay, charge no. {number}"),
        Seen::Surprise { status, .. } => status.to_string(),
    }
}

impl Moment {
    fn new(at: SystemTime) -> Moment {
        Moment {
            at,
            client: String::new(),
            gateway: "",
            service: String::new(),
            is_bad: false,
            is_end: false,
        }
    }

    fn line(&self, begin: SystemTime, terminal: &Terminal) -> String {
        let after = self.at.duration_since(begin).unwrap_or_default().as_secs_f64();
        let service = if self.is_bad { terminal.red(&self.service) } else { self.service.clone() };
        let line = format!("    {after:>7.3}  {:<36}{:<15}{service}", self.client, self.gateway);
        line.trim_end().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::client::Carried;
    use crate::demo::ledger::{Charge, Ledger, Question};

    fn at(millis: u64) -> SystemTime {
        time(millis * 1_000)
    }

    /// The lines of a timeline, without its head.
    fn timeline(seen: Vec<(u64, Seen)>, ledger: Ledger, death: Option<(u64, u64)>) -> Vec<String> {
        let seen = seen.into_iter().map(|(millis, seen)| (at(millis), seen)).collect();
        let carried = vec![Carried { order: "order-0001".into(), seen }];
        let run = Run { carried, ledger, death: death.map(|(died, back)| (at(died), at(back))) };
        let terminal = Terminal::new(true);
        let moments = moments(&run, "order-0001");
        moments.iter().map(|moment| moment.line(at(1_000), &terminal)).collect()
    }

    #[test]
    fn a_timeline_is_what_was_seen_in_the_order_of_time() {
        let later = Seen::Later { status: 409, code: "outcome-unknown".into(), retry_after: None };
        let replay = Seen::Charged { status: 200, number: 1, replayed: true };
        let seen = vec![
            (1_000, Seen::Sent),
            (1_150, Seen::HungUp),
            (2_000, Seen::Sent),
            (2_001, later),
            (2_999, Seen::Sent),
            (3_002, replay),
        ];
        let charge =
            |number, order: &str, at: u64| Charge { number, order: order.into(), amount: 1, at: at * 1_000 };
        let ledger = Ledger {
            charges: vec![charge(1, "order-0001", 1_050), charge(2, "order-0002", 1_060)],
            questions: vec![Question { order: "order-0001".into(), charged: true, at: 3_000_000 }],
            ..Ledger::default()
        };
        let gap = " ".repeat(36);
        assert_eq!(
            timeline(seen, ledger, Some((1_200, 1_900))),
            [
                "      0.000  POST /charges".to_owned(),
                format!("      0.050  {gap}{:15}charge no. 1", ""),
                "      0.150  hangs up".to_owned(),
                format!("      0.200  {gap}killed"),
                format!("      0.900  {gap}started again"),
                "      1.000  POST again: 409 outcome-unknown".to_owned(),
                "      1.999  POST again".to_owned(),
                format!("      2.000  {gap}asks: charged? yes"),
                "      2.002  replay, charge no. 1".to_owned(),
            ]
        );
    }
}
