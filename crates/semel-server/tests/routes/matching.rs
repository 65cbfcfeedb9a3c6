//! Which route holds: H3, and the choices of H9 and H11 by route.

use crate::assert::{in_flight, plain, refused, replayed};
use crate::support::{Call, Gate, Launch, Plan, Reply, Service};
use crate::{configured, launch};

fn post(path: &str, key: &str) -> Call {
    Call::post(path, key).body("{}")
}

#[test]
fn h3_a_path_that_matches_no_route_as_written_is_guarded_with_the_defaults() {
    let service = Service::plain();
    let gateway = configured(&service, "[[route]]\nmatch = \"/charge\"\nkey = \"natural\"\n");
    let (first, second) = (gateway.call(&post("/charge", "k")), gateway.call(&post("/charge", "k")));
    assert!(!first.is_replay() && !second.is_replay(), "natural passes by");
    for (number, path) in ["//charge", "/%63harge", "/charge/", "/Charge", "/x/../charge"].iter().enumerate()
    {
        replayed(&gateway, &post(path, &format!("k-{number}")));
    }
    assert_eq!(service.ledger().effects_count(), 2 + 5);
}

#[test]
fn h3_methods_are_chosen_by_route() {
    let service = Service::plain();
    let toml = "[[route]]\nmatch = \"/things/{id}\"\nmethods = [\"PUT\", \"DELETE\"]\n";
    let gateway = configured(&service, toml);
    let call = |method, key| Call::new(method, "/things/7").header("Idempotency-Key", key).body("x");
    replayed(&gateway, &call("PUT", "p"));
    replayed(&gateway, &call("DELETE", "d"));
    gateway.call(&call("POST", "o"));
    assert!(!gateway.call(&call("POST", "o")).is_replay(), "the route guards no POST");
}

#[test]
fn g2_several_services_by_route_and_by_host() {
    let (one, two, three) = (Service::plain(), Service::plain(), Service::plain());
    let toml = format!(
        "[[route]]\nmatch = \"/two/*\"\nupstream = \"http://{}\"\n\
         [[route]]\nmatch = \"/*\"\nhost = \"three.example\"\nupstream = \"http://{}\"\n",
        two.address(),
        three.address()
    );
    let gateway = configured(&one, &toml);
    gateway.call(&post("/two/a", "a"));
    gateway.call(&Call::new("GET", "/two/b"));
    gateway.call(&post("/else", "b"));
    gateway.call(&post("/else", "c").header("Host", "Three.example:80"));
    let counts = [&one, &two, &three].map(|service| service.ledger().received_count());
    assert_eq!(counts, [1, 2, 1]);
}

#[test]
fn h3_two_routes_of_one_path_differ_in_their_methods() {
    let (one, two) = (Service::plain(), Service::plain());
    let toml = format!(
        "[[route]]\nmatch = \"/a\"\nmethods = [\"POST\"]\nkey = \"required\"\n\
         [[route]]\nmatch = \"/a\"\nmethods = [\"PUT\"]\nupstream = \"http://{}\"\n",
        two.address()
    );
    let gateway = configured(&one, &toml);
    refused(&gateway.call(&Call::new("POST", "/a").body("x")), 400, "key-missing", false, "none");
    assert_eq!(gateway.call(&Call::new("PUT", "/a").body("x")).status, 201);
    assert_eq!((one.ledger().received_count(), two.ledger().received_count()), (0, 1));
}

/// The same key on two routes is one key: the path is part of what was asked for.
#[test]
fn h5_a_key_is_unique_over_all_routes() {
    let service = Service::plain();
    let gateway = configured(&service, "[[route]]\nmatch = \"/a\"\n[[route]]\nmatch = \"/b\"\n");
    gateway.call(&post("/a", "shared"));
    refused(&gateway.call(&post("/b", "shared")), 422, "key-reused", false, "none");
}

#[test]
fn h9_the_statuses_of_in_flight_and_of_a_reused_key_are_chosen_by_route() {
    let service = Service::plain();
    let toml = "[[route]]\nmatch = \"/early\"\nin_flight_status = 425\nmismatch_status = 409\n";
    let gateway = configured(&service, toml);
    for (path, status) in [("/early", 425), ("/else", 409)] {
        let gate = Gate::new();
        service.next(Plan::behind(&gate));
        let call = post(path, path);
        let first = gateway.call_aside(&call);
        service.ledger().wait_received(1 + usize::from(path == "/else"));
        assert_eq!(gateway.call(&call).status, status, "{path}");
        if path == "/else" {
            in_flight(&gateway.call(&call));
        }
        gate.open();
        first.join().unwrap();
    }
    refused(&gateway.call(&post("/early", "/early").body("other")), 409, "key-reused", false, "none");
}

