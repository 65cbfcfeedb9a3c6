//! What a key in the caller's own transaction costs on PostgreSQL: the measured part of `./bench same-transaction`.
//!
//! `cargo run --release -p semel-store --features sqlx-postgres --example transaction URL LIBRARY WHAT [CALLERS] [SECONDS]`
//!
//! 1. `LIBRARY` is `tokio-postgres` or `sqlx`. Each caller has one connection, and one transaction after the other on it;
//!    statements of one's own are prepared once, as both libraries' users have them.
//! 2. `WHAT` is `alone` (BEGIN, a payment from one of 10,000 accounts and its receipt, COMMIT), `by-hand` (the same with a
//!    table of keys: INSERT … ON CONFLICT DO NOTHING before it and UPDATE of the outcome after it), `semel` (the same with
//!    `once` and `complete`), or `duplicates` (`once` of a completed key, and ROLLBACK). With tokio-postgres Semel's statements
//!    are prepared too, and BEGIN and COMMIT go along with them, as `Statements` has it.
//! 3. Before it begins, receipts are emptied, accounts vacuumed and a checkpoint made, so every turn finds the same.
//! 4. Afterwards there must be as many receipts as committed payments, and as much money as before: a measurement that
//!    paid twice, or not at all, fails.
//!
//! Three lines are printed: `begun`, `ended`, for whoever watches the server meanwhile; and transactions a second, the
//! latency of one, p50, p99 and the longest, in µs, and this process's processor time for each, in µs.

use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use semel::{
    Algorithm, AttemptId, BoxError, Entropy, Fingerprint, Key, OnUnknown, Once, Operation, Policy, Scope,
    Twin,
};
use semel_store::postgres::{self, Statements, complete_and_commit};
use sqlx::{Connection, PgConnection};
use tokio::sync::Barrier;
use tokio_postgres::{Client, NoTls, Statement};

const ACCOUNTS: u64 = 10_000;
const AMOUNT: i64 = 12;
/// How many transactions each connection has made before the clock starts: PostgreSQL plans for each anew, and for good
/// after five. For `duplicates`, as many keys are completed so.
const WARM: usize = 10;
/// What is answered, and kept for retries: as long in every table.
const ANSWER: [u8; 320] = [b'x'; 320];
const DIGEST: [u8; 32] = [7; 32];

const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS account (id bigint PRIMARY KEY, balance bigint NOT NULL);
    INSERT INTO account SELECT id, 1000000 FROM generate_series(0, 9999) AS id ON CONFLICT DO NOTHING;
    CREATE TABLE IF NOT EXISTS receipt (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, account bigint NOT NULL,
        amount bigint NOT NULL, payment text NOT NULL);
    CREATE TABLE IF NOT EXISTS own_key (key text PRIMARY KEY, digest bytea NOT NULL, outcome bytea,
        made_at timestamptz NOT NULL DEFAULT now(), done_at timestamptz);
    TRUNCATE receipt";
const MONEY: &str = "SELECT (SELECT sum(balance) FROM account)::bigint, (SELECT count(*) FROM receipt)";

const PAY: &str = "UPDATE account SET balance = balance - $1 WHERE id = $2";
const RECEIPT: &str = "INSERT INTO receipt (account, amount, payment) VALUES ($1, $2, $3)";
const OWN_CLAIM: &str = "INSERT INTO own_key (key, digest) VALUES ($1, $2) ON CONFLICT (key) DO NOTHING";
const OWN_COMPLETE: &str = "UPDATE own_key SET outcome = $2, done_at = now() WHERE key = $1";

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, library, what, rest @ ..] = arguments.as_slice() else {
        return Err("the arguments are: URL LIBRARY WHAT [CALLERS] [SECONDS]".into());
    };
    let what = What::of(what)?;
    let callers = rest.first().map_or(Ok(16), |text| text.parse())?;
    let time = Duration::from_secs(rest.get(1).map_or(Ok(3), |text| text.parse())?);

    semel_store::migrations(url)?.migrate().await?;
    let control = client(url).await?;
    control.batch_execute(TABLES).await?;
    let mut tellers = tellers(url, library, callers).await?;
    let duplicates = warm(&mut tellers, what).await?;
    control.batch_execute("VACUUM account").await?;
    control.batch_execute("CHECKPOINT").await?;
    let before = money(&control).await?;

    say("begun")?;
    let processor = processor_seconds();
    let (took, elapsed) = measure(tellers, duplicates, what, time).await?;
    let processor = processor_seconds() - processor;

    let paid = if what == What::Duplicates { 0 } else { i64::try_from(took.len())? };
    let after = money(&control).await?;
    if after != (before.0 - paid * AMOUNT, before.1 + paid) {
        return Err(format!("{paid} payments made of {before:?} (money, receipts) {after:?}").into());
    }
    say(&line(took, elapsed, processor))
}

