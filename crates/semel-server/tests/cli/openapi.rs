//! `semel openapi`: a user's document, with the contract in it (H17).

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{Said, run, said, semel};

const SETTINGS: &str = r#"
upstream = "http://127.0.0.1:9000"

[[route]]
match = "/v1/charges"
methods = ["POST"]
key = "required"

[[route]]
match = "/v1/charges/{id}"
methods = ["POST", "PUT"]
key = "required"
key_aliases = ["X-Request-Id"]
in_flight_status = 425
mismatch_status = 400
kept = [409]

[[route]]
match = "/v1/orders"
key = "derive"
derive = ["json:/order_id"]

[[route]]
match = "/v1/bookings"
key = "required"
key_field = "json:/request_id"

[[route]]
match = "/v1/settings"
key = "natural"

[[route]]
match = "/v1/trial"
observe = true
"#;

/// With all that people write in YAML.
const SHOP: &str = r#"# The shop's API.
openapi: 3.0.3   # not 3.1 yet
info: {title: Shop, version: "1.0"}
servers:
- url: https://api.example/v1/
paths:
  # Charges
  /charges:
    parameters:
    - {name: tenant, in: header, schema: {type: string}}
    get:
      responses: {'200': {description: "all"}}
    post:
      summary: |
        Charge

        a card
      parameters:
      - name: dry   # no effect
        in: query
        schema: {type: boolean}

      responses:
        '201': {description: charged}
        '401': {description: who are you}
        '422':
          description: not valid
          content:
            application/json:
              schema:
                type: object
        '409': {$ref: '#/components/responses/Conflict'}

  /charges/{id}:
    post:
      parameters:
        - $ref: '#/components/parameters/Key'
        - {name: id, in: path, required: true, schema: {type: string}}
      responses:
        default: {description: x}
        2XX: {description: y, headers: {X-Y: {schema: {type: string}}}}
    put:
      externalDocs: {url: 'https://shop.example/put'}
      parameters: []
      responses: {}
  /orders:
    post:
      responses:
        '201': {description: done}
  /bookings:
    patch:
      responses:
        '200': {description: done, headers: {idempotent-replayed: {description: ours}}}
  /settings: {post: {responses: {'204': {description: set}}}}
  /trial: {post: {responses: {'204': {description: tried}}}}
  /notes:
    post: {responses: {'204': {description: noted}}}
components:
  parameters:
    Key: {name: idempotency-KEY, in: header, schema: {type: string}}
  responses:
    Conflict: {description: a conflict}
"#;

struct Folder(TempDir);

impl Folder {
    fn new() -> Folder {
        let folder = Folder(tempfile::tempdir().unwrap());
        folder.write("semel.toml", SETTINGS);
        folder
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    fn run(&self, name: &str, args: &[&str]) -> Said {
        let (file, config) = (self.path(name), self.path("semel.toml"));
        let config = ["openapi", file.to_str().unwrap(), "--config", config.to_str().unwrap()];
        run(&[&config, args].concat())
    }

    /// The document with the contract in it, and what was said.
    #[track_caller]
    fn publish(&self, name: &str, text: &str) -> (String, Vec<String>) {
        self.write(name, text);
        let said = self.run(name, &[]);
        assert_eq!(said.code, Some(0), "{}", said.err);
        (said.out, said.err.lines().map(str::to_owned).collect())
    }
}

/// A document as values.
fn yaml(text: &str) -> Value {
    use saphyr_parser::{Event, Parser, ScalarStyle};
    fn value<'a>(events: &mut impl Iterator<Item = Event<'a>>, event: Event<'a>) -> Value {
        match event {
            Event::Scalar(text, ScalarStyle::Plain, ..) => {
                serde_json::from_str(&text).unwrap_or_else(|_| text.into())
            }
            Event::Scalar(text, ..) => text.into(),
            Event::SequenceStart(..) => {
                let mut items = Vec::new();
                loop {
                    match events.next().unwrap() {
                        Event::SequenceEnd => return Value::Array(items),
                        event => items.push(value(events, event)),
                    }
                }
            }
            Event::MappingStart(..) => {
                let mut members = serde_json::Map::new();
                loop {
                    let name = match events.next().unwrap() {
                        Event::MappingEnd => return Value::Object(members),
                        Event::Scalar(name, ..) => name.into_owned(),
                        other => panic!("{other:?}"),
                    };
                    let event = events.next().unwrap();
                    let twice = members.insert(name.clone(), value(events, event));
                    assert_eq!(twice, None, "{name} stands twice");
                }
            }
            other => panic!("{other:?}"),
        }
    }
    let mut events =
        Parser::new_from_str(text).map(|event| event.unwrap_or_else(|error| panic!("{error}\n{text}")).0);
    let first =
        events.by_ref().find(|event| !matches!(event, Event::StreamStart | Event::DocumentStart(_))).unwrap();
    value(&mut events, first)
}

