//! The program as a user starts it, through a real socket and a real PostgreSQL.

#[path = "../../../testbed/example.rs"]
mod example;

use example::{Call, Example};

fn post(path: &str, key: &str, body: &str) -> Call {
    Call::post(path, key).header("Content-Type", "application/json").body(body)
}

fn start() -> (Example, semel_testbed::Database) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let database = runtime.block_on(semel_testbed::postgres());
    let example = Example::start(env!("CARGO_BIN_EXE_payments-postgres"), &["127.0.0.1:0", database.url()]);
    (example, database)
}

#[test]
fn a_payment_is_made_once_and_its_answer_is_replayed() {
    let (example, _database) = start();
    let pay = post("/payments", "p-1", r#"{"account": 7, "amount": 1200}"#);
    let first = example.call(&pay);
    assert_eq!((first.status, first.is_replay()), (201, false), "{}", first.text());
    assert_eq!(first.json()["left"], 98_800);
    let again = example.call(&pay);
    assert_eq!((again.status, again.is_replay(), &again.body), (201, true, &first.body));
    let other = post("/payments", "p-1", r#"{"account": 7, "amount": 1}"#);
    assert_eq!(example.call(&other).code(), "key-reused");
    let more = example.call(&post("/payments", "p-2", r#"{"account": 7, "amount": 800}"#));
    assert_eq!(more.json()["left"], 98_000, "nothing was taken twice");
}

#[test]
fn x6_a_refusal_is_kept_and_leaves_nothing_else() {
    let (example, _database) = start();
    let much = post("/payments", "p-1", r#"{"account": 7, "amount": 1000000}"#);
    for is_replay in [false, true] {
        let refused = example.call(&much);
        assert_eq!((refused.status, refused.is_replay()), (402, is_replay), "{}", refused.text());
    }
    assert_eq!(example.call(&post("/payments", "p-2", "{}")).status, 422);
    let without = Call::new("POST", "/payments").header("Content-Type", "application/json").body("{}");
    assert_eq!(example.call(&without).code(), "key-missing");
}

#[test]
fn x5_an_order_is_paid_once_under_any_key() {
    let (example, _database) = start();
    let first = example.call(&post("/orders/1/pay", "o-1", ""));
    assert_eq!((first.status, first.is_replay()), (200, false), "{}", first.text());
    assert!(example.call(&post("/orders/1/pay", "o-1", "")).is_replay());
    let under_another = example.call(&post("/orders/1/pay", "o-2", ""));
    assert_eq!((under_another.status, under_another.is_replay()), (200, false), "it is there already");
    assert_eq!(example.call(&post("/orders/2/pay", "o-3", "")).status, 404);
    let balance = example.call(&post("/payments", "p-1", r#"{"account": 7, "amount": 500}"#));
    assert_eq!(balance.json()["left"], 97_000, "2,500 for the order, once");
}

#[test]
fn x5_stock_is_never_oversold() {
    let (example, _database) = start();
    let reserved: usize = std::thread::scope(|scope| {
        let callers: Vec<_> = (0..8_usize)
            .map(|caller| {
                let example = &example;
                scope.spawn(move || {
                    // Each key comes from two callers, and each asks for five of them.
                    let answers = (0..10).map(|number| {
                        let key = format!("r-{}", (caller / 2) * 10 + number);
                        loop {
                            let answer =
                                example.call(&post("/reservations", &key, r#"{"item": "lamp", "count": 1}"#));
                            if answer.status != 409 {
                                return (answer.status, answer.is_replay());
                            }
                        }
                    });
                    answers.filter(|answer| *answer == (201, false)).count()
                })
            })
            .collect();
        callers.into_iter().map(|caller| caller.join().expect("no panic")).sum()
    });
    assert_eq!(reserved, 20, "as many as there were, of 40 that were asked for twice");
}
