//! Two transactions with one key, in every order of their statements.
//!
//! 1. Each side makes its steps one by one, when it is told to. After each step the runner waits until the side has made
//!    it, or until the database itself says that the side waits for the other one. So nothing is proved by sleeping, and a
//!    schedule is what it says.
//! 2. The first side commits, rolls back, or dies in the place of any of its steps: its connection is killed, also while it
//!    waits for the other one.
//! 3. One in [`EVERY`] of the schedules is run, with `SEMEL_LONG` each. Connections are used again.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use semel::{BoxError, InTransaction, Once, Outcome, Run, TransactionError, Twin};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::operation::operation;

/// Longer than anything takes that is not stuck.
const DEADLINE: Duration = Duration::from_secs(60);

/// A prime, so that each plan has its share.
const EVERY: usize = 17;

/// A statement that waits for nobody takes less, mostly; whether it waits is asked only then.
const ANSWERED_WITHIN: Duration = Duration::from_millis(3);

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

    /// Who has had effects under a key.
    async fn effects(&mut self, key: &str) -> Vec<String>;

    /// What a retry hears.
    async fn kept(&mut self, key: &str) -> Option<Outcome>;
}

/// How a side ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Commit,
    Rollback,
    /// In the place of this step.
    Die(u32),
}

impl End {
    const ALL: [End; 6] =
        [End::Commit, End::Rollback, End::Die(1), End::Die(2), End::Die(3), End::Die(STEPS - 1)];

    /// How many steps a side makes that ends so, its death among them.
    fn steps(self) -> u32 {
        if let End::Die(step) = self { step + 1 } else { STEPS }
    }
}

/// What became of a side.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Came {
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
    /// Over, with the connection still usable.
    Over(R),
    Gone,
}

impl<R: Raw> Side<R> {
    /// Makes a step; gives what became of the side when it is over.
    async fn step(&mut self, step: u32) -> Result<Option<Came>, BoxError> {
        let state = std::mem::replace(&mut self.state, State::Gone);
        if self.end == End::Die(step) {
            return Ok(Some(Came::Ran(self.end)));
        }
        match (step, state) {
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
                    End::Die(_) => unreachable!("dead before"),
                }
                self.state = State::Over(raw);
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
        self.state = State::Over(raw);
        Ok(Some(came))
    }
}

fn is_restart<R: Raw>(error: &BoxError) -> bool {
    matches!(error.downcast_ref::<TransactionError>(), Some(TransactionError::Restart(_)))
        || R::is_restart(error)
}

/// A side that runs in a task of its own.
struct Player<R> {
    name: &'static str,
    id: i64,
    end: End,
    /// Steps that it may still be told to make.
    next: u32,
    is_busy: bool,
    is_killed: Arc<AtomicBool>,
    came: Option<Came>,
    go: mpsc::UnboundedSender<u32>,
    done: mpsc::UnboundedReceiver<Option<Came>>,
    task: JoinHandle<Option<R>>,
}

impl<R: Raw> Player<R> {
    fn start(side: Side<R>, id: i64) -> Player<R> {
        let (go, steps) = mpsc::unbounded_channel();
        let (tell, done) = mpsc::unbounded_channel();
        let (name, end, is_killed) = (side.name, side.end, Arc::new(AtomicBool::new(false)));
        let task = tokio::spawn(play(side, is_killed.clone(), steps, tell));
        Player { name, id, end, next: 0, is_busy: false, is_killed, came: None, go, done, task }
    }

    fn dies_next(&self) -> bool {
        self.end == End::Die(self.next)
    }

    /// Who waits for the other one can only die.
    fn may_step(&self) -> bool {
        self.came.is_none() && self.next < self.end.steps() && (!self.is_busy || self.dies_next())
    }

    fn heard(&mut self, came: Option<Came>) {
        self.is_busy = false;
        self.came = came;
    }

    /// What became of it, and its connection, if that can be used again.
    async fn over(self) -> (Came, Option<(R, i64)>) {
        let raw = self.task.await.expect("it played");
        (self.came.expect("it is over"), raw.map(|raw| (raw, self.id)))
    }
}

async fn play<R: Raw>(
    mut side: Side<R>,
    is_killed: Arc<AtomicBool>,
    mut steps: mpsc::UnboundedReceiver<u32>,
    tell: mpsc::UnboundedSender<Option<Came>>,
) -> Option<R> {
    while let Some(step) = steps.recv().await {
        let came = match side.step(step).await {
            Ok(came) => came,
            Err(_) if is_killed.load(Ordering::SeqCst) => Some(Came::Ran(side.end)),
            Err(error) if is_restart::<R>(&error) => Some(Came::Restart),
            Err(error) => panic!("{} failed at step {step}: {error:?}", side.name),
        };
        let is_over = came.is_some();
        if tell.send(came).is_err() || is_over {
            break;
        }
    }
    // What is not given back is dropped here, so that a side that is to begin anew has rolled back.
    match side.state {
        State::Over(raw) => Some(raw),
        _ => None,
    }
}