/// Whether the one says all that the other says: the same values, more members, more items at the end.
fn includes(after: &Value, before: &Value) -> bool {
    match (after, before) {
        (Value::Object(after), Value::Object(before)) => {
            before.iter().all(|(name, value)| after.get(name).is_some_and(|after| includes(after, value)))
        }
        (Value::Array(after), Value::Array(before)) => {
            after.len() >= before.len()
                && after.iter().zip(before).all(|(after, before)| includes(after, before))
        }
        (after, before) => after == before,
    }
}

fn published() -> Value {
    yaml(&Folder::new().publish("shop.yaml", SHOP).0)
}

/// The names of the header parameters of an operation, as they are written.
fn headers_of(operation: &Value) -> Vec<&str> {
    let parameters = operation["parameters"].as_array().map(Vec::as_slice).unwrap_or_default();
    let headers = parameters.iter().filter(|parameter| parameter["in"] == "header");
    headers.map(|parameter| parameter["name"].as_str().unwrap()).collect()
}

/// The codes that an operation says at a status, through the reference or beside what its author wrote.
fn codes(document: &Value, path: &str, method: &str, status: &str) -> Vec<String> {
    let response = &document["paths"][path][method]["responses"][status];
    let response = match response["$ref"].as_str() {
        Some(to) => document.pointer(&to[1..]).unwrap_or_else(|| panic!("{to} leads nowhere")),
        None => response,
    };
    let parts = response["content"]["application/problem+json"]["schema"]["allOf"].as_array();
    let parts = parts.map(Vec::as_slice).unwrap_or_default();
    let codes = parts.iter().filter_map(|part| part["properties"]["code"]["enum"].as_array()).flatten();
    codes.map(|code| code.as_str().unwrap().to_owned()).collect()
}

#[test]
fn h17_a_guarded_operation_gets_the_key_the_refusals_and_the_policy() {
    let document = published();
    let charge = &document["paths"]["/charges"]["post"];
    assert_eq!(headers_of(charge), ["Idempotency-Key"]);
    let key = &charge["parameters"][1];
    assert_eq!((&key["required"], &key["schema"]["maxLength"]), (&json!(true), &json!(255)));
    assert_eq!(charge["externalDocs"]["url"], "/.well-known/semel-policy");
    for (status, expected) in [
        ("400", &["key-missing", "key-malformed"][..]),
        ("410", &["key-expired", "response-not-kept"]),
        ("413", &["body-too-large"]),
        ("422", &["key-reused"]),
        ("429", &["too-many-claims"]),
        ("502", &["outcome-unknown", "upstream-unreachable"]),
        ("503", &["store-unavailable"]),
        ("504", &["upstream-timeout"]),
    ] {
        assert_eq!(codes(&document, "/charges", "post", status), expected, "{status}");
    }
    assert_eq!(
        codes(&document, "/notes", "post", "400"),
        ["key-malformed"],
        "an optional key is never missing"
    );
    assert_eq!(
        codes(&document, "/orders", "post", "409"),
        ["in-flight", "outcome-unknown", "attempts-exhausted"]
    );
    let replayed = json!({ "$ref": "#/components/headers/IdempotentReplayed" });
    assert_eq!(charge["responses"]["201"]["headers"]["Idempotent-Replayed"], replayed);
    assert_eq!(charge["responses"]["422"]["headers"]["Idempotent-Replayed"], replayed);
    assert_eq!(charge["responses"]["401"], json!({ "description": "who are you" }), "it is not kept");
    let responses = &document["components"]["responses"];
    for (name, response) in responses.as_object().unwrap() {
        let says_when =
            response["headers"]["Retry-After"] == json!({ "$ref": "#/components/headers/RetryAfter" });
        let waits = ["InFlight", "StoreUnavailable", "TooManyClaims"].iter().any(|word| name.contains(word));
        assert_eq!(says_when, waits, "{name}");
    }
}

