//! The policy as a page: readable without script, in dark and in light, with nothing loaded from elsewhere.
//!
//! Everything that comes from the configuration is escaped, in [`Text`]: a pattern may hold `<` and `&`.

use std::fmt;

use super::{ORDER, Policy};

const STYLE: &str = "\
:root{color-scheme:light dark;--ink:#1c1c1a;--soft:#5f5e58;--line:#dddbd3;--paper:#fbfaf6;--mark:#f0eee6}\
@media(prefers-color-scheme:dark){:root{--ink:#ecebe5;--soft:#a3a199;--line:#3a3935;--paper:#191917;--mark:#262522}}\
body{margin:0 auto;padding:2rem 1.25rem 4rem;max-width:56rem;background:var(--paper);color:var(--ink);\
font:1rem/1.55 system-ui,sans-serif}\
h1{font-size:1.6rem;margin:0 0 .5rem}h2{font-size:1.15rem;margin:2.2rem 0 .5rem}\
h3{font-size:1rem;margin:1.4rem 0 .4rem}\
code,h3{font-family:ui-monospace,monospace;overflow-wrap:anywhere}code{font-size:.92em}\
.wide{overflow-x:auto}table{border-collapse:collapse;width:100%;font-size:.94rem}\
th,td{text-align:left;vertical-align:top;padding:.35rem .9rem .35rem 0;border-bottom:1px solid var(--line)}\
th{font-weight:600}tbody th{font-weight:400;color:var(--soft);width:min(17rem,45%)}\
thead th{color:var(--soft)}p,li{max-width:44rem}li{margin:.3rem 0}\
.key{background:var(--mark);padding:.6rem .9rem;border-radius:.4rem}";

/// The page.
pub fn page(policy: &Policy) -> String {
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>Idempotency policy</title>\n<style>{STYLE}</style>\n</head>\n<body>\n\
         <h1>Idempotency policy</h1>\n<p class=\"key\">{}</p>\n<h2>What is guarded</h2>\n\
         <p>{}</p>\n",
        Text(&policy.key.text),
        Text(ORDER)
    );
    for (name, rows) in policy.tables() {
        page += &format!("<h3>{}</h3>\n<div class=\"wide\"><table><tbody>\n", Text(name));
        for (name, value) in rows {
            page += &format!("<tr><th scope=\"row\">{}</th><td>{}</td></tr>\n", Text(name), Text(&value));
        }
        page += "</tbody></table></div>\n";
    }
    for (title, lines) in policy.sections() {
        page += &format!("<h2>{}</h2>\n<ul>\n", Text(title));
        page.extend(lines.iter().map(|line| format!("<li>{}</li>\n", Text(line))));
        page += "</ul>\n";
    }
    page += "<h2>Refusals</h2>\n<p>Each is a problem document (RFC 9457) with these members.</p>\n\
             <div class=\"wide\"><table>\n<thead><tr><th scope=\"col\">status</th><th scope=\"col\">code</th>\
             <th scope=\"col\">retryable</th><th scope=\"col\">effect</th><th scope=\"col\"></th></tr></thead>\n<tbody>\n";
    for refusal in &policy.refusals {
        page += &format!(
            "<tr><td>{}</td><td><code>{}</code></td><td>{}</td><td>{}</td><td>{}</td></tr>\n",
            refusal.status,
            Text(refusal.code),
            refusal.retryable,
            refusal.effect(),
            Text(refusal.title)
        );
    }
    page += "</tbody></table></div>\n</body>\n</html>\n";
    page
}

/// Text between tags or in quotes.
struct Text<'a>(&'a str);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for char in self.0.chars() {
            match char {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                char => f.write_str(char.encode_utf8(&mut [0; 4]))?,
            }
        }
        Ok(())
    }
}
