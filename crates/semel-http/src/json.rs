//! JSON text in one form: what two documents have alike when they say the same (H6), and where a field stands in one.
//!
//! 1. What is read is RFC 8259 in UTF-8, and no more. A byte-order mark, text after the value, a comma too many, an
//!    unescaped control character: no JSON.
//! 2. **Numbers stay as they are written.** `1`, `1.0`, `1e0` and `1E0` are four numbers, and nothing is ever read
//!    into a float or an integer (case C24).
//! 3. A string is the code units that it stands for: `"\u0061"` is `"a"`, `"\/"` is `"/"`, a pair of surrogates is
//!    the one character. A surrogate without its other half is kept as what it is, in the three bytes that UTF-8
//!    would give it and that no UTF-8 text holds.
//! 4. The order of members and white space do not count. The order of elements does (case C96).
//! 5. **A member twice is refused**, whatever its two values are and wherever it stands: readers differ in which one
//!    they take. Names are compared as strings, so `"a"` and `"\u0061"` are one name.
//! 6. Arrays and objects lie in each other [`DEPTH_MAX`] deep at most, which bounds the stack.
//!
//! **The form** is compact JSON with its members in the order of their names' bytes, a comma after every element and
//! member, and no escapes but `\"` and `\\`. It can be read back, so two documents that differ never share one; it is
//! never longer than half as much again as the text that it was made of.

use std::ops::Range;

mod pointer;
mod scan;

pub use pointer::{Pointer, PointerError};

use scan::{NotJson, Scan};

/// How deep arrays and objects may lie in each other.
pub const DEPTH_MAX: usize = 128;

/// Why a text has no form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It is no JSON.
    NotJson,
    /// An object has two members of one name.
    Twice,
    /// It is deeper than [`DEPTH_MAX`].
    TooDeep,
}

impl From<NotJson> for Fault {
    fn from(_: NotJson) -> Fault {
        Fault::NotJson
    }
}

/// A document in its form, without what was taken out of it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Form {
    /// The rest.
    pub(crate) text: Vec<u8>,
    /// What stood at each pointer, in its form.
    pub(crate) taken: Vec<Option<Vec<u8>>>,
}

/// Brings a document into its form, and takes out what the pointers name, as if it had never stood there. Pointers
/// count elements as the document has them, before anything is taken out.
pub(crate) fn form(text: &[u8], out_of: &[Pointer]) -> Result<Form, Fault> {
    let text = std::str::from_utf8(text).map_err(|_| Fault::NotJson)?;
    let mut walk = Walk {
        scan: Scan::new(text),
        out: Vec::with_capacity(text.len()),
        sorted: Vec::new(),
        pointers: out_of,
        taken: vec![None; out_of.len()],
    };
    let live: Vec<usize> = (0..out_of.len()).collect();
    walk.value(0, &live)?;
    walk.scan.end()?;
    walk.take(0, &live, 0);
    Ok(Form { text: walk.out, taken: walk.taken })
}

/// The text that a string in the form stands for. It may hold lone surrogates, so it need not be UTF-8.
pub(crate) fn text_of(string: &[u8]) -> Vec<u8> {
    let quoted = string.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\"")).unwrap_or(string);
    let mut text = Vec::with_capacity(quoted.len());
    let mut bytes = quoted.iter();
    while let Some(byte) = bytes.next() {
        text.push(if *byte == b'\\' { *bytes.next().unwrap_or(byte) } else { *byte });
    }
    text
}

/// One pass over the text. `depth` is how many arrays and objects lie around a value, and so how many steps of a
/// pointer lead to it; `live` are the pointers that have led here so far.
struct Walk<'a> {
    scan: Scan<'a>,
    out: Vec<u8>,
    /// Where an object's members are put in order.
    sorted: Vec<u8>,
    pointers: &'a [Pointer],
    taken: Vec<Option<Vec<u8>>>,
}