/// Every code of the table stands in the schema, and every reference leads somewhere.
#[test]
fn h17_the_document_holds_together() {
    let document = published();
    let words: Vec<_> = semel_http::TABLE.iter().map(|row| row.word).collect();
    assert_eq!(
        document["components"]["schemas"]["IdempotencyProblem"]["properties"]["code"]["enum"],
        json!(words)
    );
    let mut values = vec![&document];
    let (mut references, mut said) = (0, BTreeSet::new());
    while let Some(value) = values.pop() {
        if let Some(to) = value["$ref"].as_str() {
            assert!(document.pointer(&to[1..]).is_some(), "{to} leads nowhere");
            references += 1;
        }
        if let Some(codes) = value["enum"].as_array() {
            said.extend(codes.iter().filter_map(Value::as_str).filter(|code| words.contains(code)));
        }
        match value {
            Value::Object(members) => values.extend(members.values()),
            Value::Array(items) => values.extend(items),
            _ => {}
        }
    }
    assert!(references > 20, "{references}");
    assert_eq!(said, words.iter().copied().collect());
    for response in document["components"]["responses"].as_object().unwrap().values() {
        assert!(response["description"].is_string());
    }
}

#[test]
fn h17_nothing_that_is_there_is_changed_and_a_second_run_changes_nothing() {
    let folder = Folder::new();
    let (first, notes) = folder.publish("shop.yaml", SHOP);
    assert_eq!(notes, ["semel: POST /charges: its response 409 stands elsewhere, and was left as it is"]);
    assert!(includes(&yaml(&first), &yaml(SHOP)));
    // To the byte: what was there is there, in its order, comments and all.
    let mut rest = first.chars();
    assert!(SHOP.chars().all(|char| rest.any(|other| other == char)), "{first}");
    for line in SHOP.lines().filter(|line| line.contains('#') && !line.contains("$ref")) {
        assert!(first.lines().any(|other| other == line), "{line}");
    }
    assert_eq!(folder.publish("again.yaml", &first), (first, notes));
}

#[test]
fn h17_json_and_yaml_come_to_the_same() {
    let folder = Folder::new();
    let document = yaml(SHOP);
    for (name, text) in [
        ("shop.json", format!("{document:#}")),
        ("small.json", document.to_string()),
        ("shop", document.to_string()),
    ] {
        let (first, _) = folder.publish(name, &text);
        assert_eq!(serde_json::from_str::<Value>(&first).unwrap(), published(), "{name}");
        assert_eq!(first.lines().count() > 1, text.lines().count() > 1, "{name}");
        assert_eq!(folder.publish(name, &first).0, first, "{name}");
    }
}

#[test]
fn h17_what_no_gateway_guards_stays_as_it_is() {
    let (before, after) = (yaml(SHOP), published());
    for (path, method) in [("/charges", "get"), ("/settings", "post"), ("/trial", "post")] {
        assert_eq!(after["paths"][path][method], before["paths"][path][method], "{method} {path}");
    }
    let folder = Folder::new();
    let nothing = "openapi: 3.1.0\npaths: {/charges: {get: {}}}\n";
    let (text, notes) = folder.publish("nothing.yaml", nothing);
    assert_eq!(text, nothing);
    assert_eq!(notes, ["semel: no operation of the document is guarded: nothing was added"]);
}

#[test]
fn h17_the_key_stands_where_the_route_has_it() {
    let document = published();
    let of = |path: &str, method: &str| document["paths"][path][method].clone();
    assert_eq!(headers_of(&of("/notes", "post")), ["Idempotency-Key"]);
    assert_eq!(of("/notes", "post")["parameters"][0]["required"], false, "optional");
    // Of two names either is enough. One of them the document has already, through a reference and in other letters.
    assert_eq!(headers_of(&of("/charges/{id}", "post")), ["X-Request-Id"]);
    assert_eq!(headers_of(&of("/charges/{id}", "put")), ["Idempotency-Key", "X-Request-Id"]);
    assert_eq!(of("/charges/{id}", "put")["parameters"][0]["required"], false);
    assert!(of("/charges/{id}", "put")["parameters"][0]["description"].as_str().unwrap().contains("One of"));
    assert_eq!(headers_of(&of("/orders", "post")).len(), 0, "it is derived");
    assert_eq!(headers_of(&of("/bookings", "patch")).len(), 0, "it stands in the body");

    let folder = Folder::new();
    let above = "openapi: 3.1.0\nservers: [{url: /v1}]\npaths:\n  /charges:\n    parameters:\n    - {name: Idempotency-Key, in: header}\n    post: {}\n";
    let (text, notes) = folder.publish("above.yaml", above);
    assert_eq!(headers_of(&yaml(&text)["paths"]["/charges"]["post"]).len(), 0, "its path has it");
    assert!(notes[0].contains("not required in the document, and the route requires it"), "{notes:?}");
    assert!(
        yaml(&text)["paths"]["/charges"]["post"]["responses"]["409"].is_object(),
        "3.1 may have no responses"
    );
}

