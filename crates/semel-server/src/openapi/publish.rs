//! What an operation of a document lacks of the contract, and where it is put.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::{Method, StatusCode};
use semel_http::{Code, KeyPolicy, Options, Routes, Row, Settings, TABLE};

use super::components::{
    self, PROBLEM_JSON, REPLAYED, RESPONSES, RETRY_AFTER, SCHEMA, content, media_type, name_of, parameter,
    path_of, proper, response, retries, to,
};
use super::document::{Document, Member, Node};
use super::matching::{Found, Operation};
use super::piece::{Piece, map, text};

/// The names of a path's members that are operations (OpenAPI 3.1, section 4.8.9).
const METHODS: [(&str, Method); 8] = [
    ("get", Method::GET),
    ("put", Method::PUT),
    ("post", Method::POST),
    ("delete", Method::DELETE),
    ("options", Method::OPTIONS),
    ("head", Method::HEAD),
    ("patch", Method::PATCH),
    ("trace", Method::TRACE),
];

/// Puts into the document what its guarded operations lack. Gives what its author should know, a line each.
pub fn into(document: &mut Document, routes: &Routes) -> Vec<String> {
    let root = document.root();
    let mut notes = Vec::new();
    let paths = root.get("paths").map(Node::members).unwrap_or_default();
    let texts: Vec<&str> = paths.iter().map(|path| path.name.as_str()).collect();
    // By name. None: no operation is guarded.
    let mut shared: Option<BTreeMap<String, Vec<&'static Row>>> = None;
    for Member { name: path, value, .. } in paths {
        // Or it is an extension, `x-…`.
        if !path.starts_with('/') {
            continue;
        }
        let item = value.target();
        if item.get("$ref").is_some() {
            notes.push(format!("{path}: its operations stand elsewhere, and were left as they are"));
            continue;
        }
        for (name, method) in METHODS {
            let Some(operation) = item.get(name) else { continue };
            let servers = [operation.get("servers"), item.get("servers"), root.get("servers")];
            let asked = Operation { method, path, servers, paths: &texts };
            let Found { settings, notes: found } = asked.find(routes);
            notes.extend(found);
            let Some(settings) = settings else { continue };
            let shared = shared.get_or_insert_default();
            let name = format!("{} {path}", asked.method);
            let mut place = Place { document: &mut *document, root: &root, name, shared, notes: &mut notes };
            place.publish(item, operation, &settings);
        }
    }
    match shared {
        Some(shared) => add_components(document, &root, &shared, &mut notes),
        None => notes.push("no operation of the document is guarded: nothing was added".to_owned()),
    }
    notes
}

/// One operation.
struct Place<'a> {
    document: &'a mut Document,
    root: &'a Node,
    /// For people: `POST /charges`.
    name: String,
    /// The refusals that it, and those before it, refer to.
    shared: &'a mut BTreeMap<String, Vec<&'static Row>>,
    notes: &'a mut Vec<String>,
}