/// One order of the steps of two sides: `true` is the first side's.
struct Schedule(Vec<bool>);

impl Schedule {
    /// All of them, for a first side that ends so.
    fn all(end: End) -> Vec<Schedule> {
        let length = end.steps() + STEPS;
        (0..1_u32 << length)
            .filter(|bits| bits.count_ones() == end.steps())
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
struct Plan {
    begin: Begin,
    twin: Twin,
    /// How the first side ends; the second one commits.
    end: End,
    /// Whether the level has errors that ask for a new beginning.
    may_restart: bool,
}

/// Runs the schedules at each level, with every end and both ways of meeting a twin.
pub(crate) async fn all<R: Raw>(
    levels: &[(Begin, bool)],
    connect: impl AsyncFn() -> (R, i64),
    onlooker: &mut dyn Onlooker,
) {
    let every = if std::env::var_os("SEMEL_LONG").is_some() { 1 } else { EVERY };
    let (begun, mut number, mut ran) = (Instant::now(), 0, 0);
    let mut spare = Vec::new();
    for (plan, schedule) in plans(levels) {
        number += 1;
        if number % every != 0 {
            continue;
        }
        let mut sides = Vec::new();
        while sides.len() < 2 {
            sides.push(if let Some(side) = spare.pop() { side } else { connect().await });
        }
        let key = format!("key-{number}");
        let came = run(&schedule, plan, &key, sides, &mut spare, onlooker).await;
        eprintln!("{key} {plan:?} {schedule} {came:?}");
        check(&came, plan, &onlooker.effects(&key).await, onlooker.kept(&key).await);
        ran += 1;
    }
    eprintln!("{ran} of {number} schedules in {:?}", begun.elapsed());
}

fn plans(levels: &[(Begin, bool)]) -> Vec<(Plan, Schedule)> {
    let mut plans = Vec::new();
    for &(begin, may_restart) in levels {
        for end in End::ALL {
            for twin in [Twin::Wait, Twin::Refuse] {
                let plan = Plan { begin, twin, end, may_restart };
                plans.extend(Schedule::all(end).into_iter().map(|schedule| (plan, schedule)));
            }
        }
    }
    plans
}

/// Runs one schedule; gives what became of the two, and puts back the connections that are left.
async fn run<R: Raw>(
    schedule: &Schedule,
    plan: Plan,
    key: &str,
    sides: Vec<(R, i64)>,
    spare: &mut Vec<(R, i64)>,
    onlooker: &mut dyn Onlooker,
) -> [Came; 2] {
    let [(first, first_id), (second, second_id)] =
        <[_; 2]>::try_from(sides).unwrap_or_else(|_| panic!("two sides"));
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
    let [first, second] = players;
    let ((first, first_raw), (second, second_raw)) = (first.over().await, second.over().await);
    spare.extend(first_raw.into_iter().chain(second_raw));
    [first, second]
}

/// Tells a side to make its next step, and waits until everybody who is at one has made it or is blocked.
async fn step<R: Raw>(players: &mut [Player<R>; 2], at: usize, onlooker: &mut dyn Onlooker) {
    let player = &mut players[at];
    if player.dies_next() {
        player.is_killed.store(true, Ordering::SeqCst);
        onlooker.kill(player.id).await;
    }
    if !player.is_busy {
        player.go.send(player.next).expect("it plays");
        player.is_busy = true;
    }
    player.next += 1;
    settle(players, onlooker).await;
}

async fn settle<R: Raw>(players: &mut [Player<R>; 2], onlooker: &mut dyn Onlooker) {
    let begun = Instant::now();
    loop {
        for player in players.iter_mut().filter(|player| player.is_busy) {
            match tokio::time::timeout(ANSWERED_WITHIN, player.done.recv()).await {
                Ok(Some(came)) => player.heard(came),
                Ok(None) => panic!("{} broke off", player.name),
                Err(_) => {}
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
    }
}

/// What may have become of the two, and what must be in the database then.
fn check(came: &[Came; 2], plan: Plan, effects: &[String], kept: Option<Outcome>) {
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
            Came::Restart => assert!(plan.may_restart, "no error at this level"),
            Came::Ran(_) => {}
        }
    }
    let is_excused = came.iter().any(|came| matches!(came, Came::InFlight | Came::Restart));
    assert!(is_excused || committed.len() == 1 || plan.end != End::Commit, "somebody took effect");
    if plan.end != End::Commit && !is_excused {
        assert_eq!(came[1], Came::Ran(End::Commit), "what never was is in nobody's way");
    }
}
