use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn without(text: &str, pointers: &[&str]) -> Result<String, Fault> {
    let pointers: Vec<Pointer> = pointers.iter().map(|pointer| pointer.parse().unwrap()).collect();
    form(text.as_bytes(), &pointers).map(|form| String::from_utf8_lossy(&form.text).into_owned())
}

fn of(text: &str) -> Result<String, Fault> {
    without(text, &[])
}

#[track_caller]
fn same(one: &str, other: &str) {
    assert!(of(one).is_ok(), "{one}: {:?}", of(one));
    assert_eq!(of(one), of(other), "{one} and {other}");
}

#[track_caller]
fn differ(one: &str, other: &str) {
    assert!(of(one).is_ok() && of(other).is_ok(), "{one}: {:?}, {other}: {:?}", of(one), of(other));
    assert_ne!(form(one.as_bytes(), &[]).unwrap(), form(other.as_bytes(), &[]).unwrap());
}

#[test]
fn the_form_stays_as_it_is() {
    let text =
        " { \"b\" : [ 1 , -2.50E+3 , { } , [ ] ] , \"a\\u0022\\n\" : \"\\u00e9\\/\\\\\" , \"a\" : null } ";
    assert_eq!(of(text).unwrap(), "{\"a\":null,\"a\\\"\n\":\"\u{e9}/\\\\\",\"b\":[1,-2.50E+3,{},[],],}");
}

