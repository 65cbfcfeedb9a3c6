//! A document as its author wrote it, and what is to be put in.
//!
//! 1. Nothing of the text is written anew: what is added is put in between, so comments, order, quotes and numbers stay
//!    as they are, to the byte. A document in which nothing is missing comes out as it went in.
//! 2. JSON is put into JSON, in its own indentation; and into YAML's flow style, which JSON is a part of. Into YAML's
//!    block style lines are put in, below the last one of the mapping or the list.
//! 3. What several places share (an anchor, and whatever stands below it) is read and never added to: an addition for
//!    one place would be one for all.

use std::ops::Range;
use std::rc::Rc;

use super::piece::Piece;
use super::{json, yaml};

/// The deepest nesting that is read.
pub const DEPTH_MAX: usize = 128;

/// How a document is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Json,
    Yaml,
}

/// A document, and what is to be put in.
#[derive(Debug)]
pub struct Document {
    text: String,
    format: Format,
    root: Rc<Node>,
    insertions: Vec<Insertion>,
}

/// A value, and where it stands.
#[derive(Debug)]
pub struct Node {
    pub what: What,
    /// In bytes.
    pub range: Range<usize>,
    /// Whether it stands in brackets or braces.
    pub flow: bool,
    /// Whether it stands in several places.
    pub shared: bool,
}

#[derive(Debug)]
pub enum What {
    Map(Vec<Member>),
    List(Vec<Rc<Node>>),
    Scalar(String),
    /// What stands at an anchor.
    Alias(Rc<Node>),
}

#[derive(Debug)]
pub struct Member {
    pub name: String,
    /// Where the name begins.
    pub at: usize,
    pub value: Rc<Node>,
}

#[derive(Debug)]
struct Insertion {
    at: usize,
    /// Of several at one place the deepest comes first: it belongs to what ends there.
    depth: usize,
    text: String,
}

impl Document {
    /// Reads it.
    ///
    /// # Errors
    ///
    /// One line that says what is wrong, and where.
    pub fn parse(text: String, format: Format) -> Result<Document, String> {
        let root = match format {
            Format::Json => json::parse(&text)?,
            Format::Yaml => yaml::parse(&text)?,
        };
        Ok(Document { text, format, root, insertions: Vec::new() })
    }

    /// What it says.
    pub fn root(&self) -> Rc<Node> {
        Rc::clone(&self.root)
    }

    /// Puts members at the end of a mapping. `false`, and nothing is done, where that cannot be: it is no mapping, or it
    /// is shared, or it is merged from others (`<<`), whose members an addition could hide.
    pub fn add_members(&mut self, map: &Node, members: Vec<(String, Piece)>) -> bool {
        let What::Map(present) = &map.what else { return false };
        if map.shared || map.get("<<").is_some() {
            return false;
        }
        if members.is_empty() {
            return true;
        }
        let first = present.first().map(|member| member.at);
        let last = present.last().map(|member| &*member.value);
        if map.flow {
            let parts =
                |style: &Style| members.iter().map(|(name, value)| style.member(name, value)).collect();
            self.insert_in_flow(map, first, last, parts);
        } else if let (Some(first), Some(last)) = (first, last) {
            let depth = self.column(self.key_start(first));
            let indent = " ".repeat(depth);
            let lines: String =
                members.iter().map(|(name, value)| value.block_member(name, &indent)).collect();
            self.insert_lines(last, depth, lines);
        }
        true
    }

    /// Puts items at the end of a list. `false` as for [`Document::add_members`].
    pub fn add_items(&mut self, list: &Node, items: &[Piece]) -> bool {
        let What::List(present) = &list.what else { return false };
        if list.shared {
            return false;
        }
        let first = present.first().map(|item| item.range.start);
        let last = present.last().map(|item| &**item);
        if list.flow {
            let parts = |style: &Style| items.iter().map(|item| style.value(item)).collect();
            self.insert_in_flow(list, first, last, parts);
        } else if let (Some(first), Some(last)) = (first, last) {
            // Where the dash stands says how far the items are indented.
            let dash = self.text[..first].trim_end().len().saturating_sub(1);
            // A tag or the mark of a block scalar may stand in between.
            if self.text.as_bytes().get(dash) != Some(&b'-') {
                return false;
            }
            let depth = self.column(dash);
            let lines: String = items.iter().map(|item| item.block_item(&" ".repeat(depth))).collect();
            self.insert_lines(last, depth, lines);
        }
        true
    }

    /// The text with everything that was put in.
    pub fn finish(mut self) -> String {
        self.insertions.sort_by(|one, other| one.at.cmp(&other.at).then(other.depth.cmp(&one.depth)));
        let newline = self.newline();
        let mut out = String::with_capacity(self.text.len() * 2);
        let mut done = 0;
        for Insertion { at, text, .. } in &self.insertions {
            out += &self.text[done..*at];
            done = *at;
            // Whole lines go to the beginning of a line, also after a last one that has no end.
            if text.ends_with('\n') && !out.ends_with('\n') {
                out += newline;
            }
            out += &text.replace('\n', newline);
        }
        out + &self.text[done..]
    }

