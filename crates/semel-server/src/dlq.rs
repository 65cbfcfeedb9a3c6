//! `semel dlq`: dead letters, as a person looks at them, sends them back and throws them away (M6).
//!
//! 1. **The library decides what may go** ([`DeadLetters`]): a message whose effect is there is not sent back, one that was
//!    given up gets its attempts anew, one of which nobody knows waits until its key is resolved. This shows and asks.
//! 2. **What is asked about is held** until it is done: what is counted is what is done, and nobody else takes it
//!    meanwhile. A consumer of the queue itself is not disturbed.
//! 3. **Nothing is lost by a death in between**: sent and confirmed first, taken out then. Do it again; one that was sent
//!    back already is told apart by its record, or is a copy with the same id, which the consumer recognises.
//! 4. **Who and why** stand in the key's history, where there is a key and the store can write it.
//! 5. Ids are not asked about; of many a person is asked, on a terminal; elsewhere `--yes` has to be given.

use std::sync::Arc;

use semel::{Engine, Entropy, Instance, Word};
use semel_messaging::amqp::RabbitMq;
use semel_messaging::{DeadLetters, Errand, Fate, Look, Message, RedriveError, Sink, Source, SourceError};
use semel_store::{Connected, Options};

use crate::Failure;
use crate::bridge::{self, RabbitMqAt};
use crate::cli::{Chosen, DlqCommand, DlqList, DlqMove, DlqShow, Graveyard};
use crate::config::{self, STORE};
use crate::operator::{agreed, whoever};
use crate::terminal::{self, Terminal};
use crate::values::nearest;

mod letter;
mod matching;

pub use matching::Matching;

/// The name that an operator's attempts carry.
const OPERATOR: &str = "semel dlq";

/// A broker or a store that fails so often in a row is away.
const FAILURES_MAX: u32 = 3;

const DAY: std::time::Duration = std::time::Duration::from_secs(24 * 60 * 60);

/// `semel dlq …`.
pub async fn run(command: DlqCommand) -> Result<(), Failure> {
    match command {
        DlqCommand::List(args) => list(args).await,
        DlqCommand::Show(args) => show(args).await,
        DlqCommand::Redrive(args) => redrive(args).await,
        DlqCommand::Discard(args) => discard(args).await,
    }
}

async fn list(args: DlqList) -> Result<(), Failure> {
    let place = Place::of(&args.place)?;
    let Some((dead, count)) = place.dead_letters(None).await? else { return none(&place, args.json) };
    let look = dead.look(count).await.map_err(|error| failed(&error))?;
    let chosen: Vec<_> = look.letters().filter(|letter| is_meant(&args.chosen, letter)).cloned().collect();
    look.close().await;
    if chosen.is_empty() {
        return none(&place, args.json);
    }
    let shown = &chosen[..chosen.len().min(args.limit)];
    match args.json {
        true => shown.iter().try_for_each(|letter| letter::line(&letter::json(letter))),
        false => letter::table(shown, chosen.len()),
    }
}

async fn show(args: DlqShow) -> Result<(), Failure> {
    let place = Place::of(&args.place)?;
    let store = place.store().await;
    let (store, unread) = match store {
        Ok(store) => (Some(store), None),
        Err(Failure::Usage(said) | Failure::Failed(said)) => (None, Some(said)),
        Err(other) => return Err(other),
    };
    let Some((dead, count)) = place.dead_letters(store.as_ref()).await? else {
        return none(&place, args.json);
    };
    let look = dead.look(count).await.map_err(|error| failed(&error))?;
    let chosen: Vec<_> = look.letters().filter(|letter| is_meant(&args.chosen, letter)).cloned().collect();
    look.close().await;
    if chosen.is_empty() {
        return none(&place, args.json);
    }
    for letter in chosen.iter().take(args.limit) {
        let record = match &unread {
            Some(said) => Err(said.clone()),
            None => dead.entry(letter).await.map_err(|error| error.to_string()),
        };
        letter::show(letter, &record, args.body, args.json)?;
    }
    Ok(())
}

async fn redrive(args: DlqMove) -> Result<(), Failure> {
    move_all(&args, &REDRIVE, async |look, at, errand| look.redrive(at, errand).await).await
}

async fn discard(args: DlqMove) -> Result<(), Failure> {
    move_all(&args, &DISCARD, async |look, at, errand| look.discard(at, errand).await).await
}

/// How it is said.
struct Verb {
    name: &'static str,
    done: &'static str,
    word: &'static str,
}

const REDRIVE: Verb = Verb { name: "redrive", done: "sent back", word: "redriven" };
const DISCARD: Verb = Verb { name: "discard", done: "thrown away", word: "discarded" };