fn say(line: &str) -> Result<(), BoxError> {
    Ok(writeln!(std::io::stdout(), "{line}")?)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Alone,
    ByHand,
    Semel,
    Duplicates,
}

impl What {
    fn of(text: &str) -> Result<What, BoxError> {
        Ok(match text {
            "alone" => What::Alone,
            "by-hand" => What::ByHand,
            "semel" => What::Semel,
            "duplicates" => What::Duplicates,
            _ => return Err(format!("{text:?} is none of alone, by-hand, semel and duplicates").into()),
        })
    }
}

/// What is asked for.
struct Payment {
    account: i64,
    key: String,
}

impl Payment {
    fn random(entropy: &Entropy) -> Payment {
        let random = AttemptId::random(entropy);
        let account = u128::from_le_bytes(random.0) % u128::from(ACCOUNTS);
        Payment { account: i64::try_from(account).expect("small"), key: random.to_string() }
    }

    fn operation(&self, policy: &Arc<Policy>) -> Operation {
        let fingerprint = Fingerprint { algorithm: Algorithm::EXACT, digest: DIGEST };
        let scope = Scope::new("http:default:anonymous").expect("a scope");
        Operation::new(scope, Key::new(self.key.as_str()).expect("a key"), fingerprint, Arc::clone(policy))
    }
}

/// A connection on which payments are made, each in a transaction of its own.
#[async_trait]
trait Teller: Send {
    async fn alone(&mut self, payment: &Payment) -> Result<(), BoxError>;
    async fn by_hand(&mut self, payment: &Payment) -> Result<(), BoxError>;
    async fn semel(&mut self, payment: &Payment, operation: &Operation) -> Result<(), BoxError>;
    async fn duplicate(&mut self, operation: &Operation) -> Result<(), BoxError>;
}

struct InTokioPostgres {
    client: Client,
    semel: Statements,
    pay: Statement,
    receipt: Statement,
    own_claim: Statement,
    own_complete: Statement,
}

impl InTokioPostgres {
    async fn connect(url: &str) -> Result<InTokioPostgres, BoxError> {
        let client = client(url).await?;
        Ok(InTokioPostgres {
            semel: Statements::prepare(&client).await?,
            pay: client.prepare(PAY).await?,
            receipt: client.prepare(RECEIPT).await?,
            own_claim: client.prepare(OWN_CLAIM).await?,
            own_complete: client.prepare(OWN_COMPLETE).await?,
            client,
        })
    }
}

#[async_trait]
impl Teller for InTokioPostgres {
    async fn alone(&mut self, payment: &Payment) -> Result<(), BoxError> {
        let tx = self.client.transaction().await?;
        tx.execute(&self.pay, &[&AMOUNT, &payment.account]).await?;
        tx.execute(&self.receipt, &[&payment.account, &AMOUNT, &payment.key]).await?;
        Ok(tx.commit().await?)
    }

