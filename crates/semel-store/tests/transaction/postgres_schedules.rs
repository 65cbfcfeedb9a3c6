//! Every order of the statements of two transactions with one key, on PostgreSQL: by both drivers, and in plain SQL.

use async_trait::async_trait;
use semel::{
    BoxError, Claim, ClaimRequest, Fence, InTransaction, Lease, Outcome, Purpose, Settlement,
    TransactionError, Twin, Was,
};
use semel_store::postgres::In;
use sqlx::{Connection, PgConnection};
use tokio_postgres::Client;

use crate::postgres::{Place, connect, is_blocked, outcome};
use crate::schedule::{self, Begin, Onlooker, Raw};

const LEVELS: [(Begin, bool); 3] = [
    (&["BEGIN ISOLATION LEVEL READ COMMITTED", "SELECT count(*) FROM effect"], false),
    (&["BEGIN ISOLATION LEVEL REPEATABLE READ", "SELECT count(*) FROM effect"], true),
    (&["BEGIN ISOLATION LEVEL SERIALIZABLE", "SELECT count(*) FROM effect"], true),
];

#[async_trait]
impl Raw for Client {
    type In = In<Client>;

    fn wrap(self) -> In<Client> {
        In::new(self)
    }

    async fn execute(&mut self, sql: &str) -> Result<(), BoxError> {
        Ok(self.batch_execute(sql).await?)
    }

    fn is_restart(error: &BoxError) -> bool {
        let code = error.downcast_ref::<tokio_postgres::Error>().and_then(|error| error.code());
        code.is_some_and(|code| code.code() == "40001")
    }
}

#[async_trait]
impl Raw for PgConnection {
    type In = In<PgConnection>;

    fn wrap(self) -> In<PgConnection> {
        In::new(self)
    }

    async fn execute(&mut self, sql: &str) -> Result<(), BoxError> {
        sqlx::raw_sql(sqlx::AssertSqlSafe(sql.to_owned())).execute(self).await?;
        Ok(())
    }

    fn is_restart(error: &BoxError) -> bool {
        let error = error.downcast_ref::<sqlx::Error>().and_then(|error| error.as_database_error());
        error.and_then(|error| error.code()).is_some_and(|code| code == "40001")
    }
}

/// A connection that speaks SQL as text, as a service in any language could.
struct Plain(Client);

/// The same verbs, spelled out.
#[derive(Debug)]
struct InPlain(Plain);

impl std::fmt::Debug for Plain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Plain")
    }
}

#[async_trait]
impl Raw for Plain {
    type In = InPlain;

    fn wrap(self) -> InPlain {
        InPlain(self)
    }

    async fn execute(&mut self, sql: &str) -> Result<(), BoxError> {
        Raw::execute(&mut self.0, sql).await
    }

    fn is_restart(error: &BoxError) -> bool {
        <Client as Raw>::is_restart(error)
    }
}

impl Plain {
    async fn ask(&self, sql: &str) -> Result<Vec<Option<String>>, TransactionError> {
        let messages =
            self.0.simple_query(sql).await.map_err(|error| match error.code().map(|code| code.code()) {
                Some("40001") => TransactionError::Restart(Box::new(error)),
                _ => TransactionError::Unavailable(Box::new(error)),
            })?;
        let row = messages.into_iter().find_map(|message| match message {
            tokio_postgres::SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        });
        let row = row.expect("a row");
        Ok((0..row.len()).map(|at| row.get(at).map(str::to_owned)).collect())
    }
}

#[async_trait]
impl InTransaction for InPlain {
    type Handle = Plain;

    fn handle(&self) -> &Plain {
        &self.0
    }

    fn handle_mut(&mut self) -> &mut Plain {
        &mut self.0
    }

    fn into_handle(self) -> Plain {
        self.0
    }