#[test]
fn h17_statuses_and_lists_are_the_routes_own() {
    let document = published();
    let codes = |status| codes(&document, "/charges/{id}", "put", status);
    assert_eq!(codes("425"), ["in-flight"]);
    assert_eq!(codes("409"), ["outcome-unknown", "attempts-exhausted"]);
    assert_eq!(codes("400"), ["key-missing", "key-malformed", "key-reused"]);
    assert!(codes("422").is_empty());
    let put = &document["paths"]["/charges/{id}"]["put"];
    assert_eq!(put["externalDocs"], json!({ "url": "https://shop.example/put" }), "its own stays");
    let of_class = &document["paths"]["/charges/{id}"]["post"]["responses"]["2XX"]["headers"];
    assert!(of_class["Idempotent-Replayed"].is_object() && of_class["X-Y"].is_object());
    let own = &document["paths"]["/bookings"]["patch"]["responses"]["200"]["headers"];
    assert_eq!(own, &json!({ "idempotent-replayed": { "description": "ours" } }));
}

const HOSTS: &str = r#"
upstream = "http://127.0.0.1:9000"
methods = ["PUT"]
[[route]]
match = "/v1/charges/export"
methods = ["POST"]
mismatch_status = 409
[[route]]
match = "/v1/charges/{any}"
methods = ["POST"]
[[route]]
match = "/pay"
host = "pay.example"
methods = ["POST"]
key = "required"
"#;

#[test]
fn h17_servers_say_the_host_and_where_paths_begin() {
    let folder = Folder::new();
    folder.write("semel.toml", HOSTS);
    let is_guarded = |document: &str, path: &str| {
        let (text, notes) = folder.publish("a.yaml", document);
        (yaml(&text)["paths"][path]["post"]["externalDocs"].is_object(), notes)
    };
    let of = |servers: &str, path: &str| {
        format!("openapi: 3.1.0\nservers: {servers}\npaths:\n  {path}:\n    post:\n      responses: {{}}\n")
    };
    let guarded = |servers: &str, path: &str| is_guarded(&of(servers, path), path).0;
    assert!(guarded("[{url: 'https://pay.example:8443/'}]", "/pay"));
    assert!(!guarded("[{url: 'https://other.example/'}]", "/pay"), "another host");
    assert!(!guarded("[]", "/pay"));
    assert!(guarded("[{url: /v1}]", "/charges/{id}"));
    assert!(guarded("[{url: '/{v}', variables: {v: {default: v1}}}]", "/charges/{id}.json"));
    assert!(!guarded("[{url: /v2}]", "/charges/{id}"));
    let own = "openapi: 3.1.0\nservers: [{url: /v2}]\npaths:\n  /charges/{id}:\n    servers: [{url: /v3}]\n    post: {servers: [{url: /v1}]}\n";
    assert!(is_guarded(own, "/charges/{id}").0, "the operation's own servers count");

    let both = of("[{url: 'https://pay.example'}, {url: 'https://test.example'}]", "/pay");
    let (guarded, notes) = is_guarded(&both, "/pay");
    assert!(guarded && notes[0].contains("its servers have different settings"), "{notes:?}");
    let other_first = of("[{url: 'https://test.example'}, {url: 'https://pay.example'}]", "/pay");
    let (guarded, notes) = is_guarded(&other_first, "/pay");
    assert!(!guarded && notes[0].contains("its servers have different settings"), "{notes:?}");
}

#[test]
fn h17_a_template_stands_for_what_no_route_names() {
    let folder = Folder::new();
    folder.write("semel.toml", HOSTS);
    let template = "openapi: 3.1.0\nservers: [{url: /v1}]\npaths:\n  /charges/{id}:\n    post: {}\n";
    let (text, notes) = folder.publish("a.yaml", template);
    assert_eq!(codes(&yaml(&text), "/charges/{id}", "post", "422"), ["key-reused"]);
    assert!(notes[0].contains("POST /charges/export has a route of its own"), "{notes:?}");
    let both = format!("{template}  /charges/export:\n    post: {{}}\n");
    let (text, notes) = folder.publish("b.yaml", &both);
    assert!(notes.is_empty(), "{notes:?}");
    assert!(codes(&yaml(&text), "/charges/export", "post", "409").contains(&"key-reused".to_owned()));
}