#[test]
fn c97_members_in_another_order_and_white_space_are_the_same() {
    same(
        r#"{"amount":5,"to":{"iban":"X","name":"Y"}}"#,
        "{ \"to\" : {\t\"name\":\"Y\",\r\n\"iban\":\"X\" }, \"amount\":5 }",
    );
    differ(r#"{"amount":5}"#, r#"{"amount":6}"#);
    same("1", " 1\n");
}

#[test]
fn c24_numbers_are_compared_as_written() {
    for (one, other) in [
        ("9007199254740992", "9007199254740993"),
        ("0.1", "0.10000000000000001"),
        ("1e400", "1e401"),
        ("1", "1.0"),
        ("1", "1e0"),
        ("1e0", "1E0"),
        ("1e0", "1e+0"),
        ("0", "-0"),
        ("18446744073709551615", "18446744073709552000"),
    ] {
        differ(one, other);
        differ(&format!("[{one}]"), &format!("[{other}]"));
    }
}

#[test]
fn c96_order_case_space_and_kind_are_significant() {
    for (one, other) in [
        ("[1,2]", "[2,1]"),
        (r#"["debit","credit"]"#, r#"["credit","debit"]"#),
        (r#"{"a":null}"#, "{}"),
        ("\"1\"", "1"),
        ("true", "1"),
        ("\"A\"", "\"a\""),
        ("\"x \"", "\"x\""),
        ("\"e\u{301}\"", "\"\u{e9}\""),
        ("[]", "{}"),
        ("[[],[]]", "[[[]]]"),
        (r#"{"a":{"b":1}}"#, r#"{"a":{},"b":1}"#),
        (r#"["a,b"]"#, r#"["a","b"]"#),
        (r#"["a\",\"b"]"#, r#"["a","b"]"#),
        (r#"{"a\":\"b":1}"#, r#"{"a":"b"}"#),
        ("[12]", "[1,2]"),
    ] {
        differ(one, other);
    }
}

#[test]
fn strings_are_what_they_stand_for() {
    same(r#""\u0061\u00E9\/""#, "\"a\u{e9}/\"");
    same(r#""\ud83d\ude00""#, "\"\u{1f600}\"");
    same(r#""\u0022\u005c\u000a""#, r#""\"\\\n""#);
    same("\"\\u007f\"", "\"\u{7f}\"");
    differ(r#""\\u0061""#, r#""a""#);
    differ(r#""\"""#, r#""\\""#);
}

#[test]
fn a_lone_surrogate_is_itself() {
    let lone =
        [r"\ud800", r"\ud801", r"\udc00", r"\udfff", r"\ude00\ud83d", r"\ud800\ud800", r"\ufffd", r"?", ""];
    for (at, one) in lone.iter().enumerate() {
        for other in &lone[at + 1..] {
            differ(&format!("\"{one}\""), &format!("\"{other}\""));
            differ(&format!("{{\"{one}\":1}}"), &format!("{{\"{other}\":1}}"));
        }
    }
    // The second of two lone ones pairs with what follows it.
    differ(r#""\ud800\ud83d\ude00""#, r#""\ud800\ud83d""#);
    same(r#""\ud800\ud83d\ude00""#, "\"\\ud800\u{1f600}\"");
}

#[test]
fn c24_a_member_twice_is_refused_wherever_it_stands() {
    for text in [
        r#"{"a":1,"a":2}"#,
        r#"{"a":1,"a":1}"#,
        r#"{"a":1,"\u0061":1}"#,
        r#"{"b":0,"a":1,"c":2,"a":1}"#,
        r#"[{"x":{"":1,"":1}}]"#,
        r#"{"\ud800":1,"\uD800":1}"#,
    ] {
        assert_eq!(of(text), Err(Fault::Twice), "{text}");
        assert_eq!(without(text, &["/a", "/x"]), Err(Fault::Twice), "{text}");
    }
    assert!(of(r#"[{"a":1},{"a":2}]"#).is_ok());
    assert!(of(r#"{"a":{"a":{"a":1}}}"#).is_ok());
}

#[test]
fn c24_depth_is_bounded_and_a_deeper_text_is_no_overflow() {
    let nested = |open: &str, close: &str, depth| format!("{}1{}", open.repeat(depth), close.repeat(depth));
    for (open, close) in [("[", "]"), (r#"{"a":"#, "}")] {
        assert!(of(&nested(open, close, DEPTH_MAX)).is_ok());
        assert_eq!(of(&nested(open, close, DEPTH_MAX + 1)), Err(Fault::TooDeep));
        assert_eq!(of(&open.repeat(1_000_000)), Err(Fault::TooDeep));
    }
}

#[test]
fn what_is_no_json_is_none() {
    for text in [
        "",
        " ",
        "nul",
        "nulll",
        "True",
        "NaN",
        "Infinity",
        "01",
        "-",
        "-01",
        "+1",
        ".5",
        "1.",
        "1.e1",
        "1e",
        "1e+",
        "0x1",
        "1 2",
        "{} x",
        "[1,]",
        "[,1]",
        "[1 2]",
        "[1",
        "]",
        "{\"a\"}",
        "{\"a\":}",
        "{\"a\":1,}",
        "{a:1}",
        "{1:1}",
        "{\"a\" 1}",
        "{\"a\":1",
        "{,}",
        "'a'",
        "\"",
        "\"a",
        "\"\\\"",
        "\"\\x\"",
        "\"\\u12\"",
        "\"\\u12g4\"",
        "\"\\ud800\\u\"",
        "\"a\nb\"",
        "\"a\tb\"",
        "\"\0\"",
        "\u{feff}1",
        "1\u{a0}",
        "// c\n1",
        "1\0",
    ] {
        assert_eq!(of(text), Err(Fault::NotJson), "{text:?}");
    }
    for bytes in [&b"\"\xff\""[..], b"\"\xed\xa0\x80\"", b"\"\xc0\xaf\"", b"\xfe\xff\0\x31", b"\"\xc3\""] {
        assert_eq!(form(bytes, &[]), Err(Fault::NotJson), "{bytes:?}");
    }
}

#[test]
fn c70_what_a_pointer_names_is_out_as_if_it_had_never_stood_there() {
    let text = r#"{"amount":5,"meta":{"attempt":1,"at":"x"},"card":{"blob":"y"},"list":[{"n":1},{"n":2},3]}"#;
    let out = |pointers: &[&str]| without(text, pointers).unwrap();
    assert_eq!(out(&["/meta/attempt"]), of(&text.replace("\"attempt\":1,", "")).unwrap());
    assert_eq!(out(&["/meta/attempt", "/card/blob"]), out(&["/card/blob", "/meta/attempt"]));
    assert_eq!(out(&["/meta/attempt", "/meta"]), out(&["/meta"]));
    assert_eq!(out(&["/list/1"]), of(&text.replace(r#"{"n":2},"#, "")).unwrap());
    assert_eq!(
        out(&["/list/0", "/list/2"]),
        of(&text.replace(r#"{"n":1},{"n":2},3"#, r#"{"n":2}"#)).unwrap()
    );
    for nowhere in ["/x", "/amount/x", "/list/3", "/list/01", "/list/n", "/meta/attempt/0", "/list/1/n/0"] {
        assert_eq!(out(&[nowhere]), of(text).unwrap(), "{nowhere}");
    }
    assert_eq!(without(r#"{"a":1}"#, &["/a"]).unwrap(), "{}");
    assert_eq!(without(r#"{"1":1,"2":2}"#, &["/1"]).unwrap(), r#"{"2":2,}"#);
}

#[test]
fn rfc_6901_section_5() {
    let text = r#"{"foo":["bar","baz"],"":0,"a/b":1,"c%d":2,"e^f":3,"g|h":4,"i\\j":5,"k\"l":6," ":7,"m~n":8,"~1":9}"#;
    for (pointer, value) in [
        ("/foo", r#"["bar","baz",]"#),
        ("/foo/0", r#""bar""#),
        ("/", "0"),
        ("/a~1b", "1"),
        ("/c%d", "2"),
        ("/e^f", "3"),
        ("/g|h", "4"),
        ("/i\\j", "5"),
        ("/k\"l", "6"),
        ("/ ", "7"),
        ("/m~0n", "8"),
        ("/~01", "9"),
    ] {
        let taken = form(text.as_bytes(), &[pointer.parse().unwrap()]).unwrap().taken;
        assert_eq!(taken, [Some(value.as_bytes().to_vec())], "{pointer}");
    }
    let whole = form(b"[1]", &["".parse().unwrap()]).unwrap();
    assert_eq!(whole.taken, [Some(b"[1,]".to_vec())]);
}

#[test]
fn a_malformed_pointer_says_why() {
    for (text, why) in [
        ("a", PointerError::NoSlash),
        ("#/a", PointerError::NoSlash),
        ("/a~", PointerError::Escape),
        ("/~2", PointerError::Escape),
        ("/a/-", PointerError::AfterLast),
        ("/-/a", PointerError::AfterLast),
    ] {
        assert_eq!(text.parse::<Pointer>(), Err(why), "{text}");
    }
    for text in ["", "/", "/a~0~1/0", "/-a", "/99999999999999999999999"] {
        assert_eq!(text.parse::<Pointer>().unwrap().to_string(), text);
    }
}

/// A document as RFC 8259 means it, apart from how it is written.
#[derive(Debug, Clone, PartialEq)]
enum Value {
    Word(&'static str),
    /// As written.
    Number(String),
    /// UTF-16, where lone surrogates are nothing special.
    Text(Vec<u16>),
    Array(Vec<Value>),
    Object(BTreeMap<Vec<u16>, Value>),
}

fn units() -> impl Strategy<Value = Vec<u16>> {
    let unit = prop::sample::select(vec![
        0x61, 0x62, 0x22, 0x5c, 0x0a, 0x2f, 0xe9, 0x2c, 0xd83d, 0xde00, 0xd800, 0xfffd,
    ]);
    prop::collection::vec(unit, 0..4)
}

fn value() -> impl Strategy<Value = Value> {
    let number =
        prop::sample::select(vec!["0", "-0", "1", "10", "1.0", "1e0", "1E+0", "0.10", "9007199254740993"]);
    let scalar = prop_oneof![
        prop::sample::select(vec!["null", "true", "false"]).prop_map(Value::Word),
        number.prop_map(|number| Value::Number(number.to_owned())),
        units().prop_map(Value::Text),
    ];
    scalar.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
            prop::collection::btree_map(units(), inner, 0..4).prop_map(Value::Object),
        ]
    })
}

/// Writes a value in one of its many ways; the choices come from `dice`.
fn write(value: &Value, dice: &mut impl FnMut(usize) -> usize, out: &mut String) {
    let space = |out: &mut String, dice: &mut dyn FnMut(usize) -> usize| {
        out.push_str(["", "", " ", "\r\n\t"][dice(4)])
    };
    space(out, dice);
    match value {
        Value::Word(word) => out.push_str(word),
        Value::Number(number) => out.push_str(number),
        Value::Text(units) => write_text(units, dice, out),
        Value::Array(values) => {
            out.push('[');
            for (at, value) in values.iter().enumerate() {
                out.push_str(if at == 0 { "" } else { "," });
                write(value, dice, out);
            }
            out.push(']');
        }
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            for at in (1..members.len()).rev() {
                members.swap(at, dice(at + 1));
            }
            out.push('{');
            for (at, (name, value)) in members.into_iter().enumerate() {
                out.push_str(if at == 0 { "" } else { "," });
                space(out, dice);
                write_text(name, dice, out);
                space(out, dice);
                out.push(':');
                write(value, dice, out);
            }
            out.push('}');
        }
    }
    space(out, dice);
}

fn write_text(units: &[u16], dice: &mut impl FnMut(usize) -> usize, out: &mut String) {
    out.push('"');
    for letter in char::decode_utf16(units.iter().copied()) {
        match letter {
            Err(lone) => out.push_str(&format!("\\u{:04X}", lone.unpaired_surrogate())),
            Ok('"') if dice(2) == 0 => out.push_str("\\\""),
            Ok('\\') if dice(2) == 0 => out.push_str("\\\\"),
            Ok('\n') if dice(2) == 0 => out.push_str("\\n"),
            Ok('/') if dice(2) == 0 => out.push_str("\\/"),
            Ok(letter) if letter >= ' ' && !"\"\\".contains(letter) && dice(2) == 0 => out.push(letter),
            Ok(letter) => {
                letter
                    .encode_utf16(&mut [0; 2])
                    .iter()
                    .for_each(|unit| out.push_str(&format!("\\u{unit:04x}")));
            }
        }
    }
    out.push('"');
}

fn written(value: &Value, seed: &[u8]) -> String {
    let mut bytes = seed.iter().cycle();
    let mut out = String::new();
    write(value, &mut |sides| usize::from(*bytes.next().unwrap()) % sides, &mut out);
    out
}

/// Puts `other` in the place of the value that is met after `skip` others.
fn change(value: &mut Value, skip: &mut usize, other: &Value) {
    if *skip == 0 {
        *value = other.clone();
    }
    *skip = skip.wrapping_sub(1);
    match value {
        Value::Array(values) => values.iter_mut().for_each(|value| change(value, skip, other)),
        Value::Object(members) => members.values_mut().for_each(|value| change(value, skip, other)),
        _ => {}
    }
}

proptest! {
    #[test]
    fn h6_two_texts_of_one_value_have_one_form(
        value in value(),
        one in prop::collection::vec(any::<u8>(), 1..64),
        other in prop::collection::vec(any::<u8>(), 1..64),
    ) {
        let (one, other) = (written(&value, &one), written(&value, &other));
        let form = form(one.as_bytes(), &[]);
        prop_assert!(form.is_ok(), "{}: {:?}", one, form);
        prop_assert_eq!(form, super::form(other.as_bytes(), &[]));
    }

    #[test]
    fn h6_forms_are_equal_only_if_values_are(one in value(), other in value(), seed in prop::collection::vec(any::<u8>(), 1..64)) {
        let forms = [&one, &other].map(|value| form(written(value, &seed).as_bytes(), &[]).unwrap());
        prop_assert_eq!(forms[0] == forms[1], one == other);
    }

    /// Values that differ in one place at most, which two independent ones seldom do.
    #[test]
    fn h6_a_change_in_one_place_shows(
        value in value(),
        other in value(),
        at in 0_usize..24,
        seed in prop::collection::vec(any::<u8>(), 1..64),
    ) {
        let mut changed = value.clone();
        change(&mut changed, &mut at.clone(), &other);
        let forms = [&value, &changed].map(|value| form(written(value, &seed).as_bytes(), &[]).unwrap());
        prop_assert_eq!(forms[0] == forms[1], value == changed);
    }

    #[test]
    fn no_bytes_panic_and_the_form_is_short(bytes in prop::collection::vec(prop_oneof![any::<u8>(), prop::sample::select(b"[]{}\",:\\u019ade.-+ tfn".to_vec())], 0..80)) {
        if let Ok(form) = form(&bytes, &["/a".parse().unwrap(), "/0/1".parse().unwrap()]) {
            prop_assert!(form.text.len() <= bytes.len() + bytes.len() / 2);
        }
    }

    #[test]
    fn a_pointer_takes_out_what_it_names(mut members in prop::collection::btree_map(units(), value(), 1..4), at in any::<prop::sample::Index>(), seed in prop::collection::vec(any::<u8>(), 1..64)) {
        let whole = written(&Value::Object(members.clone()), &seed);
        let name = members.keys().nth(at.index(members.len())).unwrap().clone();
        if let Ok(text) = String::from_utf16(&name) {
            let pointer: Pointer = format!("/{}", text.replace('~', "~0").replace('/', "~1")).parse().unwrap();
            members.remove(&name);
            let rest = form(written(&Value::Object(members), &seed).as_bytes(), &[]).unwrap();
            prop_assert_eq!(form(whole.as_bytes(), &[pointer]).unwrap().text, rest.text);
        }
    }
}
