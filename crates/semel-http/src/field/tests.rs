use bytes::Bytes;
use http::Request;
use proptest::prelude::*;

use super::*;

type Found = Result<Option<String>, FieldError>;

fn field(text: &str) -> Field {
    text.parse().unwrap()
}

fn in_body(name: &str, body: &str) -> Found {
    let parts = Request::post("/").body(()).unwrap().into_parts().0;
    field(name).find(&parts, body.as_bytes(), [])
}

fn at(name: &str, request: http::request::Builder) -> Found {
    field(name).find(&request.body(()).unwrap().into_parts().0, b"", [("id", "7"), ("of", "x")])
}

fn is(value: &str) -> Found {
    Ok(Some(value.to_owned()))
}

#[test]
fn h4_a_header_line() {
    let post = || Request::post("/");
    assert_eq!(at("header:X-Id", post()), Ok(None));
    assert_eq!(at("header:X-Id", post().header("x-id", "")), is(""));
    assert_eq!(at("header:X-Id", post().header("x-id", " a, b ")), is("a, b"));
    assert_eq!(at("header:X-Id", post().header("x-id", "a").header("x-id", "a")), is("a"));
    assert_eq!(at("header:X-Id", post().header("x-id", "a").header("x-id", "b")), Err(FieldError::Several));
    assert_eq!(at("header:X-Id", post().header("x-id", &b"\xff"[..])), Err(FieldError::NotText));
    assert_eq!(at("header:X-Id", post().header("x-id", "\u{e9}")), is("\u{e9}"));
}

#[test]
fn h4_a_parameter_of_the_query() {
    let of = |query: &str| at("query:a b", Request::post(format!("/{query}")));
    assert_eq!(of(""), Ok(None));
    assert_eq!(of("?"), Ok(None));
    assert_eq!(of("?c=1&&=2"), Ok(None));
    assert_eq!(of("?a+b=1%202+3&c"), is("1 2 3"));
    assert_eq!(of("?%61%20b"), is(""));
    assert_eq!(of("?a+b=1=2"), is("1=2"));
    assert_eq!(of("?a+b=1&a%20b=%31"), is("1"));
    assert_eq!(of("?a+b=1&a+b=2"), Err(FieldError::Several));
    assert_eq!(of("?a+b=1&a+b"), Err(FieldError::Several));
    for broken in ["?a+b=%", "?a+b=%4", "?a+b=%4g", "?%zz=1&a+b=1", "?a+b=%+1"] {
        assert_eq!(of(broken), Err(FieldError::NotForm), "{broken}");
    }
    assert_eq!(of("?c=%zz&a+b=1"), is("1"));
    assert_eq!(of("?a+b=%ff"), Err(FieldError::NotText));
}

#[test]
fn h4_a_variable_of_the_path() {
    assert_eq!(at("path:id", Request::post("/")), is("7"));
    assert_eq!(at("path:to", Request::post("/")), Ok(None));
    let parts = Request::post("/").body(()).unwrap().into_parts().0;
    assert_eq!(field("path:a").find(&parts, b"", [("a", "1"), ("a", "2")]), Err(FieldError::Several));
}

