//! A ledger that must come out exact: workers, connections and the server die at random, deliveries come more than once,
//! and at the end each account has the sum of its distinct operations.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use semel::testing::Random;
use semel::{BoxError, Outcome};
use tokio::task::JoinHandle;

const WORKERS: usize = 16;
const ACCOUNTS: u64 = 20;

/// One operation: adds the amount to the account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Deposit {
    pub(crate) key: String,
    pub(crate) account: i64,
    pub(crate) amount: i64,
}

impl Deposit {
    pub(crate) fn receipt(&self) -> Outcome {
        Outcome::value(format!("{} to {}", self.amount, self.account))
    }
}

/// A bank over some database.
#[async_trait]
pub(crate) trait Bank: Send + Sync + 'static {
    type Connection: Send + 'static;

    async fn connect(&self) -> Result<Self::Connection, BoxError>;

    /// Makes the deposit in one transaction, or hears what it was answered. `None`: not now.
    async fn deposit(
        &self,
        connection: &mut Self::Connection,
        deposit: &Deposit,
    ) -> Result<Option<Outcome>, BoxError>;

    /// Ends some connection of a worker's, if the server is there.
    async fn kill_connection(&self, random: u64);

    /// Ends the server, at once, and starts it again.
    async fn kill_server(&self);

    async fn balances(&self) -> BTreeMap<i64, i64>;
}

/// What is still to be delivered, and what has been.
struct Desk {
    deliveries: Mutex<VecDeque<Deposit>>,
    delivered: AtomicU64,
    answers: Mutex<BTreeMap<String, Outcome>>,
    strange: Mutex<Vec<String>>,
}

impl Desk {
    fn take(&self) -> Option<Deposit> {
        self.deliveries.lock().expect("the desk").pop_front()
    }

    fn back(&self, deposit: Deposit) {
        self.deliveries.lock().expect("the desk").push_front(deposit);
    }

    fn heard(&self, deposit: &Deposit, outcome: Outcome) {
        if outcome != deposit.receipt() {
            self.strange.lock().expect("the desk").push(format!("{deposit:?} was answered {outcome:?}"));
        }
        self.answers.lock().expect("the desk").insert(deposit.key.clone(), outcome);
        self.delivered.fetch_add(1, Ordering::SeqCst);
    }
}

/// A worker, and what it has in hand: whoever ends it gives that back.
struct Worker {
    task: JoinHandle<()>,
    hand: Arc<Mutex<Option<Deposit>>>,
}

impl Worker {
    fn start<B: Bank>(bank: Arc<B>, desk: Arc<Desk>) -> Worker {
        let hand = Arc::new(Mutex::new(None));
        let task = tokio::spawn(work(bank, desk, Arc::clone(&hand)));
        Worker { task, hand }
    }

    /// Dies wherever it is.
    async fn kill(self, desk: &Desk) {
        self.task.abort();
        if let Err(error) = self.task.await
            && error.is_panic()
        {
            std::panic::resume_unwind(error.into_panic());
        }
        if let Some(deposit) = self.hand.lock().expect("the hand").take() {
            desk.back(deposit);
        }
    }
}

async fn work<B: Bank>(bank: Arc<B>, desk: Arc<Desk>, hand: Arc<Mutex<Option<Deposit>>>) {
    let mut connection = None;
    loop {
        let Some(deposit) = desk.take() else { return };
        *hand.lock().expect("the hand") = Some(deposit.clone());
        let done = match &mut connection {
            Some(open) => bank.deposit(open, &deposit).await,
            None => match bank.connect().await {
                Ok(opened) => bank.deposit(connection.insert(opened), &deposit).await,
                Err(error) => Err(error),
            },
        };
        hand.lock().expect("the hand").take();
        match done {
            Ok(Some(outcome)) => desk.heard(&deposit, outcome),
            Ok(None) => desk.back(deposit),
            Err(_) => {
                connection = None;
                desk.back(deposit);
                // The server may be down: no proof hangs on this, only the noise.
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    }
}

/// Delivers everything while everybody dies, and compares.
pub(crate) async fn run<B: Bank>(bank: B, operations: u64, seed: u64) {
    eprintln!("seed {seed}");
    let mut random = Random::new(seed);
    let deposits = deposits(operations, &mut random);
    let mut expected: BTreeMap<i64, i64> = (0..ACCOUNTS.cast_signed()).map(|account| (account, 0)).collect();
    let distinct: BTreeMap<_, _> = deposits.iter().map(|deposit| (deposit.key.clone(), deposit)).collect();
    distinct.values().for_each(|deposit| *expected.entry(deposit.account).or_default() += deposit.amount);
    let (distinct, all) = (distinct.len(), deposits.len() as u64);
    let desk = Arc::new(Desk {
        deliveries: Mutex::new(deposits.into()),
        delivered: AtomicU64::new(0),
        answers: Mutex::default(),
        strange: Mutex::default(),
    });
    let bank = Arc::new(bank);
    let mut workers: Vec<_> =
        (0..WORKERS).map(|_| Worker::start(Arc::clone(&bank), Arc::clone(&desk))).collect();
    let (mut deaths, mut next, mut next_server) = (0, 20, all / 3);
    while desk.delivered.load(Ordering::SeqCst) < all {
        let delivered = desk.delivered.load(Ordering::SeqCst);
        if delivered >= next_server {
            bank.kill_server().await;
            next_server += all / 3;
        }
        let at = usize::try_from(random.below(WORKERS as u64)).expect("small");
        if delivered >= next {
            next = delivered + 10 + random.below(40);
            deaths += 1;
            if random.below(2) == 0 {
                bank.kill_connection(random.below(u64::MAX)).await;
            } else {
                let fresh = Worker::start(Arc::clone(&bank), Arc::clone(&desk));
                std::mem::replace(&mut workers[at], fresh).kill(&desk).await;
            }
        }
        // One that found the desk empty while another had something in hand.
        if workers[at].task.is_finished() {
            let fresh = Worker::start(Arc::clone(&bank), Arc::clone(&desk));
            std::mem::replace(&mut workers[at], fresh).kill(&desk).await;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(deaths > 10, "somebody died");
    assert_eq!(*desk.strange.lock().expect("the desk"), Vec::<String>::new());
    assert_eq!(desk.answers.lock().expect("the desk").len(), distinct);
    assert_eq!(bank.balances().await, expected, "seed {seed}");
    eprintln!("{all} deliveries of {distinct} operations, {deaths} deaths");
}

/// Three in ten are one that was delivered before.
fn deposits(operations: u64, random: &mut Random) -> Vec<Deposit> {
    let mut deposits: Vec<Deposit> = Vec::new();
    for number in 0..operations {
        let again = (random.below(10) < 3 && !deposits.is_empty())
            .then(|| deposits[usize::try_from(random.below(deposits.len() as u64)).expect("small")].clone());
        deposits.push(again.unwrap_or_else(|| Deposit {
            key: format!("deposit-{number}"),
            account: random.below(ACCOUNTS).cast_signed(),
            amount: 1 + random.below(1_000).cast_signed(),
        }));
    }
    deposits
}

pub(crate) fn operations() -> u64 {
    if std::env::var_os("SEMEL_LONG").is_some() { 20_000 } else { 1_500 }
}

pub(crate) fn seed() -> u64 {
    std::env::var("SEMEL_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(6)
}
