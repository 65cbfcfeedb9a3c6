use super::super::piece::{map, text};
use super::*;

/// What a document says, without how it is written. An alias counts as what it stands for.
fn said(node: &Node) -> String {
    match &node.target().what {
        What::Map(members) => {
            let members = members.iter().map(|member| format!("{}: {}", member.name, said(&member.value)));
            format!("{{{}}}", members.collect::<Vec<_>>().join(", "))
        }
        What::List(items) => {
            format!("[{}]", items.iter().map(|item| said(item)).collect::<Vec<_>>().join(", "))
        }
        What::Scalar(text) => format!("{text:?}"),
        What::Alias(_) => unreachable!("it was followed"),
    }
}

fn read(text: &str) -> Document {
    let format = if text.starts_with('{') { Format::Json } else { Format::Yaml };
    Document::parse(text.to_owned(), format).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// Adds to what stands at `a`, and to the whole; gives the text, after checking that it says what it said, and more.
#[track_caller]
fn added(before: &str) -> String {
    let mut document = read(before);
    let root = document.root();
    let a = root.get("a").expect("an a");
    let (was_a, was) = (said(a), said(&root));
    let is_list = matches!(a.what, What::List(_));
    let done = match is_list {
        true => document.add_items(a, &[map([("new", text("1"))]), text("two")]),
        false => document.add_members(a, vec![("new".to_owned(), map([("x", text("1: 2"))]))]),
    };
    assert!(done, "{before}");
    assert!(document.add_members(&root, vec![("last".to_owned(), text("3"))]));
    let after = document.finish();
    let new = if is_list { "{new: \"1\"}, \"two\"]" } else { "new: {x: \"1: 2\"}}" };
    let comma = if was_a.len() > 2 { ", " } else { "" };
    let expected_a = format!("{}{comma}{new}", &was_a[..was_a.len() - 1]);
    let expected = was.replacen(&was_a, &expected_a, 1);
    let expected = format!("{}, last: \"3\"}}", &expected[..expected.len() - 1]);
    assert_eq!(said(&read(&after).root()), expected, "{before}\n---\n{after}");
    let mut rest = after.chars();
    assert!(before.chars().all(|char| rest.any(|other| other == char)), "{before}\n---\n{after}");
    after
}

#[test]
fn lines_go_below_the_last_one_of_a_mapping_or_a_list() {
    for before in [
        "a:\n  b: 1\nz: 2\n",
        "z: 2\na:\n  b: 1\n",
        "z: 2\na:\n  b: 1",
        "a:\n    b: 1\n\n# of z\nz: 2\n",
        "a:\n  b:\n    c:\n      - d\n\nz: 2\n",
        "a:\n  b: |\n    text\n     more\n\nz: 2\n",
        "a:\n  b: |+\n    text\n\n\nz: 2\n",
        "a:\n  b: |+\n    text\n\n",
        "a:\n  b: >-\n    text\n    more\n  # of nobody\nz: 2\n",
        "a:\n  b: two\n    lines\nz: 2\n",
        "a:\n  b: 'two\n\n    lines' # here\nz: 2\n",
        "a:\n  b:\nz: 2\n",
        "a:\n  b: {c: d}\nz: 2\n",
        "a:\n  b: &x {c: d}\n  e: *x\n",
        "a:\n  ? b\n  : c\nz: 2\n",
        "a: # of a\n  b: é # ü\nz: 2\n",
        "---\na:\n  b: 1\n...\n",
        "a:\n  - b\n  - c: d\n    e: f\nz: 2\n",
        "a:\n- b\n- c: d\nz: 2\n",
        "a:\n-   b: c\n    d: e\n-   f: g\n",
        "a:\n  -\n    b: c\n",
        "a:\n  - - b\n    - c\nz: 2\n",
        "a:\n  - x\n  - |\n    text\nz: 2",
        "a:\n  - !!str\n    text\n  - x\n",
        "a:\n  - x: |+\n      text\n\nz: 2",
    ] {
        added(before);
    }
}

#[test]
fn json_goes_into_what_stands_in_brackets() {
    for before in [
        "a: {}\n",
        "a: { }\n",
        "a: []\n",
        "a: {b: c}\nz: 2\n",
        "a: {b: c, }\nz: 2\n",
        "a: {\n  b: c,\n  d: e\n  }\nz: 2\n",
        "a: [b, c]\n",
        "a: [\n  b,\n  {c: d}\n  ]\n",
        "{\"a\": {}}",
        "{\"a\": []}",
        "{\"a\":{\"b\":1.50},\"z\":1e400}",
        "{\n  \"a\": {\"b\": 1},\n  \"z\": 2\n}\n",
        "{\n\t\"a\": {\n\t\t\"b\": \"\\ud83d\\ude00\"\n\t}\n}\n",
        "{\n    \"a\": [\n        1\n    ]\n}",
        "{\n    \"a\": {}\n}",
    ] {
        added(before);
    }
}

#[test]
fn json_keeps_its_own_indentation() {
    assert_eq!(
        added("{\n\t\"a\": {\n\t\t\"b\": 1.0\n\t},\n\t\"z\": {}\n}\n"),
        "{\n\t\"a\": {\n\t\t\"b\": 1.0,\n\t\t\"new\": {\n\t\t\t\"x\": \"1: 2\"\n\t\t}\n\t},\n\t\"z\": {},\n\t\"last\": \"3\"\n}\n"
    );
    assert_eq!(added("{\"a\":{}}"), "{\"a\":{\"new\":{\"x\":\"1: 2\"}},\"last\":\"3\"}");
    assert_eq!(added("a: {b: c}\n"), "a: {b: c, \"new\": {\"x\": \"1: 2\"}}\nlast: \"3\"\n");
}

#[test]
fn lines_end_as_the_others_do() {
    assert_eq!(
        added("a:\r\n  b: 1\r\nz: 2"),
        "a:\r\n  b: 1\r\n  new:\r\n    x: \"1: 2\"\r\nz: 2\r\nlast: \"3\"\r\n"
    );
}

#[test]
fn what_several_places_share_is_not_added_to() {
    for (before, at) in [
        ("a: &x\n  b: 1\nc: *x\n", "a"),
        ("a: &x\n  b: 1\nc: *x\n", "c"),
        ("a: &x\n  b: {c: d}\n", "a/b"),
        ("a: &x [{b: 1}]\n", "a"),
        ("o: &x {b: 1}\na:\n  <<: *x\n  c: 2\n", "a"),
        ("a:\n", "a"),
        ("a: text\n", "a"),
        ("a:\n  - |\n    text\n  - x\n", "a"),
    ] {
        let mut document = read(before);
        let root = document.root();
        let node = at.split('/').fold(&*root, |node, name| node.get(name).unwrap());
        assert!(!document.add_members(node, vec![("new".to_owned(), text("1"))]), "{before}");
        assert!(!document.add_items(node, &[text("1")]), "{before}");
        assert_eq!(document.finish(), before);
    }
}

#[test]
fn what_cannot_be_read_is_said_in_one_line() {
    let deep = |open: &str, close: &str| format!("{}1{}", open.repeat(500), close.repeat(500));
    for (text, format, wants) in [
        ("a: [1".to_owned(), Format::Yaml, "line"),
        ("a: 1\na: 2".to_owned(), Format::Yaml, "line 2: 'a' stands twice"),
        ("a: 1\n---\nb: 2".to_owned(), Format::Yaml, "more than one"),
        ("# only this".to_owned(), Format::Yaml, "nothing in it"),
        ("a: &x [*x]".to_owned(), Format::Yaml, "within what it stands for"),
        ("a: *x".to_owned(), Format::Yaml, "unknown anchor"),
        ("[a]: 1".to_owned(), Format::Yaml, "a name is no text"),
        (deep("[", "]"), Format::Yaml, "recursion limit"),
        (deep("- ", ""), Format::Yaml, "nested"),
        (deep("[", "]"), Format::Json, "nested"),
        ("{\"a\": 1,}".to_owned(), Format::Json, "line 1"),
        ("{\"a\": 1, \"\\u0061\": 2}".to_owned(), Format::Json, "'a' stands twice"),
        ("{} {}".to_owned(), Format::Json, "trailing"),
    ] {
        let error = Document::parse(text.clone(), format).unwrap_err();
        assert!(error.contains(wants) && error.lines().count() == 1, "{text:.40}: {error}");
    }
}

/// Each alias doubles what the one before it stands for: read without ever being spelled out.
#[test]
fn aliases_of_aliases_cost_nothing() {
    let mut bomb = "a0: &a0 [x, x]\n".to_owned();
    for level in 1..60 {
        bomb += &format!("a{level}: &a{level} [*a{0}, *a{0}]\n", level - 1);
    }
    assert_eq!(read(&bomb).root().members().len(), 60);
}