#[test]
fn h1_a_value_of_a_json_body() {
    let of = |body: &str| in_body("json:/a/0", body);
    for (value, found) in [
        ("\"k\"", "k"),
        ("\"\\u00e9\\\"\\\\\\n\"", "\u{e9}\"\\\n"),
        ("\"\"", ""),
        ("12", "12"),
        ("1.50e+2", "1.50e+2"),
        ("9007199254740993", "9007199254740993"),
        ("true", "true"),
        ("false", "false"),
    ] {
        assert_eq!(of(&format!("{{\"b\":1,\"a\":[{value}]}}")), is(found), "{value}");
    }
    for absent in ["", "{}", "[]", "1", "{\"a\":[]}", "{\"a\":[null]}", "{\"a\":\"0\"}"] {
        assert_eq!(of(absent), Ok(None), "{absent}");
    }
    assert_eq!(of("{\"a\":[[]]}"), Err(FieldError::NotScalar));
    assert_eq!(of("{\"a\":[{}]}"), Err(FieldError::NotScalar));
    assert_eq!(of("{\"a\":[\"\\ud800\"]}"), Err(FieldError::NotText));
    assert_eq!(of("{\"a\":[1],\"a\":[1]}"), Err(FieldError::Twice));
    assert_eq!(of("{\"a\":[1],\"x\":{\"b\":1,\"b\":2}}"), Err(FieldError::Twice));
    assert_eq!(of(&"[".repeat(10_000)), Err(FieldError::TooDeep));
    for broken in ["{", "a=1", " ", "\u{feff}{}"] {
        assert_eq!(of(broken), Err(FieldError::NotJson), "{broken:?}");
    }
    assert_eq!(in_body("json:", "\"k\""), is("k"));
}

#[test]
fn h1_a_field_of_a_form() {
    let of = |body: &str| in_body("form:id", body);
    assert_eq!(of(""), Ok(None));
    assert_eq!(of("a=1&id=k%C3%A9"), is("k\u{e9}"));
    assert_eq!(of("id=1&id=2"), Err(FieldError::Several));
    assert_eq!(of("id=%F"), Err(FieldError::NotForm));
    assert_eq!(of("id=%C3"), Err(FieldError::NotText));
    let parts =
        |content_type| Request::post("/").header(CONTENT_TYPE, content_type).body(()).unwrap().into_parts().0;
    let find = |content_type| field("form:id").find(&parts(content_type), b"id=1", []);
    assert_eq!(find("Multipart/form-data; boundary=x"), Err(FieldError::NotForm));
    assert_eq!(find("text/plain"), is("1"));
}

#[test]
fn h1_the_text_of_an_xml_element() {
    let of = |body: &str| in_body("xml:id", body);
    for (body, found) in [
        ("<id>k</id>", "k"),
        (
            "\u{feff}<?xml version=\"1.0\" encoding=\"UTF-8\"?>\r\n<!-- c --><a>\n<id>\n k \n</id></a>\n<!-- c -->",
            "k",
        ),
        ("<p:a xmlns:p=\"u\"><p:id x=\"1\">k</p:id></p:a>", "k"),
        ("<a><id>1 &lt;&amp;&gt;&quot;&apos;&#233;&#xE9;</id></a>", "1 <&>\"'\u{e9}\u{e9}"),
        ("<a><id><![CDATA[<x>&amp;]]></id></a>", "<x>&amp;"),
        ("<a><id>k</id><b><id> k</id></b></a>", "k"),
        ("<a><id/></a>", ""),
        ("<a><id></id></a>", ""),
    ] {
        assert_eq!(of(body), is(found), "{body}");
    }
    for absent in [
        "",
        "<a/>",
        "<a>id</a>",
        "<a id=\"k\"/>",
        "<ID>k</ID>",
        "<a><!-- <id>k</id> --></a>",
        "<a><![CDATA[<id>k</id>]]></a>",
    ] {
        assert_eq!(of(absent), Ok(None), "{absent}");
    }
    assert_eq!(of("<a><id>1</id><id>2</id></a>"), Err(FieldError::Several));
    assert_eq!(of("<a><id>1</id><id/></a>"), Err(FieldError::Several));
}

