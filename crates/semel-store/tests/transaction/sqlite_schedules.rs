//! Every order of the statements of two transactions with one key, on SQLite. Nobody waits here: who meets the lock is
//! told so at once, and tries again when it is next his turn. The first side commits, rolls back, or dies before any of its
//! statements: its connection is closed as it is.

use rusqlite::Connection;
use semel::{Once, Outcome, TransactionError};
use semel_store::sqlite::{Run, once};

use crate::operation::operation;
use crate::sqlite::Place;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Commit,
    Rollback,
    /// After so many of its steps.
    Die(u32),
}

impl End {
    const ALL: [End; 6] = [End::Commit, End::Rollback, End::Die(1), End::Die(2), End::Die(3), End::Die(4)];
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Came {
    Ran(End),
    Replayed(Vec<u8>),
    Restart,
}

enum State {
    New(Connection),
    Begun(Connection),
    Running(Run<Connection>),
    Worked(Run<Connection>),
    Completed(Connection),
    Over(Came),
}

struct Side {
    name: &'static str,
    begin: &'static str,
    end: End,
    made: u32,
    /// `None` only while a step is made.
    state: Option<State>,
}

impl Side {
    fn new(place: &Place, name: &'static str, begin: &'static str, end: End) -> Side {
        let connection = place.connection();
        connection.busy_timeout(std::time::Duration::ZERO).expect("no wait");
        Side { name, begin, end, made: 0, state: Some(State::New(connection)) }
    }

    /// Makes the next step, or stays where it is if another one has the lock.
    fn step(&mut self, key: &str) {
        let state = self.state.take().expect("a state");
        if self.end == End::Die(self.made) && !matches!(state, State::Over(_)) {
            drop(state);
            self.state = Some(State::Over(Came::Ran(self.end)));
            return;
        }
        self.made += 1;
        let next = match state {
            State::New(connection) => match connection.execute_batch(self.begin) {
                Ok(()) => State::Begun(connection),
                Err(_) => {
                    self.made -= 1;
                    State::New(connection)
                }
            },
            State::Begun(connection) => match once(connection, &operation(key)) {
                Ok(Once::Run(run)) => State::Running(run),
                Ok(Once::Replay { outcome, tx, .. }) => {
                    tx.execute_batch("COMMIT").expect("a duplicate aborts nothing");
                    State::Over(Came::Replayed(outcome.bytes.to_vec()))
                }
                Ok(other) => panic!("{other:?}"),
                Err(TransactionError::Restart(_)) => State::Over(Came::Restart),
                Err(error) => panic!("{error}"),
            },
            State::Running(run) => {
                run.execute("INSERT INTO effect (name) VALUES (?1)", [format!("{key}:{}", self.name)])
                    .expect("an effect");
                State::Worked(run)
            }
            State::Worked(run) => State::Completed(run.complete(self.name).expect("completed")),
            State::Completed(connection) => {
                match self.end {
                    End::Commit => connection.execute_batch("COMMIT").expect("committed"),
                    End::Rollback => connection.execute_batch("ROLLBACK").expect("rolled back"),
                    End::Die(_) => unreachable!("dead before"),
                }
                State::Over(Came::Ran(self.end))
            }
            over @ State::Over(_) => over,
        };
        self.state = Some(next);
    }

    fn came(&self) -> Option<&Came> {
        match &self.state {
            Some(State::Over(came)) => Some(came),
            _ => None,
        }
    }
}

fn orders() -> impl Iterator<Item = Vec<bool>> {
    let bits = (0..1_u32 << 10).filter(|bits| bits.count_ones() == 5);
    bits.map(|bits| (0..10).map(|at| bits >> at & 1 == 1).collect())
}

#[test]
fn x4_every_order_of_two_transactions() {
    let place = Place::new();
    let immediate = "BEGIN IMMEDIATE; SELECT count(*) FROM effect";
    let deferred = "BEGIN; SELECT count(*) FROM effect";
    let mut claimed_first = 0;
    for (begin, may_restart) in [(immediate, false), (deferred, true)] {
        for end in End::ALL {
            for (number, order) in orders().enumerate() {
                let key = format!("{may_restart}-{end:?}-{number}");
                let mut sides =
                    [Side::new(&place, "A", begin, end), Side::new(&place, "B", begin, End::Commit)];
                for first in &order {
                    sides[usize::from(!first)].step(&key);
                }
                while sides.iter().any(|side| side.came().is_none()) {
                    sides.iter_mut().for_each(|side| side.step(&key));
                }
                let came = [sides[0].came().expect("over"), sides[1].came().expect("over")];
                let committed: Vec<_> = [("A", came[0]), ("B", came[1])]
                    .into_iter()
                    .filter(|(_, came)| **came == Came::Ran(End::Commit))
                    .collect();
                assert!(committed.len() <= 1, "{key} {order:?} {came:?}");
                let effects: Vec<String> = place
                    .effects()
                    .into_iter()
                    .filter_map(|name| Some(name.strip_prefix(&key)?.strip_prefix(':')?.to_owned()))
                    .collect();
                let names: Vec<_> = committed.iter().map(|(name, _)| (*name).to_owned()).collect();
                assert_eq!(effects, names, "{key} {order:?} {came:?}");
                assert_eq!(
                    place.outcome(&key),
                    names.first().map(|name| Outcome::value(name.clone())),
                    "{key}"
                );
                for came in came {
                    match came {
                        Came::Replayed(bytes) => {
                            assert_eq!(Some(bytes.as_slice()), names.first().map(String::as_bytes))
                        }
                        Came::Restart => {
                            assert!(may_restart, "{key} {order:?}: who has the lock is not busy")
                        }
                        Came::Ran(_) => {}
                    }
                }
                claimed_first += u32::from(*came[1] != Came::Ran(End::Commit));
            }
        }
    }
    assert!(claimed_first > 100, "both orders happened");
}
