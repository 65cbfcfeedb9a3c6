//! What two requests have alike, by route: H6.

use crate::assert::{refused, replayed};
use crate::configured;
use crate::support::{Call, Service};

fn json(key: &str, body: &str) -> Call {
    Call::post("/json", key).header("Content-Type", "application/json").body(body)
}

const TOML: &str = "[[route]]\nmatch = \"/json\"\nfingerprint = \"json\"\nignore = [\"/meta/attempt\"]\n\
                    [[route]]\nmatch = \"/files\"\nfingerprint = [\"json\", \"multipart\"]\n";

#[test]
fn c97_the_order_of_members_and_white_space_do_not_count_where_the_route_says_so() {
    let service = Service::plain();
    let gateway = configured(&service, TOML);
    let (first, _) = replayed(&gateway, &json("k", "{\"a\":1,\"b\":[1,2],\"meta\":{\"attempt\":1}}"));
    let again = gateway.call(&json("k", " { \"meta\":{ \"attempt\": 2 },\n\"b\" : [1, 2], \"a\":1}"));
    assert!(again.is_replay());
    assert_eq!(again.body, first.body);
    for other in
        ["{\"a\":1,\"b\":[2,1]}", "{\"a\":1.0,\"b\":[1,2]}", "{\"a\":1,\"b\":[1,2],\"c\":null}", "[]"]
    {
        refused(&gateway.call(&json("k", other)), 422, "key-reused", false, "none");
    }
    assert_eq!(service.ledger().effects_count(), 1);
}

#[test]
fn c24_numbers_are_compared_as_written_in_json_too() {
    let service = Service::plain();
    let gateway = configured(&service, TOML);
    gateway.call(&json("k", "{\"id\":9007199254740992}"));
    refused(&gateway.call(&json("k", "{\"id\":9007199254740993}")), 422, "key-reused", false, "none");
}

#[test]
fn h6_a_member_twice_is_refused_and_runs_nothing() {
    let service = Service::plain();
    let gateway = configured(&service, TOML);
    let answer = gateway.call(&json("k", "{\"a\":1,\"a\":2}"));
    assert_eq!(answer.status, 400, "{}", answer.text());
    assert_eq!(service.ledger().received_count(), 0);
    // A body that is no JSON is the service's business.
    assert_eq!(gateway.call(&json("l", "{\"a\":")).status, 201);
}

/// A request that passes by is not read: what it says is the service's business.
#[test]
fn h6_without_a_key_nothing_is_compared() {
    let service = Service::plain();
    let toml = "[[route]]\nmatch = \"/json\"\nfingerprint = \"json\"\nkey_field = \"json:/id\"\n";
    let gateway = configured(&service, toml);
    let deep = "[".repeat(200) + &"]".repeat(200);
    let without = Call::new("POST", "/json").header("Content-Type", "application/json");
    assert_eq!(gateway.call(&without.body("{\"a\":1}")).status, 201);
    assert_eq!(gateway.call(&json("k", &deep)).status, 400);
    assert_eq!(service.ledger().received_count(), 1);
}

#[test]
fn c16_the_boundary_of_multipart_does_not_count_where_the_route_says_so() {
    let service = Service::plain();
    let gateway = configured(&service, TOML);
    let upload = |boundary: &str, text: &str| {
        let part = format!(
            "--{boundary}\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.txt\"\r\n\
             Content-Type: text/plain\r\n\r\n{text}\r\n--{boundary}--\r\n"
        );
        let kind = format!("multipart/form-data; boundary={boundary}");
        Call::post("/files", "k").header("Content-Type", &kind).body(part)
    };
    gateway.call(&upload("one", "content"));
    assert!(gateway.call(&upload("another-one", "content")).is_replay());
    refused(&gateway.call(&upload("one", "Content")), 422, "key-reused", false, "none");
}

/// A deploy that switches a route to another comparison makes no false mismatch for what is on record.
#[test]
fn h6_a_record_is_compared_by_the_algorithm_that_made_it() {
    let service = Service::plain();
    let launch = crate::launch(service.address(), "");
    let gateway = launch.start();
    let body = "{\"a\":1,\"b\":2}";
    gateway.call(&json("old", body));
    std::fs::write(launch.directory().join("semel.toml"), TOML).unwrap();
    let gateway = gateway.restart();
    assert!(gateway.call(&json("old", body)).is_replay());
    refused(&gateway.call(&json("old", "{\"b\":2,\"a\":1}")), 422, "key-reused", false, "none");
    gateway.call(&json("new", body));
    std::fs::write(launch.directory().join("semel.toml"), "").unwrap();
    let gateway = gateway.restart();
    assert!(gateway.call(&json("new", "{\"b\":2,\"a\":1}")).is_replay());
    assert_eq!(service.ledger().effects_count(), 2);
}