    async fn by_hand(&mut self, payment: &Payment) -> Result<(), BoxError> {
        let tx = self.client.transaction().await?;
        if tx.execute(&self.own_claim, &[&payment.key, &DIGEST.as_slice()]).await? == 0 {
            return Err("a fresh key was taken".into());
        }
        tx.execute(&self.pay, &[&AMOUNT, &payment.account]).await?;
        tx.execute(&self.receipt, &[&payment.account, &AMOUNT, &payment.key]).await?;
        tx.execute(&self.own_complete, &[&payment.key, &ANSWER.as_slice()]).await?;
        Ok(tx.commit().await?)
    }

    async fn semel(&mut self, payment: &Payment, operation: &Operation) -> Result<(), BoxError> {
        let once = self.semel.once(&mut self.client, operation, Twin::Refuse).await?;
        let Once::Run(run) = once else {
            return Err("a fresh key was taken".into());
        };
        run.execute(&self.pay, &[&AMOUNT, &payment.account]).await?;
        run.execute(&self.receipt, &[&payment.account, &AMOUNT, &payment.key]).await?;
        Ok(complete_and_commit(run, ANSWER.to_vec()).await?)
    }

    async fn duplicate(&mut self, operation: &Operation) -> Result<(), BoxError> {
        let once = self.semel.once(&mut self.client, operation, Twin::Refuse).await?;
        let Once::Replay { outcome, tx, .. } = once else {
            return Err("a completed key is not replayed".into());
        };
        assert_eq!(outcome.bytes, ANSWER.as_slice());
        Ok(tx.rollback().await?)
    }
}

struct InSqlx(PgConnection);

#[async_trait]
impl Teller for InSqlx {
    async fn alone(&mut self, payment: &Payment) -> Result<(), BoxError> {
        let mut tx = self.0.begin().await?;
        pay(&mut tx, payment).await?;
        Ok(tx.commit().await?)
    }

    async fn by_hand(&mut self, payment: &Payment) -> Result<(), BoxError> {
        let mut tx = self.0.begin().await?;
        let claim = sqlx::query(OWN_CLAIM).bind(&payment.key).bind(DIGEST.as_slice());
        if claim.execute(&mut *tx).await?.rows_affected() == 0 {
            return Err("a fresh key was taken".into());
        }
        pay(&mut tx, payment).await?;
        sqlx::query(OWN_COMPLETE).bind(&payment.key).bind(ANSWER.as_slice()).execute(&mut *tx).await?;
        Ok(tx.commit().await?)
    }

    async fn semel(&mut self, payment: &Payment, operation: &Operation) -> Result<(), BoxError> {
        let tx = self.0.begin().await?;
        let Once::Run(mut run) = postgres::once(tx, operation, Twin::Refuse).await? else {
            return Err("a fresh key was taken".into());
        };
        pay(&mut run, payment).await?;
        Ok(run.complete(ANSWER.to_vec()).await?.commit().await?)
    }

    async fn duplicate(&mut self, operation: &Operation) -> Result<(), BoxError> {
        let tx = self.0.begin().await?;
        let Once::Replay { outcome, tx, .. } = postgres::once(tx, operation, Twin::Refuse).await? else {
            return Err("a completed key is not replayed".into());
        };
        assert_eq!(outcome.bytes, ANSWER.as_slice());
        Ok(tx.rollback().await?)
    }
}

async fn pay(connection: &mut PgConnection, payment: &Payment) -> Result<(), BoxError> {
    sqlx::query(PAY).bind(AMOUNT).bind(payment.account).execute(&mut *connection).await?;
    let receipt = sqlx::query(RECEIPT).bind(payment.account).bind(AMOUNT).bind(&payment.key);
    receipt.execute(connection).await?;
    Ok(())
}

async fn client(url: &str) -> Result<Client, BoxError> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

async fn tellers(url: &str, library: &str, callers: usize) -> Result<Vec<Box<dyn Teller>>, BoxError> {
    let mut tellers: Vec<Box<dyn Teller>> = Vec::new();
    for _ in 0..callers {
        tellers.push(match library {
            "tokio-postgres" => Box::new(InTokioPostgres::connect(url).await?),
            "sqlx" => Box::new(InSqlx(PgConnection::connect(url).await?)),
            other => return Err(format!("{other:?} is neither tokio-postgres nor sqlx").into()),
        });
    }
    Ok(tellers)
}