#[test]
fn h1_xml_that_readers_take_in_two_ways_is_refused() {
    let of = |body: &str| in_body("xml:id", body);
    for body in ["<id>1<b/></id>", "<id><id>1</id></id>", "<id>1<!-- -->2</id>", "<id>1<?p?></id>"] {
        assert_eq!(of(body), Err(FieldError::NotScalar), "{body}");
    }
    for body in [
        "<!DOCTYPE a><a><id>1</id></a>",
        "<!DOCTYPE a [<!ENTITY e \"x\">]><a><id>&e;</id></a>",
        "<!DOCTYPE a SYSTEM \"file:///etc/passwd\"><a/>",
        "<a><id>&e;</id></a>",
        "<a>&e;<id>1</id></a>",
    ] {
        assert_eq!(of(body), Err(FieldError::Doctype), "{body}");
    }
    for body in [
        "k",
        "<id>k",
        "<id>k</a>",
        "</id>",
        "<a><id>k</id>",
        "<a/><id>k</id>",
        "<a/>text",
        "text<a/>",
        "<id>&</id>",
        "<id>&#0;</id>",
        "<id>&#xD800;</id>",
        "<id>&#x110000;</id>",
        "<a/><![CDATA[x]]>",
        "<?xml version=\"1.0\" encoding=\"latin1\"?><id>k</id>",
        "<!-- a -- b --><id>k</id>",
        "{}",
    ] {
        assert_eq!(of(body), Err(FieldError::NotXml), "{body}");
    }
    let parts = Request::post("/").body(()).unwrap().into_parts().0;
    assert_eq!(field("xml:id").find(&parts, b"<id>\xff</id>", []), Err(FieldError::NotXml));
    assert_eq!(field("xml:id").find(&parts, b"\xff\xfe<\0i\0", []), Err(FieldError::NotXml));
    let nested = |depth| ["<a>".repeat(depth), "<id>k</id>".to_owned(), "</a>".repeat(depth)].concat();
    assert_eq!(of(&nested(127)), is("k"));
    assert_eq!(of(&nested(128)), Err(FieldError::TooDeep));
}

#[test]
fn a_field_is_written_as_it_is_read_and_a_mistake_names_what_is_right() {
    for text in ["header:x-id", "query:a", "path:id", "json:/a/0", "json:", "form:a b", "xml:request-id"] {
        assert_eq!(field(text).to_string(), text);
    }
    assert_eq!(field("header:X-Id").to_string(), "header:x-id");
    let error = |text: &str| text.parse::<Field>().unwrap_err().to_string();
    let places = "write header:NAME, query:NAME, path:NAME, json:/POINTER, form:NAME or xml:NAME";
    for wrong in ["cookie:a", "a", "", "Header:a", "json/a"] {
        assert_eq!(error(wrong), format!("{wrong:?} names no field: {places}"));
    }
    for wrong in ["header:", "header:a b", "query:", "path:", "form:", "xml:", "xml:a:b", "xml:1", "xml:<a>"]
    {
        assert!(error(wrong).ends_with("is no name there"), "{wrong}: {}", error(wrong));
    }
    assert_eq!(error("json:a"), "\"json:a\" names no field: a JSON pointer begins with /, as in /payment/id");
}

proptest! {
    #[test]
    fn what_is_written_into_a_body_is_found_there(text in "\\PC{0,20}") {
        let hex: String = text.bytes().map(|byte| format!("%{byte:02x}")).collect();
        prop_assert_eq!(in_body("form:id", &format!("id={hex}")), is(&text));
        let units: String = text.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect();
        prop_assert_eq!(in_body("json:/id", &format!("{{\"id\":\"{units}\"}}")), is(&text));
        let numbers: String = text.chars().map(|letter| format!("&#{};", u32::from(letter))).collect();
        prop_assert_eq!(in_body("xml:id", &format!("<id>{numbers}</id>")), is(text.trim_matches([' ', '\t', '\n', '\r'])));
    }

    #[test]
    fn no_bytes_panic(body in prop::collection::vec(any::<u8>(), 0..64), markup in "(<|>|/|id|&|;|#|x|!|\\[|CDATA|--|\\?|\"|=| |%|\\{|:){0,16}") {
        let parts = Request::post("/").body(()).unwrap().into_parts().0;
        for name in ["json:/id", "form:id", "xml:id"] {
            let _ = field(name).find(&parts, &Bytes::from(body.clone()), []);
            let _ = field(name).find(&parts, markup.as_bytes(), []);
        }
    }
}
