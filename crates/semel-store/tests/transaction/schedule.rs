//! Two transactions with one key, in every order of their statements.
//!
//! Each side makes its steps one by one, when it is told to. After each step the runner waits until the side has made
//! it, or until the database itself says that the side waits for the other one. So nothing sleeps, and a schedule is
//! what it says.

use std::fmt;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use semel::{BoxError, InTransaction, Once, Outcome, Run, TransactionError, Twin};
use tokio::sync::mpsc;

use crate::operation::operation;

/// Longer than anything takes that is not stuck.
const DEADLINE: Duration = Duration::from_secs(60);

/// A connection of some driver, without a transaction as yet.
#[async_trait]
pub(crate) trait Raw: Send + Sized + 'static {
    type In: InTransaction<Handle = Self> + 'static;

    fn wrap(self) -> Self::In;

    async fn execute(&mut self, sql: &str) -> Result<(), BoxError>;

    /// Whether the error says that the transaction is to be run again.
    fn is_restart(error: &BoxError) -> bool;
}

/// The database as an onlooker sees it.
#[async_trait]
pub(crate) trait Onlooker: Send {
    /// Whether that connection waits for a lock of another one's.
    async fn is_blocked(&mut self, id: i64) -> bool;

    /// Ends a connection, and waits until its transaction is gone.
    async fn kill(&mut self, id: i64);
}

/// How a side ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Commit,
    Rollback,
    Die,
}

/// What became of a side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Came {
    /// It ran, and this was its end.
    Ran(End),
    /// It was told to replay this.
    Replayed(Vec<u8>),
    InFlight,
    /// It is to begin anew.
    Restart,
}

/// The steps of a side: begin with a look, so that there is a snapshot; claim; effect; complete; end.
const STEPS: u32 = 5;

/// The statements that begin a transaction at a level, and give it its snapshot.
pub(crate) type Begin = &'static [&'static str];

/// One side.
struct Side<R: Raw> {
    name: &'static str,
    key: String,
    begin: Begin,
    twin: Twin,
    end: End,
    state: State<R>,
}

enum State<R: Raw> {
    /// Before the claim, or after one that did not run.
    Open(R),
    Running(Run<R::In>),
    Completed(R),
    Gone,
}

impl<R: Raw> Side<R> {
    /// Makes a step; gives what became of the side when it is over.
    async fn step(&mut self, step: u32) -> Result<Option<Came>, BoxError> {
        match (step, std::mem::replace(&mut self.state, State::Gone)) {
            (0, State::Open(mut raw)) => {
                for sql in self.begin {
                    raw.execute(sql).await?;
                }
                self.state = State::Open(raw);
            }
            (1, State::Open(raw)) => {
                let once = semel::transaction::once(raw.wrap(), &operation(&self.key), self.twin).await;
                return self.claimed(once.map_err(BoxError::from)?).await;
            }
            (2, State::Running(mut run)) => {
                let sql = format!("INSERT INTO effect (name) VALUES ('{}:{}')", self.key, self.name);
                run.execute(&sql).await?;
                self.state = State::Running(run);
            }
            (3, State::Running(run)) => {
                let raw = run.complete(self.name.as_bytes().to_vec()).await?;
                self.state = State::Completed(raw);
            }
            (4, State::Completed(mut raw)) => {
                match self.end {
                    End::Commit => raw.execute("COMMIT").await?,
                    End::Rollback => raw.execute("ROLLBACK").await?,
                    // The connection was killed before this step.
                    End::Die => {}
                }
                return Ok(Some(Came::Ran(self.end)));
            }
            _ => panic!("{} has no step {step}", self.name),
        }
        Ok(None)
    }

    async fn claimed(&mut self, once: Once<Run<R::In>, R>) -> Result<Option<Came>, BoxError> {
        let (came, mut raw) = match once {
            Once::Run(run) => {
                self.state = State::Running(run);
                return Ok(None);
            }
            Once::Replay { outcome, tx, .. } => (Came::Replayed(outcome.bytes.to_vec()), tx),
            Once::InFlight { tx, .. } => (Came::InFlight, tx),
            other => panic!("not in these schedules: {other:?}"),
        };
        // A duplicate has not aborted the transaction: it may be committed.
        raw.execute("COMMIT").await?;
        Ok(Some(came))
    }
}

fn is_restart<R: Raw>(error: &BoxError) -> bool {
    matches!(error.downcast_ref::<TransactionError>(), Some(TransactionError::Restart(_)))
        || R::is_restart(error)
}

/// A side that runs in a task of its own.
struct Player {
    name: &'static str,
    id: i64,
    end: End,
    /// Steps that it may still be told to make.
    next: u32,
    is_busy: bool,
    came: Option<Came>,
    go: mpsc::UnboundedSender<u32>,
    done: mpsc::UnboundedReceiver<Option<Came>>,
}

impl Player {
    fn start<R: Raw>(mut side: Side<R>, id: i64) -> Player {
        let (go, mut steps) = mpsc::unbounded_channel();
        let (tell, done) = mpsc::unbounded_channel();
        let (name, end) = (side.name, side.end);
        tokio::spawn(async move {
            while let Some(step) = steps.recv().await {
                let came = match side.step(step).await {
                    Ok(came) => came,
                    Err(error) if is_restart::<R>(&error) => Some(Came::Restart),
                    Err(error) => panic!("{} failed at step {step}: {error:?}", side.name),
                };
                let is_over = came.is_some();
                if tell.send(came).is_err() || is_over {
                    // Dropped here, so that a side that is to begin anew has rolled back.
                    return;
                }
            }
        });
        Player { name, id, end, next: 0, is_busy: false, came: None, go, done }
    }