async fn move_all(
    args: &DlqMove,
    verb: &Verb,
    one: impl AsyncFn(&Look<'_>, usize, &Errand) -> Result<Fate, RedriveError>,
) -> Result<(), Failure> {
    let place = Place::of(&args.place)?;
    let store = place.store().await?;
    let remember_for = args.remember_for.map(|span| span.0);
    let place = Place { remember_for: remember_for.unwrap_or(place.remember_for), ..place };
    let Some((dead, count)) = place.dead_letters(Some(&store)).await? else { return none(&place, args.json) };
    let look = dead.look(count).await.map_err(|error| failed(&error))?;
    let moved = move_chosen(args, verb, &place, &look, one).await;
    look.close().await;
    moved
}

async fn move_chosen(
    args: &DlqMove,
    verb: &Verb,
    place: &Place,
    look: &Look<'_>,
    one: impl AsyncFn(&Look<'_>, usize, &Errand) -> Result<Fate, RedriveError>,
) -> Result<(), Failure> {
    let letters: Vec<_> = look.letters().cloned().collect();
    let fits = (0..letters.len()).filter(|at| is_meant(&args.chosen, &letters[*at]));
    let mut chosen: Vec<usize> = fits.collect();
    let more = chosen.len() > args.limit || look.is_full();
    chosen.truncate(args.limit);
    if chosen.is_empty() {
        return none(place, args.json);
    }
    let behind = if more { " (more fit: again for the rest, or a larger --limit)" } else { "" };
    let which = format!("{}{behind}", counted(chosen.len()));
    if !args.dry_run && args.chosen.ids.is_empty() {
        agreed(args.yes, &which, &verb.done)?;
    }
    let errand = Errand { limit: args.limit, dry_run: args.dry_run, word: word(args) };
    let (terminal, mut tally) = (Terminal::new(args.json), Tally::default());
    for at in &chosen {
        let fate = one(look, *at, &errand).await;
        let said = tally.count(&fate, verb);
        if args.json {
            letter::line(&letter::moved(&letters[*at], &fate, verb.word))?;
        } else {
            let line = format!("{}: {said}", letter::name(&letters[*at]));
            // What is as it should be scrolls by; what is not, and what is only said, stays.
            if matches!(fate, Ok(Fate::Gone)) { terminal.begins(&line)? } else { terminal.line(&line)? }
        }
        terminal.status(&terminal::bar(tally.tried(), chosen.len()))?;
        if tally.failed_in_a_row == FAILURES_MAX {
            break;
        }
    }
    tally.report(&terminal, verb, args, chosen.len(), behind)
}

fn word(args: &DlqMove) -> Word {
    let plain = |text: String| text.replace(char::is_control, " ");
    Word { by: Some(plain(args.by.clone().unwrap_or_else(whoever))), reason: args.reason.clone().map(plain) }
}

/// How it went so far.
#[derive(Debug, Default)]
struct Tally {
    gone: usize,
    /// Would be, in a dry run.
    would_go: usize,
    /// Took effect before.
    done: usize,
    stays: usize,
    failed: usize,
    failed_in_a_row: u32,
}

impl Tally {
    fn tried(&self) -> usize {
        self.gone + self.would_go + self.done + self.stays + self.failed
    }

    /// Counts one, and says what became of it.
    fn count(&mut self, fate: &Result<Fate, RedriveError>, verb: &Verb) -> String {
        self.failed_in_a_row = if fate.is_err() { self.failed_in_a_row + 1 } else { 0 };
        let (count, said) = match fate {
            Ok(Fate::Gone) => (&mut self.gone, verb.done.to_owned()),
            Ok(Fate::WouldGo) => (&mut self.would_go, format!("would be {}", verb.done)),
            Ok(Fate::Done { age }) => {
                let age = letter::ago(*age);
                (
                    &mut self.done,
                    format!("left: it has taken effect, first delivered {age} ago; discard throws it away"),
                )
            }
            Ok(Fate::Stays(why)) => (&mut self.stays, format!("left: {why}")),
            Ok(_) => (&mut self.stays, "left".to_owned()),
            Err(error) => (&mut self.failed, format!("failed: {error}")),
        };
        *count += 1;
        said
    }

    fn report(
        &self,
        terminal: &Terminal,
        verb: &Verb,
        args: &DlqMove,
        all: usize,
        behind: &str,
    ) -> Result<(), Failure> {
        let (gone, would) = if args.dry_run { (self.would_go, "would be ") } else { (self.gone, "") };
        let mut said = vec![format!("{} {would}{}", counted(gone), verb.done)];
        if self.done > 0 {
            said.push(format!("{} left that took effect before", self.done));
        }
        if self.stays > 0 {
            said.push(format!("{} left", self.stays));
        }
        if self.failed > 0 {
            said.push(format!("{} failed", self.failed));
        }
        terminal.line(&(said.join(", ") + behind))?;
        match (self.failed, all - self.tried()) {
            (0, _) => Ok(()),
            (failed, 0) => Err(Failure::Failed(format!("{} failed: {} again", counted(failed), verb.name))),
            (_, left) => Err(Failure::Failed(format!(
                "the broker or the store fails, {} left untried: {} again",
                counted(left),
                verb.name
            ))),
        }
    }
}

fn is_meant(chosen: &Chosen, letter: &Message) -> bool {
    let by_id =
        chosen.ids.is_empty() || letter::names(letter).any(|name| chosen.ids.iter().any(|id| id == name));
    by_id && chosen.matching.iter().all(|matching| matching.fits(letter))
}

fn counted(count: usize) -> String {
    if count == 1 { "1 dead letter".to_owned() } else { format!("{count} dead letters") }
}

fn none(place: &Place, json: bool) -> Result<(), Failure> {
    if json {
        return Ok(());
    }
    letter::say(&format!("no dead letter of {} fits, or somebody else is looking at them", place.at))
}

/// Where a command looks.
struct Place {
    at: RabbitMqAt,
    store: String,
    remember_for: std::time::Duration,
    /// The queue of the file, where another one was asked for.
    meant: Option<String>,
}

impl Place {
    fn of(args: &Graveyard) -> Result<Place, Failure> {
        let given = bridge::Settings {
            broker: args.broker.clone(),
            queue: args.queue.clone(),
            dead_letters: args.dead_letters.clone(),
            store: args.store.clone(),
            ..bridge::Settings::default()
        };
        let file: bridge::Settings = match &args.config {
            Some(file) => config::read(file).map_err(Failure::Usage)?,
            None => bridge::Settings::default(),
        };
        let meant = file.queue.clone();
        // Another queue has other dead letters.
        let file = match args.queue.is_some() && args.queue != file.queue {
            true => bridge::Settings { dead_letters: None, ..file },
            false => file,
        };
        let mut settings = given.or(file);
        // The dead letters themselves were named.
        if let Some(queue) = settings.queue.as_deref().and_then(|queue| queue.strip_suffix(".dead")) {
            settings.queue = Some(queue.to_owned());
        }
        Ok(Place {
            at: RabbitMqAt::of(&settings).map_err(Failure::Usage)?,
            store: settings.store.unwrap_or_else(|| STORE.to_owned()),
            remember_for: settings.remember_for.map_or(30 * DAY, |span| span.0),
            meant,
        })
    }

    async fn store(&self) -> Result<Connected, Failure> {
        semel_store::connect(&self.store, &Options::default()).await.map_err(Failure::from)
    }

    /// And how many nobody holds; `None` where there are none. Without a store nothing can be sent back.
    async fn dead_letters(&self, store: Option<&Connected>) -> Result<Option<(DeadLetters, u32)>, Failure> {
        let RabbitMqAt { broker, dead_letters, .. } = &self.at;
        let count = match broker.messages_in(dead_letters).await.map_err(|error| unread(&error))? {
            None => return Err(self.not_there().await),
            Some(0) => return Ok(None),
            Some(count) => count,
        };
        let engine = match store {
            Some(store) => {
                Engine::new(store.store.clone(), Entropy::system()).with_history(store.history.clone())
            }
            None => Engine::new(Arc::new(semel::MemoryStore::new()), Entropy::system()),
        };
        let of_records: Arc<dyn semel::Store> = match store {
            Some(store) => store.store.clone(),
            None => Arc::new(semel::MemoryStore::new()),
        };
        let sources = sources(broker, dead_letters)?;
        let sink: Arc<dyn Sink> = Arc::new(broker.sink("").map_err(|error| unread(&error))?);
        let engine = engine.with_instance(Instance::named(OPERATOR));
        Ok(Some((DeadLetters::new(sources, sink, of_records, engine, self.remember_for), count)))
    }

    /// Which of the two queues is not there, and what was meant.
    async fn not_there(&self) -> Failure {
        let RabbitMqAt { broker, queue, dead_letters } = &self.at;
        let meant =
            self.meant.as_deref().filter(|meant| meant != queue).and_then(|meant| nearest(queue, [meant]));
        let meant = meant.map(|meant| format!("; did you mean '{meant}'?")).unwrap_or_default();
        Failure::Failed(match broker.messages_in(queue).await {
            Ok(Some(_)) => {
                format!("queue '{queue}' at {broker} has no queue '{dead_letters}' for dead letters")
            }
            Ok(None) => format!("there is no queue '{queue}' at {broker}, and no '{dead_letters}'{meant}"),
            Err(error) => bridge::said(&error),
        })
    }
}

type Sources = Box<dyn Fn() -> Arc<dyn Source> + Send + Sync>;

/// Each look has a source of its own. That the name is one is found out here, and not in the middle.
fn sources(broker: &RabbitMq, queue: &str) -> Result<Sources, Failure> {
    let checked = broker.queue(queue).map_err(|error| unread(&error))?;
    drop(checked);
    let (broker, queue) = (broker.clone(), queue.to_owned());
    Ok(Box::new(move || match broker.queue(&queue) {
        Ok(source) => Arc::new(source.of_dead_letters()) as Arc<dyn Source>,
        Err(error) => unreachable!("the name was taken before: {error}"),
    }))
}

fn unread(error: &SourceError) -> Failure {
    Failure::Failed(bridge::said(error))
}

fn failed(error: &RedriveError) -> Failure {
    match error {
        RedriveError::Source(error) => unread(error),
        error => Failure::Failed(error.to_string()),
    }
}
