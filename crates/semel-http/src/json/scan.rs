//! The letters of JSON: RFC 8259, sections 2, 6 and 7.

/// The text is no JSON.
#[derive(Debug)]
pub(super) struct NotJson;

/// Reads a text from its start to its end.
pub(super) struct Scan<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Scan<'a> {
    /// The text is UTF-8, so what is copied out of it between two ASCII letters is UTF-8 too.
    pub(super) fn new(text: &'a str) -> Scan<'a> {
        Scan { text: text.as_bytes(), at: 0 }
    }

    /// The next letter that is not white space; it is not consumed.
    pub(super) fn peek(&mut self) -> Result<u8, NotJson> {
        while self.here().is_some_and(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
        self.here().ok_or(NotJson)
    }

    /// Consumes the letter that was peeked at.
    pub(super) fn skip(&mut self) {
        self.at += 1;
    }

    /// Whether the array or object ends here; its end is consumed, and so is the comma before a further element.
    pub(super) fn closes(&mut self, bracket: u8, first: bool) -> Result<bool, NotJson> {
        let next = self.peek()?;
        if next == bracket {
            self.skip();
            return Ok(true);
        }
        if !first {
            self.expect(b',')?;
        }
        Ok(false)
    }

    /// Nothing but white space may be left.
    pub(super) fn end(&mut self) -> Result<(), NotJson> {
        if self.peek().is_ok() { Err(NotJson) } else { Ok(()) }
    }

    /// A member's name and its colon. The name is written as a string, without the colon.
    pub(super) fn name(&mut self, out: &mut Vec<u8>) -> Result<(), NotJson> {
        self.peek()?;
        self.string(out)?;
        self.expect(b':')
    }

    fn expect(&mut self, letter: u8) -> Result<(), NotJson> {
        if self.peek()? != letter {
            return Err(NotJson);
        }
        self.skip();
        Ok(())
    }

    /// A number, `true`, `false` or `null`, as it is written.
    pub(super) fn bare(&mut self) -> Result<&'a [u8], NotJson> {
        let rest = &self.text[self.at..];
        let words: [&[u8]; 3] = [b"true", b"false", b"null"];
        let length = match words.into_iter().find(|word| rest.starts_with(word)) {
            Some(word) => word.len(),
            None => number(rest).ok_or(NotJson)?,
        };
        self.at += length;
        Ok(&rest[..length])
    }

    /// A string, written with its quotes and no escapes but `\"` and `\\`.
    pub(super) fn string(&mut self, out: &mut Vec<u8>) -> Result<(), NotJson> {
        if self.here() != Some(b'"') {
            return Err(NotJson);
        }
        self.skip();
        out.push(b'"');
        loop {
            let rest = &self.text[self.at..];
            let plain = |byte: &u8| matches!(byte, b'"' | b'\\' | 0..=0x1f);
            let length = rest.iter().position(plain).ok_or(NotJson)?;
            out.extend_from_slice(&rest[..length]);
            self.at += length + 1;
            match rest[length] {
                b'"' => break,
                b'\\' => self.escape(out)?,
                _ => return Err(NotJson),
            }
        }
        out.push(b'"');
        Ok(())
    }

    /// What stands after a backslash.
    fn escape(&mut self, out: &mut Vec<u8>) -> Result<(), NotJson> {
        let letter = self.here().ok_or(NotJson)?;
        self.skip();
        let unit = match letter {
            b'"' | b'\\' | b'/' => u32::from(letter),
            b'b' => 0x08,
            b'f' => 0x0c,
            b'n' => 0x0a,
            b'r' => 0x0d,
            b't' => 0x09,
            b'u' => self.code_point()?,
            _ => return Err(NotJson),
        };
        write(unit, out);
        Ok(())
    }

    /// The digits after `\u`, and those of the other half where this is the first of two.
    fn code_point(&mut self) -> Result<u32, NotJson> {
        let first = self.hex()?;
        if (0xd800..0xdc00).contains(&first) && self.text[self.at..].starts_with(b"\\u") {
            let back = self.at;
            self.at += 2;
            let second = self.hex()?;
            if (0xdc00..0xe000).contains(&second) {
                return Ok(0x1_0000 + ((first - 0xd800) << 10) + (second - 0xdc00));
            }
            // The first is alone; the second is read as what it is.
            self.at = back;
        }
        Ok(first)
    }

    fn hex(&mut self) -> Result<u32, NotJson> {
        let digits = self.text.get(self.at..self.at + 4).ok_or(NotJson)?;
        self.at += 4;
        digits.iter().try_fold(0, |number, digit| {
            let digit = char::from(*digit).to_digit(16).ok_or(NotJson)?;
            Ok(number << 4 | digit)
        })
    }

    fn here(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }
}

/// Writes a code point as UTF-8. A lone surrogate takes the three bytes of its number, as UTF-8 would if it might.
fn write(code_point: u32, out: &mut Vec<u8>) {
    match char::from_u32(code_point) {
        Some(letter @ ('"' | '\\')) => out.extend([b'\\', letter as u8]),
        Some(letter) => out.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes()),
        None => out.extend([
            0xe0 | (code_point >> 12) as u8,
            0x80 | (code_point >> 6 & 0x3f) as u8,
            0x80 | (code_point & 0x3f) as u8,
        ]),
    }
}

/// How long the number is that the text begins with.
fn number(text: &[u8]) -> Option<usize> {
    let digits = |from: usize| text[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let at_least_one = |from: usize| Some(digits(from)).filter(|count| *count > 0).map(|count| from + count);
    let sign = usize::from(text.first() == Some(&b'-'));
    let mut end = match text.get(sign) {
        Some(b'0') => sign + 1,
        _ => at_least_one(sign)?,
    };
    if text.get(end) == Some(&b'.') {
        end = at_least_one(end + 1)?;
    }
    if let Some(b'e' | b'E') = text.get(end) {
        let signed = usize::from(matches!(text.get(end + 1), Some(b'+' | b'-')));
        end = at_least_one(end + 1 + signed)?;
    }
    Some(end)
}