#[test]
fn h11_the_lists_and_presets_are_chosen_by_route() {
    let service = Service::start(|request| {
        let status = request.target.rsplit('/').next().unwrap().parse().unwrap();
        Plan { reply: Reply::new(status, "said"), ..Plan::default() }
    });
    let toml = "[[route]]\nmatch = \"/cautious/{status}\"\npreset = \"cautious\"\n\
                [[route]]\nmatch = \"/stripe/{status}\"\npreset = \"stripe\"\n\
                [[route]]\nmatch = \"/own/{status}\"\nkept = [409, 500]\nreleased = [404]\nunknown = [200]\n";
    let gateway = configured(&service, toml);
    for (path, state) in [
        ("/default/500", "released"),
        ("/default/404", "completed"),
        ("/cautious/500", "unknown"),
        ("/cautious/503", "unknown"),
        ("/cautious/409", "released"),
        ("/stripe/500", "completed"),
        ("/stripe/503", "unknown"),
        ("/own/409", "completed"),
        ("/own/500", "completed"),
        ("/own/404", "released"),
        ("/own/200", "unknown"),
    ] {
        let key = path.replacen('/', "k-", 1).replace('/', "-");
        gateway.call(&post(path, &key));
        assert_eq!(gateway.operator().show(&key).unwrap().state, state, "{path}");
    }
}

#[test]
fn k8_attempts_are_bounded_by_route() {
    let service = Service::doing(Plan { reply: Reply::new(500, "no"), effect: false, ..Plan::default() });
    let gateway = configured(&service, "[[route]]\nmatch = \"/a\"\nattempts_max = 2\n");
    assert_eq!([0; 2].map(|_| gateway.call(&post("/a", "k")).status), [500, 500]);
    refused(&gateway.call(&post("/a", "k")), 409, "attempts-exhausted", false, "unknown");
    assert_eq!(service.ledger().received_count(), 2);
}

#[test]
fn c81_with_the_store_away_only_a_route_that_says_so_lets_requests_by() {
    let service = Service::plain();
    let launch = launch(service.address(), "[[route]]\nmatch = \"/open\"\nstore_down = \"bypass\"\n");
    let gateway = launch.start();
    let lock = crate::support::WriteLock::take(launch.store_file());
    let open = || gateway.call(&post("/open", "k"));
    let (one, other) = (open(), open());
    for answer in [&one, &other] {
        assert_eq!(
            (answer.status, answer.header("semel-guarded")),
            (201, Some("false")),
            "{}",
            answer.text()
        );
    }
    assert_eq!(crate::assert::metric(&gateway, "semel_claims_total", "\"bypass\""), 2.0);
    refused(&gateway.call(&post("/closed", "k")), 503, "store-unavailable", true, "unknown");
    drop(lock);
    assert_eq!(gateway.call(&post("/open", "l")).header("semel-guarded"), None);
    assert_eq!(service.ledger().effects("k"), 2);
}

/// The upstream cannot claim to be what it is not.
#[test]
fn h12_only_the_gateway_says_whether_it_guarded() {
    let (service, gateway) = plain(&[]);
    service.set(|_| Plan { reply: Reply::new(201, "x").header("Semel-Guarded", "false"), ..Plan::default() });
    assert_eq!(gateway.call(&post("/a", "k")).header("semel-guarded"), None);
    assert_eq!(gateway.call(&Call::new("GET", "/a")).header("semel-guarded"), None);
}

#[test]
fn h3_a_mistake_in_a_route_is_named_at_the_start() {
    let service = Service::plain();
    for (toml, part) in [
        ("[[route]]\nmatch = \"/a\"\nkey = \"derive\"\n", "route /a: --key derive needs --derive"),
        ("[[route]]\nmatch = \"/a\"\ncritical = true\n", "route /a: a critical route needs a key"),
        ("[[route]]\nmatch = \"/a\"\nkey = \"derive\"\nderive = [\"path:id\"]\n", "no variable"),
        ("[[route]]\nmatch = \"/a\"\nignore = [\"/x\"]\n", "compared as JSON"),
        ("[[route]]\nmatch = \"/a\"\non_unknown = \"probe\"\n", "needs --probe"),
        ("[[route]]\nmatch = \"/a\"\nkay = \"required\"\n", "did you mean 'key'?"),
    ] {
        let launch: Launch = launch(service.address(), toml).fixed();
        let said = launch.command(launch.address()).output().unwrap();
        let text = String::from_utf8_lossy(&said.stderr).into_owned();
        assert_eq!(said.status.code(), Some(2), "{toml}: {text}");
        assert!(text.contains(part) && text.trim().lines().count() == 1, "{toml}: {text}");
    }
}