    fn newline(&self) -> &'static str {
        if self.text.contains("\r\n") { "\r\n" } else { "\n" }
    }

    /// Where a mapping's key begins, with the `?` that may stand before it.
    fn key_start(&self, at: usize) -> usize {
        let before = self.text[..at].trim_end_matches([' ', '\t']);
        let is_marked = before.len() < at && before.ends_with('?');
        if is_marked { before.len() - 1 } else { at }
    }

    /// How many characters stand before it in its line.
    fn column(&self, at: usize) -> usize {
        self.text[self.line_start(at)..at].chars().count()
    }

    fn line_start(&self, at: usize) -> usize {
        self.text[..at].rfind('\n').map_or(0, |newline| newline + 1)
    }

    /// What the line of that place is indented by.
    fn indent(&self, at: usize) -> &str {
        let line = &self.text[self.line_start(at)..];
        &line[..line.len() - line.trim_start_matches([' ', '\t']).len()]
    }

    fn insert_lines(&mut self, last: &Node, depth: usize, text: String) {
        let at = self.line_after(last);
        self.insertions.push(Insertion { at, depth, text });
    }

    /// The beginning of the line after a value.
    fn line_after(&self, last: &Node) -> usize {
        let last = last.last_leaf();
        let end = last.range.end;
        // With `|+` the empty lines below belong to it.
        let keeps = !last.flow && matches!(&last.what, What::Scalar(text) if text.ends_with("\n\n"));
        let end = if keeps { self.line_start(end) } else { self.text[..end].trim_end().len() };
        if keeps && end > 0 {
            return end;
        }
        self.text[end..].find('\n').map_or(self.text.len(), |newline| end + newline + 1)
    }

    fn insert_in_flow(
        &mut self,
        of: &Node,
        first: Option<usize>,
        last: Option<&Node>,
        parts: impl FnOnce(&Style) -> Vec<String>,
    ) {
        let open = of.range.start;
        let text = match (first, last) {
            (Some(first), Some(_)) => {
                let is_tall = self.text[open..first].contains('\n');
                let style = self.style(is_tall.then(|| self.indent(first).to_owned()));
                let parts = parts(&style);
                parts.iter().map(|part| format!(",{}{part}", style.between)).collect()
            }
            _ => {
                let outer = self.indent(open).to_owned();
                let is_tall = self.format == Format::Json && self.text.trim_end().contains('\n');
                let inner = format!("{outer}{}", self.unit());
                let style = self.style(is_tall.then_some(inner));
                let text = parts(&style).join(&format!(",{}", style.between));
                if is_tall { format!("{}{text}\n{outer}", style.between) } else { text }
            }
        };
        let at = last.map_or(open + 1, |last| last.range.end);
        self.insertions.push(Insertion { at, depth: usize::MAX, text });
    }

    fn style(&self, indent: Option<String>) -> Style {
        let is_small = self.format == Format::Json && !self.text.trim_end().contains('\n');
        let between = match &indent {
            Some(indent) => format!("\n{indent}"),
            None if is_small => String::new(),
            None => " ".to_owned(),
        };
        Style { indent, unit: self.unit(), between, is_small }
    }

    /// What one level is indented by.
    fn unit(&self) -> String {
        let first = match &self.root.what {
            What::Map(members) if self.format == Format::Json => members.first().map(|member| member.at),
            _ => None,
        };
        let unit = first.map(|at| self.indent(at)).filter(|unit| !unit.is_empty());
        unit.unwrap_or("  ").to_owned()
    }
}

/// How JSON is written at one place.
struct Style {
    /// Of its line, where each member has a line of its own.
    indent: Option<String>,
    unit: String,
    between: String,
    is_small: bool,
}

impl Style {
    fn value(&self, piece: &Piece) -> String {
        match &self.indent {
            Some(indent) => piece.tall(indent, &self.unit),
            None => piece.flat(if self.is_small { "" } else { " " }),
        }
    }

    fn member(&self, name: &str, value: &Piece) -> String {
        let space = if self.is_small { "" } else { " " };
        format!("{}:{space}{}", super::piece::quoted(name), self.value(value))
    }
}

impl Node {
    /// What an alias stands for, or itself.
    pub fn target(&self) -> &Node {
        match &self.what {
            What::Alias(target) => target.target(),
            _ => self,
        }
    }

    /// The member of that name, of a mapping.
    pub fn get(&self, name: &str) -> Option<&Node> {
        self.members().iter().find(|member| member.name == name).map(|member| member.value.target())
    }

    /// The members, of a mapping; else none.
    pub fn members(&self) -> &[Member] {
        match &self.target().what {
            What::Map(members) => members,
            _ => &[],
        }
    }

    /// The items, of a list; else none.
    pub fn items(&self) -> impl Iterator<Item = &Node> {
        let items: &[Rc<Node>] = match &self.target().what {
            What::List(items) => items,
            _ => &[],
        };
        items.iter().map(|item| item.target())
    }

    /// The text of a string, a number, a boolean.
    pub fn text(&self) -> Option<&str> {
        match &self.target().what {
            What::Scalar(text) => Some(text),
            _ => None,
        }
    }

    /// The text of a member.
    pub fn text_of(&self, name: &str) -> Option<&str> {
        self.get(name).and_then(Node::text)
    }

    fn last_leaf(&self) -> &Node {
        let last = match &self.what {
            _ if self.flow => None,
            What::Map(members) => members.last().map(|member| &*member.value),
            What::List(items) => items.last().map(|item| &**item),
            What::Scalar(_) | What::Alias(_) => None,
        };
        last.map_or(self, Node::last_leaf)
    }
}

#[cfg(test)]
mod tests;