impl Place<'_> {
    fn publish(&mut self, item: &Node, operation: &Node, settings: &Arc<Settings>) {
        let options = settings.options();
        let mut members = Vec::new();
        members.extend(self.parameters(item, operation, options));
        members.extend(self.responses(operation, options));
        if operation.get("externalDocs").is_none() {
            let policy = [("description", text("Idempotency policy")), ("url", text(&options.policy_link))];
            members.push(("externalDocs".to_owned(), map(policy)));
        }
        self.check(operation, members);
    }

    fn note(&mut self, what: &str) {
        self.notes.push(format!("{}: {what}", self.name));
    }

    /// Puts members into a mapping, or says that it could not.
    fn check(&mut self, node: &Node, members: Vec<(String, Piece)>) {
        let names: Vec<_> = members.iter().map(|(name, _)| name.clone()).collect();
        if !names.is_empty() && !self.document.add_members(node, members) {
            let names = names.join(", ");
            self.note(&format!(
                "{names} was left out, since several places share what it belongs to, or it is empty"
            ));
        }
    }

    /// The headers that carry the key. As a whole member where the operation has no parameters yet.
    fn parameters(&mut self, item: &Node, operation: &Node, options: &Options) -> Option<(String, Piece)> {
        let by_header =
            matches!(options.key, KeyPolicy::Optional | KeyPolicy::Required | KeyPolicy::Generate);
        if !by_header || options.key_field.is_some() {
            return None;
        }
        let own = operation.get("parameters");
        let present: Vec<&Node> =
            [own, item.get("parameters")].into_iter().flatten().flat_map(Node::items).collect();
        let required = options.key == KeyPolicy::Required;
        let only = options.key_names.len() == 1;
        let mut lacking = Vec::new();
        for name in &options.key_names {
            let found =
                present.iter().filter_map(|parameter| local(self.root, parameter)).find(|parameter| {
                    let is_header = parameter.text_of("in") == Some("header");
                    is_header
                        && parameter
                            .text_of("name")
                            .is_some_and(|other| other.eq_ignore_ascii_case(name.as_str()))
                });
            match found {
                Some(found) if required && only && found.text_of("required") != Some("true") => {
                    self.note(&format!(
                        "its parameter {name} is not required in the document, and the route requires it"
                    ));
                }
                Some(_) => {}
                None => lacking.push(parameter(&proper(name.as_str()), options, required && only)),
            }
        }
        if present.iter().any(|parameter| local(self.root, parameter).is_none()) {
            self.note("some of its parameters are in another file, and were not looked at");
        }
        match own {
            _ if lacking.is_empty() => None,
            None => Some(("parameters".to_owned(), Piece::List(lacking))),
            // An empty list in block style has no place for an item.
            Some(own) => {
                if !self.document.add_items(own, &lacking) {
                    self.note("the key was left out of its parameters, which several places share, or which are empty");
                }
                None
            }
        }
    }

    /// The refusals, and what the operation's own answers lack. As a whole member where it has no responses yet.
    fn responses(&mut self, operation: &Node, options: &Options) -> Option<(String, Piece)> {
        let refusals = refusals(options);
        let responses = operation.get("responses");
        for Member { name: status, value, .. } in responses.map(Node::members).unwrap_or_default() {
            self.extend_response(status, value.target(), &refusals, options);
        }
        let is_there =
            |status: &StatusCode| responses.is_some_and(|there| there.get(status.as_str()).is_some());
        let lacking = refusals.iter().filter(|(status, _)| !is_there(status));
        let lacking: Vec<_> = lacking
            .map(|(status, rows)| {
                self.shared.insert(name_of(rows), rows.clone());
                (status.as_str().to_owned(), to((RESPONSES, &name_of(rows))))
            })
            .collect();
        match responses {
            None => Some(("responses".to_owned(), Piece::Map(lacking))),
            Some(responses) => {
                self.check(responses, lacking);
                None
            }
        }
    }

    /// What a response that is there lacks.
    fn extend_response(
        &mut self,
        status: &str,
        response: &Node,
        refusals: &BTreeMap<StatusCode, Vec<&'static Row>>,
        options: &Options,
    ) {
        let rows = status.parse().ok().and_then(|status: StatusCode| refusals.get(&status));
        let kept = kept(status, options);
        if rows.is_none() && !kept {
            return;
        }
        if let Some(to) = response.text_of("$ref") {
            let ours = rows.map(|rows| path_of((RESPONSES, &name_of(rows))));
            if ours.as_deref() != Some(to) {
                self.note(&format!("its response {status} stands elsewhere, and was left as it is"));
            }
            return;
        }
        let mut members = Vec::new();
        let mut headers = Vec::new();
        if kept {
            headers.push(("Idempotent-Replayed", REPLAYED));
        }
        if rows.is_some_and(|rows| retries(rows)) {
            headers.push(("Retry-After", RETRY_AFTER));
        }
        let there = response.get("headers");
        let is_there = |name: &str| {
            let names = there.map(Node::members).unwrap_or_default();
            names.iter().any(|member| member.name.eq_ignore_ascii_case(name))
        };
        headers.retain(|(name, _)| !is_there(name));
        let headers: Vec<_> =
            headers.into_iter().map(|(name, component)| (name.to_owned(), to(component))).collect();
        match there {
            Some(there) => self.check(there, headers),
            None if headers.is_empty() => {}
            None => members.push(("headers".to_owned(), Piece::Map(headers))),
        }
        if let Some(rows) = rows {
            match response.get("content") {
                None => members.push(("content".to_owned(), content(rows))),
                Some(content) if content.get(PROBLEM_JSON).is_none() => {
                    self.check(content, vec![(PROBLEM_JSON.to_owned(), media_type(rows))]);
                }
                Some(_) => {}
            }
        }
        self.check(response, members);
    }
}