/// Where one member stands in what was written: its name in quotes, a colon, its value and a comma.
struct Member {
    name: Range<usize>,
    end: usize,
    taken: bool,
}

impl Walk<'_> {
    fn value(&mut self, depth: usize, live: &[usize]) -> Result<(), Fault> {
        match self.scan.peek()? {
            b'{' => self.object(depth, live),
            b'[' => self.array(depth, live),
            b'"' => Ok(self.scan.string(&mut self.out)?),
            _ => {
                self.out.extend_from_slice(self.scan.bare()?);
                Ok(())
            }
        }
    }

    fn array(&mut self, depth: usize, live: &[usize]) -> Result<(), Fault> {
        self.open(depth, b'[')?;
        for index in 0_usize.. {
            if self.scan.closes(b']', index == 0)? {
                break;
            }
            let start = self.out.len();
            let live = self.led_on(live, depth, |step| step.is_index(index));
            self.value(depth + 1, &live)?;
            if self.take(depth + 1, &live, start) {
                self.out.truncate(start);
            } else {
                self.out.push(b',');
            }
        }
        self.out.push(b']');
        Ok(())
    }

    fn object(&mut self, depth: usize, live: &[usize]) -> Result<(), Fault> {
        self.open(depth, b'{')?;
        let mut members: Vec<Member> = Vec::new();
        while !self.scan.closes(b'}', members.is_empty())? {
            let member = self.member(depth, live)?;
            members.push(member);
        }
        self.put_in_order(members)?;
        self.out.push(b'}');
        Ok(())
    }

    fn member(&mut self, depth: usize, live: &[usize]) -> Result<Member, Fault> {
        let start = self.out.len();
        self.scan.name(&mut self.out)?;
        let name = start..self.out.len();
        self.out.push(b':');
        let live = self.led_on(live, depth, |step| step.is_name(&self.out[name.clone()]));
        let value = self.out.len();
        self.value(depth + 1, &live)?;
        let taken = self.take(depth + 1, &live, value);
        self.out.push(b',');
        Ok(Member { name, end: self.out.len(), taken })
    }

    fn open(&mut self, depth: usize, bracket: u8) -> Result<(), Fault> {
        if depth == DEPTH_MAX {
            return Err(Fault::TooDeep);
        }
        self.scan.skip();
        self.out.push(bracket);
        Ok(())
    }

    /// The pointers whose next step is this one.
    fn led_on(&self, live: &[usize], depth: usize, is: impl Fn(&pointer::Step) -> bool) -> Vec<usize> {
        live.iter().copied().filter(|at| self.pointers[*at].step(depth).is_some_and(&is)).collect()
    }

    /// Keeps the value that begins at `start` for the pointers that end here. Whether there are any.
    fn take(&mut self, depth: usize, live: &[usize], start: usize) -> bool {
        let mut any = false;
        for at in live.iter().copied().filter(|at| self.pointers[*at].step(depth).is_none()) {
            self.taken[at] = Some(self.out[start..].to_vec());
            any = true;
        }
        any
    }

    /// Sorts the members that were written last, and leaves out those that were taken.
    fn put_in_order(&mut self, mut members: Vec<Member>) -> Result<(), Fault> {
        let Some(start) = members.first().map(|member| member.name.start) else { return Ok(()) };
        let name = |member: &Member| &self.out[member.name.clone()];
        let in_order = members.is_sorted_by(|one, other| name(one) < name(other));
        if !in_order {
            members.sort_unstable_by(|one, other| name(one).cmp(name(other)));
            if members.windows(2).any(|pair| name(&pair[0]) == name(&pair[1])) {
                return Err(Fault::Twice);
            }
        }
        if !in_order || members.iter().any(|member| member.taken) {
            self.sorted.clear();
            for member in members.iter().filter(|member| !member.taken) {
                self.sorted.extend_from_slice(&self.out[member.name.start..member.end]);
            }
            self.out.truncate(start);
            self.out.extend_from_slice(&self.sorted);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