#[test]
fn h17_what_several_places_share_is_left_alone_and_said() {
    let folder = Folder::new();
    let shared = r#"openapi: 3.1.0
servers: [{url: /v1}]
paths:
  /charges:
    post: &charge
      responses: {'201': {description: charged}}
  /orders:
    post: *charge
  /bookings: {$ref: '#/components/pathItems/Bookings'}
  /notes:
    post:
      parameters: [{$ref: 'other.yaml#/Key'}]
      responses: {}
components:
  pathItems:
    Bookings: {post: {responses: {}}}
"#;
    let (text, notes) = folder.publish("shared.yaml", shared);
    let (before, after) =
        (&yaml(shared.replace("*charge", "{}").as_str()), yaml(&text.replace("*charge", "{}")));
    assert_eq!(after["paths"]["/charges"], before["paths"]["/charges"]);
    assert_eq!(after["components"]["pathItems"], before["components"]["pathItems"]);
    for wants in [
        "POST /charges: parameters, externalDocs was left out",
        "/bookings: its operations stand elsewhere",
        "POST /notes: some of its parameters are in another file",
    ] {
        assert!(notes.iter().any(|note| note.contains(wants)), "{wants}: {notes:?}");
    }
}

#[test]
fn h17_the_document_itself_may_be_written_and_only_whole() {
    let folder = Folder::new();
    folder.write("shop.yaml", &format!("\u{feff}{SHOP}"));
    let path = folder.path("shop.yaml");
    let said = folder.run("shop.yaml", &["--output", path.to_str().unwrap()]);
    assert_eq!((said.code, said.out.as_str()), (Some(0), ""), "{}", said.err);
    let written = folder.read("shop.yaml");
    assert_eq!(written.strip_prefix('\u{feff}').map(yaml), Some(published()));
    let names = std::fs::read_dir(folder.0.path()).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(names.collect::<BTreeSet<_>>().len(), 2, "nothing stays beside it");
    let nowhere = folder.run("shop.yaml", &["--output", "/nowhere/shop.yaml"]);
    assert_eq!(nowhere.code, Some(1));
    assert!(
        nowhere.err.lines().last().unwrap().starts_with("semel: --output /nowhere/shop.yaml: "),
        "{}",
        nowhere.err
    );
}

#[test]
fn h17_a_mistake_is_one_line() {
    let folder = Folder::new();
    for (name, text, wants) in [
        ("a.yaml", "swagger: '2.0'\n", "a.yaml: Swagger 2.0 must be converted to OpenAPI 3 first"),
        ("a.yaml", "openapi: 3.2.0\n", "OpenAPI 3.2.0 is not known here"),
        ("a.yaml", "paths: {}\n", "'openapi' is missing"),
        ("a.yaml", "openapi: 3.0.0\npaths: [\n", "line"),
        ("a.yaml", "openapi: 3.0.0\nopenapi: 3.0.0\n", "line 2: 'openapi' stands twice"),
        ("a.json", "{\"openapi\": \"3.0.0\",}", "a.json: key must be a string at line 1"),
        ("a.json", "openapi: 3.0.0", "a.json: expected value at line 1"),
    ] {
        folder.write(name, text);
        let said = folder.run(name, &[]);
        assert!(said.error(2).contains(wants), "{text}: {}", said.err);
    }
    let absent = folder.run("absent.yaml", &[]);
    assert!(absent.error(2).contains("absent.yaml: "), "{}", absent.err);
    folder.write("shop.yaml", SHOP);
    folder.write("semel.toml", "upstrem = \"http://127.0.0.1:9000\"");
    let said = folder.run("shop.yaml", &[]);
    assert!(said.error(2).contains("did you mean 'upstream'?"), "{}", said.err);
    assert!(run(&["openapi"]).error(2).contains("<FILE>"));
    assert!(run(&["opnapi"]).error(2).contains("did you mean 'openapi'?"));
    assert!(run(&["openapi", "x", "--ouput", "y"]).error(2).contains("did you mean '--output'?"));
}

/// The command of docs/openapi.md, as it stands there.
#[test]
fn h17_the_pages_command_does_what_it_says() {
    let page = include_str!("../../../../docs/openapi.md");
    let line = page.split("```sh\n").nth(1).and_then(|rest| rest.lines().next()).unwrap();
    let args: Vec<&str> = line.split(' ').skip(1).collect();
    assert!(line.starts_with("semel openapi "), "{line}");
    let folder = Folder::new();
    folder.write("openapi.yaml", SHOP);
    let said = said(semel(&args).current_dir(folder.0.path()));
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert_eq!(yaml(&folder.read("openapi.yaml")), published());
}