/// Warms each connection. Gives for `duplicates` the completed keys of each teller, else none.
async fn warm(tellers: &mut [Box<dyn Teller>], what: What) -> Result<Vec<Vec<Payment>>, BoxError> {
    let (entropy, policy) = (Entropy::system(), policy());
    let mut keys = Vec::new();
    for teller in tellers {
        let mine: Vec<_> = (0..WARM).map(|_| Payment::random(&entropy)).collect();
        for payment in &mine {
            run(teller.as_mut(), payment, what, &policy).await?;
        }
        if what == What::Duplicates {
            for payment in &mine {
                teller.duplicate(&payment.operation(&policy)).await?;
            }
            keys.push(mine);
        }
    }
    Ok(keys)
}

/// One fresh payment.
async fn run(
    teller: &mut dyn Teller,
    payment: &Payment,
    what: What,
    policy: &Arc<Policy>,
) -> Result<(), BoxError> {
    match what {
        What::Alone => teller.alone(payment).await,
        What::ByHand => teller.by_hand(payment).await,
        What::Semel | What::Duplicates => teller.semel(payment, &payment.operation(policy)).await,
    }
}

/// How long each transaction took, and all of them. The clock starts when every caller is ready.
async fn measure(
    tellers: Vec<Box<dyn Teller>>,
    mut duplicates: Vec<Vec<Payment>>,
    what: What,
    time: Duration,
) -> Result<(Vec<Duration>, Duration), BoxError> {
    let barrier = Arc::new(Barrier::new(tellers.len() + 1));
    let tasks: Vec<_> = tellers
        .into_iter()
        .map(|teller| {
            let mine = duplicates.pop().unwrap_or_default();
            tokio::spawn(caller(teller, mine, what, Arc::clone(&barrier), time))
        })
        .collect();
    barrier.wait().await;
    let begun = Instant::now();
    let (mut took, mut open) = (Vec::new(), Vec::new());
    for task in tasks {
        let (mine, teller) = task.await??;
        took.extend(mine);
        open.push(teller);
    }
    let elapsed = begun.elapsed();
    // Said while they are open: what a server's process has used is not to be read while it ends.
    say("ended")?;
    Ok((took, elapsed))
}

async fn caller(
    mut teller: Box<dyn Teller>,
    duplicates: Vec<Payment>,
    what: What,
    barrier: Arc<Barrier>,
    time: Duration,
) -> Result<(Vec<Duration>, Box<dyn Teller>), BoxError> {
    let (entropy, policy) = (Entropy::system(), policy());
    let mut duplicates = duplicates.iter().cycle();
    let mut took = Vec::new();
    barrier.wait().await;
    let until = Instant::now() + time;
    while Instant::now() < until {
        let begun = Instant::now();
        if let Some(payment) = duplicates.next() {
            teller.duplicate(&payment.operation(&policy)).await?;
        } else {
            run(teller.as_mut(), &Payment::random(&entropy), what, &policy).await?;
        }
        took.push(begun.elapsed());
    }
    Ok((took, teller))
}

fn policy() -> Arc<Policy> {
    Arc::new(Policy::new(OnUnknown::Park))
}

async fn money(control: &Client) -> Result<(i64, i64), BoxError> {
    let row = control.query_one(MONEY, &[]).await?;
    Ok((row.try_get(0)?, row.try_get(1)?))
}

fn line(mut took: Vec<Duration>, elapsed: Duration, processor: f64) -> String {
    took.sort();
    let at = |share: f64| took[((took.len() - 1) as f64 * share) as usize].as_micros();
    let rate = took.len() as f64 / elapsed.as_secs_f64();
    format!("{rate:.1} {} {} {} {:.1}", at(0.5), at(0.99), at(1.0), processor / took.len() as f64 * 1e6)
}

/// User and system time of this process, where the system tells.
fn processor_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks: f64 = fields.iter().skip(11).take(2).filter_map(|field| field.parse::<f64>().ok()).sum();
    ticks / 100.0
}