/// What a reference within the document leads to, through some steps at most; itself where it is none.
fn local<'a>(root: &'a Node, node: &'a Node) -> Option<&'a Node> {
    let mut node = node;
    for _ in 0..8 {
        let Some(reference) = node.text_of("$ref") else { return Some(node) };
        let pointer = reference.strip_prefix("#/")?;
        node = pointer.split('/').try_fold(root, |node, step| {
            let step = percent_encoding::percent_decode_str(step).decode_utf8().ok()?;
            node.get(&step.replace("~1", "/").replace("~0", "~"))
        })?;
    }
    None
}

/// The refusals of a route, by the status that each has there.
fn refusals(options: &Options) -> BTreeMap<StatusCode, Vec<&'static Row>> {
    let mut refusals: BTreeMap<StatusCode, Vec<&'static Row>> = BTreeMap::new();
    for row in &TABLE {
        let status = match row.code {
            Code::KeyMissing if !matches!(options.key, KeyPolicy::Required | KeyPolicy::Derive(_)) => {
                continue;
            }
            Code::UpstreamTimeout if options.policy.answer_within.is_none() => continue,
            Code::InFlight => options.in_flight_status,
            Code::KeyReused => options.mismatch_status,
            _ => row.status,
        };
        for status in [Some(status), row.own_status].into_iter().flatten() {
            refusals.entry(status).or_default().push(row);
        }
    }
    refusals
}

/// Whether answers of that status, or that class (`2XX`), are replayed. `default` is for errors.
fn kept(status: &str, options: &Options) -> bool {
    let status = status.to_ascii_uppercase().replace("XX", "00");
    status.parse().is_ok_and(|status| options.statuses.keeps(status))
}

/// What the additions refer to, as far as it is not there.
fn add_components(
    document: &mut Document,
    root: &Node,
    shared: &BTreeMap<String, Vec<&'static Row>>,
    notes: &mut Vec<String>,
) {
    let there_already = root.get("components");
    let mut lacking: Vec<(String, Piece)> = Vec::new();
    let mut done = true;
    for (kind, pieces) in [
        (SCHEMA.0, vec![(SCHEMA.1, components::problem())]),
        (REPLAYED.0, vec![(REPLAYED.1, components::replayed()), (RETRY_AFTER.1, components::retry_after())]),
        (RESPONSES, shared.iter().map(|(name, rows)| (name.as_str(), response(rows))).collect()),
    ] {
        let there = there_already.and_then(|components| components.get(kind));
        let is_lacking = |name: &str| there.is_none_or(|there| there.get(name).is_none());
        let pieces = pieces.into_iter().filter(|(name, _)| is_lacking(name));
        let pieces: Vec<_> = pieces.map(|(name, piece)| (name.to_owned(), piece)).collect();
        match there {
            _ if pieces.is_empty() => {}
            Some(there) => done &= document.add_members(there, pieces),
            None => lacking.push((kind.to_owned(), Piece::Map(pieces))),
        }
    }
    done &= match there_already {
        _ if lacking.is_empty() => true,
        Some(components) => document.add_members(components, lacking),
        None => document.add_members(root, vec![("components".to_owned(), Piece::Map(lacking))]),
    };
    if !done {
        notes.push(
            "components: what the additions refer to was left out, since a mapping there is empty or shared"
                .to_owned(),
        );
    }
}
