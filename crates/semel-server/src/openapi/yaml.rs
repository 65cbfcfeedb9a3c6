//! YAML 1.2, with where each value stands.

use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;

use saphyr_parser::{Event, Parser, ScalarStyle, Span, StrInput};

use super::document::{DEPTH_MAX, Member, Node, What};

/// Reads a text of one document.
///
/// # Errors
///
/// One line that says what is wrong, and where.
pub fn parse(text: &str) -> Result<Rc<Node>, String> {
    let bytes = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
    let mut reader = Reader { events: Parser::new_from_str(text), bytes, anchors: HashMap::new() };
    let mut root = None;
    loop {
        match reader.next()? {
            (Event::StreamStart | Event::DocumentStart(_) | Event::DocumentEnd | Event::Nothing, _) => {}
            (Event::StreamEnd, _) => return root.ok_or_else(|| "there is nothing in it".to_owned()),
            _ if root.is_some() => return Err("it holds more than one YAML document".to_owned()),
            (event, span) => root = Some(reader.node(event, span, false, 0)?),
        }
    }
}

struct Reader<'a> {
    events: Parser<'a, StrInput<'a>>,
    /// Where each character begins: the parser counts characters.
    bytes: Vec<usize>,
    anchors: HashMap<usize, Rc<Node>>,
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Result<(Event<'a>, Span), String> {
        let next = self.events.next().unwrap_or(Ok((Event::StreamEnd, Span::default())));
        next.map_err(|error| error.to_string())
    }

    fn range(&self, from: Span, to: Span) -> Range<usize> {
        let at = |index: usize| self.bytes.get(index).or(self.bytes.last()).copied().unwrap_or_default();
        at(from.start.index())..at(to.end.index())
    }

    fn node(&mut self, event: Event<'a>, span: Span, shared: bool, depth: usize) -> Result<Rc<Node>, String> {
        if depth > DEPTH_MAX {
            return Err(format!("line {}: it is nested deeper than {DEPTH_MAX}", span.start.line()));
        }
        let (anchor, shared) = match &event {
            Event::Scalar(_, _, anchor, _)
            | Event::SequenceStart(anchor, _)
            | Event::MappingStart(anchor, _) => (*anchor, shared || *anchor > 0),
            _ => (0, shared),
        };
        let (what, end, flow) = match event {
            Event::Scalar(text, style, ..) => {
                let flow = !matches!(style, ScalarStyle::Literal | ScalarStyle::Folded);
                (What::Scalar(text.into_owned()), span, flow)
            }
            Event::Alias(anchor) => {
                let target = self.anchors.get(&anchor).cloned();
                let target = target.ok_or_else(|| {
                    format!("line {}: an alias stands within what it stands for", span.start.line())
                })?;
                (What::Alias(target), span, true)
            }
            Event::SequenceStart(..) => {
                let mut items = Vec::new();
                let end = loop {
                    match self.next()? {
                        (Event::SequenceEnd, end) => break end,
                        (event, span) => items.push(self.node(event, span, shared, depth + 1)?),
                    }
                };
                (What::List(items), end, !end.is_empty())
            }
            Event::MappingStart(..) => {
                let (members, end) = self.members(shared, depth)?;
                (What::Map(members), end, !end.is_empty())
            }
            other => return Err(format!("line {}: {other:?} is unexpected", span.start.line())),
        };
        let node = Rc::new(Node { what, range: self.range(span, end), flow, shared });
        if anchor > 0 {
            self.anchors.insert(anchor, Rc::clone(&node));
        }
        Ok(node)
    }

    fn members(&mut self, shared: bool, depth: usize) -> Result<(Vec<Member>, Span), String> {
        let mut members: Vec<Member> = Vec::new();
        loop {
            let (event, span) = match self.next()? {
                (Event::MappingEnd, end) => return Ok((members, end)),
                next => next,
            };
            let line = span.start.line();
            let key = self.node(event, span, shared, depth + 1)?;
            let name = key.text().ok_or_else(|| format!("line {line}: a name is no text"))?.to_owned();
            if members.iter().any(|member| member.name == name) {
                return Err(format!("line {line}: '{name}' stands twice in one mapping"));
            }
            let (event, span) = self.next()?;
            let value = self.node(event, span, shared, depth + 1)?;
            members.push(Member { name, at: key.range.start, value });
        }
    }
}