    fn may_step(&self) -> bool {
        !self.is_busy && self.came.is_none() && self.next < STEPS
    }

    fn heard(&mut self, came: Option<Came>) {
        self.is_busy = false;
        self.came = came;
    }
}

/// One order of the steps of two sides: `true` is the first side's.
pub(crate) struct Schedule(Vec<bool>);

impl Schedule {
    /// All of them.
    pub(crate) fn all() -> Vec<Schedule> {
        let length = 2 * STEPS;
        (0..1_u32 << length)
            .filter(|bits| bits.count_ones() == STEPS)
            .map(|bits| Schedule((0..length).map(|at| bits >> at & 1 == 1).collect()))
            .collect()
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|first| f.write_str(if *first { "A" } else { "B" }))
    }
}

/// What both sides do alike.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) begin: Begin,
    pub(crate) twin: Twin,
    /// How the first side ends; the second one commits.
    pub(crate) end: End,
}

/// Runs one schedule; gives what became of the two.
pub(crate) async fn run<R: Raw>(
    schedule: &Schedule,
    plan: Plan,
    key: &str,
    sides: [(R, i64); 2],
    onlooker: &mut dyn Onlooker,
) -> [Came; 2] {
    let [(first, first_id), (second, second_id)] = sides;
    let side = |name, raw, end| Side {
        name,
        key: key.to_owned(),
        begin: plan.begin,
        twin: plan.twin,
        end,
        state: State::Open(raw),
    };
    let mut players = [
        Player::start(side("A", first, plan.end), first_id),
        Player::start(side("B", second, End::Commit), second_id),
    ];
    for first in &schedule.0 {
        let at = usize::from(!first);
        if players[at].may_step() {
            step(&mut players, at, onlooker).await;
        }
    }
    // What was passed over while a side waited.
    let begun = Instant::now();
    while players.iter().any(|player| player.came.is_none()) {
        assert!(begun.elapsed() < DEADLINE, "stuck at {schedule}");
        for at in 0..2 {
            if players[at].may_step() {
                step(&mut players, at, onlooker).await;
            }
        }
        settle(&mut players, onlooker).await;
    }
    players.map(|player| player.came.expect("it is over"))
}

/// Tells a side to make its next step, and waits until everybody who is at one has made it or is blocked.
async fn step(players: &mut [Player; 2], at: usize, onlooker: &mut dyn Onlooker) {
    let player = &mut players[at];
    let step = player.next;
    if step == STEPS - 1 && player.end == End::Die {
        onlooker.kill(player.id).await;
    }
    player.go.send(step).expect("it plays");
    player.next += 1;
    player.is_busy = true;
    settle(players, onlooker).await;
}

async fn settle(players: &mut [Player; 2], onlooker: &mut dyn Onlooker) {
    let begun = Instant::now();
    loop {
        for player in players.iter_mut().filter(|player| player.is_busy) {
            match player.done.try_recv() {
                Ok(came) => player.heard(came),
                Err(mpsc::error::TryRecvError::Empty) => {}
                Err(mpsc::error::TryRecvError::Disconnected) => panic!("{} broke off", player.name),
            }
        }
        let mut waits = false;
        for player in players.iter().filter(|player| player.is_busy) {
            // One that is blocked by a side which is over, or not at a step, waits for good reason. Asked last, so that a
            // side which has gone on since is seen above.
            waits |= !onlooker.is_blocked(player.id).await;
        }
        if !waits {
            return;
        }
        assert!(begun.elapsed() < DEADLINE, "neither done nor blocked");
        tokio::task::yield_now().await;
    }
}

/// What may have become of the two, and what must be in the database then.
pub(crate) fn check(
    came: &[Came; 2],
    plan: Plan,
    may_restart: bool,
    effects: &[String],
    kept: Option<Outcome>,
) {
    let committed: Vec<&str> = [("A", &came[0]), ("B", &came[1])]
        .into_iter()
        .filter(|(_, came)| **came == Came::Ran(End::Commit))
        .map(|(name, _)| name)
        .collect();
    assert!(committed.len() <= 1, "both took effect");
    let expected: Vec<String> = committed.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(effects, expected, "what is there is what was committed");
    let outcome = committed.first().map(|name| Outcome::value((*name).to_owned()));
    assert_eq!(kept, outcome, "and a retry hears it");
    for came in came {
        match came {
            Came::Replayed(bytes) => {
                assert_eq!(Some(bytes.as_slice()), committed.first().map(|name| name.as_bytes()))
            }
            Came::InFlight => assert_eq!(plan.twin, Twin::Refuse, "who waits is never told in flight"),
            Came::Restart => assert!(may_restart, "no error at this level"),
            Came::Ran(_) => {}
        }
    }
    let is_excused = came.iter().any(|came| matches!(came, Came::InFlight | Came::Restart));
    assert!(is_excused || committed.len() == 1 || plan.end != End::Commit, "somebody took effect");
    if plan.end != End::Commit && !is_excused {
        assert_eq!(came[1], Came::Ran(End::Commit), "what never was is in nobody's way");
    }
}