    async fn claim_in(
        &mut self,
        requests: &[ClaimRequest],
        twin: Twin,
    ) -> Result<Vec<Claim>, TransactionError> {
        let request = &requests[0];
        let twin = if twin == Twin::Wait { "wait" } else { "refuse" };
        let Purpose::Run { fingerprint, .. } = &request.purpose else { panic!("it runs") };
        let digest: String = fingerprint.digest.iter().map(|byte| format!("{byte:02x}")).collect();
        let sql = format!(
            "SELECT claim, fence, convert_from(outcome, 'UTF8') FROM semel.once('{}', '{}', '{}', '\\x{digest}', '{twin}')",
            request.scope.as_str(),
            request.key.as_str(),
            request.attempt
        );
        let row = self.0.ask(&sql).await?;
        let age = std::time::Duration::ZERO;
        Ok(vec![match row[0].as_deref() {
            Some("acquired") => Claim::Acquired(Lease {
                scope: request.scope.clone(),
                key: request.key.clone(),
                fence: Fence(row[1].as_deref().and_then(|fence| fence.parse().ok()).expect("a fence")),
                attempt: request.attempt,
                attempts: 1,
                was: Was::New,
                doubt: false,
            }),
            Some("completed") => Claim::Completed {
                outcome: Outcome::value(row[2].clone().expect("an outcome")),
                age,
                attempts: 1,
            },
            Some("in-flight") => Claim::InFlight { retry_after: age, age },
            other => panic!("{other:?}"),
        }])
    }

    async fn settle_in(&mut self, settled: &[(Lease, Settlement)]) -> Result<(), TransactionError> {
        let (lease, settlement) = &settled[0];
        let Settlement::Complete { outcome, .. } = settlement else { panic!("it completes") };
        let text = String::from_utf8(outcome.bytes.to_vec()).expect("text");
        let sql = format!(
            "SELECT semel.complete('{}', '{}', {}, '{}', '{text}')",
            lease.scope.as_str(),
            lease.key.as_str(),
            lease.fence.0,
            lease.attempt
        );
        self.0.ask(&sql).await.map(drop)
    }
}

/// An onlooker, and a reader.
struct Control(Client, Client);

#[async_trait]
impl Onlooker for Control {
    async fn is_blocked(&mut self, id: i64) -> bool {
        is_blocked(&self.0, i32::try_from(id).expect("a pid")).await
    }

    async fn kill(&mut self, id: i64) {
        let sql = "SELECT pg_terminate_backend($1, 60000)";
        let id = i32::try_from(id).expect("a pid");
        assert!(self.0.query_one(sql, &[&id]).await.expect("an answer").get::<_, bool>(0), "it has ended");
    }

    async fn effects(&mut self, key: &str) -> Vec<String> {
        let sql =
            "SELECT substr(name, length($1) + 2) FROM effect WHERE starts_with(name, $1 || ':') ORDER BY id";
        self.1.query(sql, &[&key]).await.expect("rows").iter().map(|row| row.get(0)).collect()
    }

    async fn kept(&mut self, key: &str) -> Option<Outcome> {
        outcome(&mut self.1, key).await
    }
}

async fn by_tokio(url: &str) -> (Client, i64) {
    let client = connect(url).await;
    let pid: i32 = client.query_one("SELECT pg_backend_pid()", &[]).await.expect("a pid").get(0);
    (client, i64::from(pid))
}

async fn by_sqlx(url: &str) -> (PgConnection, i64) {
    let mut connection = PgConnection::connect(url).await.expect("a connection");
    let pid: i32 =
        sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(&mut connection).await.expect("a pid");
    (connection, i64::from(pid))
}

async fn in_sql(url: &str) -> (Plain, i64) {
    let (client, pid) = by_tokio(url).await;
    (Plain(client), pid)
}

async fn all<R: Raw>(connect: impl AsyncFn(&str) -> (R, i64)) {
    let place = Place::new().await;
    let url = place.database.url();
    let mut control = Control(crate::postgres::connect(url).await, crate::postgres::connect(url).await);
    schedule::all(&LEVELS, async || connect(url).await, &mut control).await;
}

#[tokio::test]
async fn x4_every_order_of_two_transactions_by_tokio_postgres() {
    all(by_tokio).await;
}

#[tokio::test]
async fn x4_every_order_of_two_transactions_by_sqlx() {
    all(by_sqlx).await;
}

#[tokio::test]
async fn x4_every_order_of_two_transactions_in_plain_sql() {
    all(in_sql).await;
}
