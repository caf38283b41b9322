//! Builds trees from the events of the YAML parser.
//!
//! Invariant: alias expansion is bounded, and building does not recurse.

use std::collections::HashMap;
use std::rc::Rc;

use serde_saphyr::granit_parser::{Event, Marker, Parser, ScalarStyle, Span, Tag, options};

use super::{Content, Entry, Node, Parsed, Position, Problem, Style};

/// Most nodes that a document may gain through aliases. Real documents use a handful; ten nested
/// "billion laughs" levels would need ten thousand million.
const MAX_ALIASED_NODES: u64 = 100_000;

/// Bytes of text that count as one more node. Copies of an alias share the text here, but not once
/// a tree is converted to something else.
const BYTES_PER_NODE: usize = 256;

/// Deepest nesting of collections, aliases followed.
const MAX_NESTING: usize = 64;

/// Most mistakes that are reported; the rest of the text is not read.
const MAX_PROBLEMS: usize = 50;

/// Reads every document of `text`.
///
/// A mistake ends its document, and reading goes on with the next one, so all mistakes of a file
/// are found at once. Aliases and merge keys (`<<`) are followed within bounds on nodes and
/// nesting.
pub fn parse(text: &str) -> Parsed {
    let options = options! {
        emit_comments: false,
        block_nesting_limit: MAX_NESTING,
        flow_nesting_limit: MAX_NESTING,
        simple_key_max_lookahead: 4096,
    };
    let mut parser = Parser::new_from_str_with_options(text, options);
    let mut builder = Builder::default();
    while builder.parsed.problems.len() < MAX_PROBLEMS {
        match parser.next_event() {
            None => break,
            Some(Ok((event, span))) => builder.handle_event(event, span),
            Some(Err(error)) => {
                builder.fail(position(error.marker()), error.info());
                builder.reset();
                // A second mistake while skipping to the next document belongs to the document
                // already reported.
                if !parser.proceed_next_document().unwrap_or(false) {
                    break;
                }
            }
        }
    }
    builder.parsed
}

fn position(marker: &Marker) -> Position {
    let line = u32::try_from(marker.line()).unwrap_or(u32::MAX);
    let column = u32::try_from(marker.col()).unwrap_or(u32::MAX);
    Position {
        line,
        column: column.saturating_add(1),
    }
}

/// A collection whose end has not been read yet.
struct OpenCollection {
    at: Position,
    anchor: usize,
    kind: OpenKind,
}

enum OpenKind {
    Sequence(Vec<Rc<Node>>),
    Mapping {
        entries: Vec<Entry>,
        seen: HashMap<Rc<str>, u32>,
        key: Option<Key>,
    },
}

struct Key {
    text: Rc<str>,
    at: Position,
    merge: bool,
}

#[derive(Default)]
struct Builder {
    parsed: Parsed,
    open: Vec<OpenCollection>,
    anchors: HashMap<usize, Rc<Node>>,
    aliased: u64,
}

impl Builder {
    fn fail(&mut self, at: Position, message: impl Into<String>) {
        self.parsed.problems.push(Problem {
            line: at.line,
            column: at.column,
            message: message.into(),
        });
    }

    fn reset(&mut self) {
        self.open.clear();
        self.anchors.clear();
        self.aliased = 0;
    }

    fn handle_event(&mut self, event: Event<'_>, span: Span) {
        let at = position(&span.start);
        match event {
            Event::DocumentStart(..) => self.reset(),
            Event::Scalar(text, style, anchor, tag) => {
                let node = scalar(&text, style, tag.as_deref(), span);
                self.attach(Rc::new(node), anchor);
            }
            Event::SequenceStart(_, anchor, _) => {
                self.open.push(OpenCollection {
                    at,
                    anchor,
                    kind: OpenKind::Sequence(Vec::new()),
                });
            }
            Event::MappingStart(_, anchor, _) => {
                let kind = OpenKind::Mapping {
                    entries: Vec::new(),
                    seen: HashMap::new(),
                    key: None,
                };
                self.open.push(OpenCollection { at, anchor, kind });
            }
            Event::SequenceEnd | Event::MappingEnd => self.close(),
            Event::Alias(id) => self.alias(id, at),
            // Streams, document ends and comments carry no value. Anchors and unresolved aliases
            // are not requested.
            _ => {}
        }
    }

    fn alias(&mut self, id: usize, at: Position) {
        let node = self.aliased_node(id).unwrap_or_else(|problem| {
            self.fail(at, problem);
            // Something must take the alias's place, or the key after it would be read as its value.
            Rc::new(Node::new(Content::scalar("", Style::Plain), at))
        });
        self.attach(node, 0);
    }

    fn aliased_node(&mut self, id: usize) -> Result<Rc<Node>, String> {
        let node = self.anchors.get(&id).cloned();
        let node = node.ok_or("an alias stands inside its own anchor")?;
        self.aliased = self.aliased.saturating_add(node.node_count);
        if self.aliased > MAX_ALIASED_NODES {
            // Or every further alias of the document would report the same.
            self.aliased = 0;
            return Err(format!("aliases expand to more than {MAX_ALIASED_NODES} values"));
        }
        if self.open.len().saturating_add(node.depth) > MAX_NESTING {
            return Err(format!("aliases nest deeper than {MAX_NESTING} levels"));
        }
        Ok(node)
    }

    fn close(&mut self) {
        let Some(open) = self.open.pop() else { return };
        let (content, node_count, depth) = match open.kind {
            OpenKind::Sequence(items) => {
                let (node_count, depth) = measure(items.iter());
                (Content::Sequence(items), node_count, depth)
            }
            OpenKind::Mapping { entries, .. } => {
                let (node_count, depth) = measure(entries.iter().map(|entry| &entry.value));
                let keys = entries.iter().map(|entry| text_node_count(&entry.key));
                let node_count = keys.fold(node_count, u64::saturating_add);
                (Content::Mapping(entries), node_count, depth)
            }
        };
        let node = Node {
            node_count,
            depth,
            ..Node::new(content, open.at)
        };
        self.attach(Rc::new(node), open.anchor);
    }

    /// Attaches a finished node to its parent as a key, a value or an item, or adds it as a document.
    fn attach(&mut self, node: Rc<Node>, anchor: usize) {
        // The parser numbers anchors from 1.
        if anchor != 0 {
            self.anchors.insert(anchor, node.clone());
        }
        let at = node.position();
        let Some(OpenCollection { kind, .. }) = self.open.last_mut() else {
            if !node.is_null() {
                self.parsed.documents.push(node);
            }
            return;
        };
        let problem = match kind {
            OpenKind::Sequence(items) => {
                items.push(node);
                None
            }
            OpenKind::Mapping { key: key @ None, .. } => {
                let (read, problem) = read_key(&node);
                *key = Some(read);
                problem
            }
            OpenKind::Mapping {
                entries,
                seen,
                key: key @ Some(_),
            } => key.take().and_then(|key| insert(entries, seen, &key, node)),
        };
        if let Some(message) = problem {
            self.fail(at, message);
        }
    }
}

fn measure<'a>(children: impl Iterator<Item = &'a Rc<Node>>) -> (u64, usize) {
    let (node_count, depth) = children.fold((1_u64, 0), |(node_count, depth), child| {
        (node_count.saturating_add(child.node_count), depth.max(child.depth))
    });
    (node_count, depth.saturating_add(1))
}

/// The nodes that a text counts as, besides its own.
fn text_node_count(text: &str) -> u64 {
    u64::try_from(text.len() / BYTES_PER_NODE).unwrap_or(u64::MAX)
}

fn read_key(node: &Node) -> (Key, Option<String>) {
    let at = node.position();
    let key = |text, merge| Key { text, at, merge };
    let Some(scalar) = node.scalar() else {
        let problem = format!("a key must be text, found {}", node.kind());
        return (key(Rc::from(""), false), Some(problem));
    };
    let merge = scalar.style == Style::Plain && &*scalar.text == "<<";
    (key(scalar.text.clone(), merge), None)
}

/// Adds one key. A duplicate key is a mistake, except that it replaces a merged one.
fn insert(entries: &mut Vec<Entry>, seen: &mut HashMap<Rc<str>, u32>, key: &Key, value: Rc<Node>) -> Option<String> {
    if key.merge {
        return merge(entries, seen, &value);
    }
    let Position { line, column } = key.at;
    let entry = Entry {
        key: key.text.clone(),
        line,
        column,
        value,
    };
    match seen.insert(key.text.clone(), line) {
        None => entries.push(entry),
        // 0 marks a merged key, which an explicit one replaces.
        Some(0) => {
            entries.retain(|old| old.key != key.text);
            entries.push(entry);
        }
        Some(first) => {
            return Some(format!(
                "key `{}` stands twice in one mapping, first on line {first}",
                key.text
            ));
        }
    }
    None
}

fn merge(entries: &mut Vec<Entry>, seen: &mut HashMap<Rc<str>, u32>, value: &Rc<Node>) -> Option<String> {
    let sources: Vec<&Rc<Node>> = match value.items() {
        Some(items) => items.iter().collect(),
        None => vec![value],
    };
    // Of several sources, the first with a key wins, as YAML's merge type defines it.
    for source in sources {
        let Some(merged) = source.entries() else {
            return Some(format!(
                "`<<` takes a mapping or a list of mappings, found {}",
                source.kind()
            ));
        };
        for entry in merged {
            if !seen.contains_key(&entry.key) {
                seen.insert(entry.key.clone(), 0);
                entries.push(entry.clone());
            }
        }
    }
    None
}

fn scalar(text: &str, style: ScalarStyle, tag: Option<&Tag>, span: Span) -> Node {
    let at = position(&span.start);
    let (written, text_line) = match style {
        ScalarStyle::Plain => (Style::Plain, at.line),
        ScalarStyle::SingleQuoted | ScalarStyle::DoubleQuoted => (Style::Quoted, at.line),
        // The parser gives the first line that is not blank; the blank ones
        // above it are part of the text.
        ScalarStyle::Literal | ScalarStyle::Folded => {
            let blank = text.bytes().take_while(|byte| *byte == b'\n').count();
            let blank = u32::try_from(blank).unwrap_or(u32::MAX);
            (Style::Block, at.line.saturating_sub(blank).max(1))
        }
    };
    let as_text = tag.is_some_and(|tag| tag.core_suffix() == Some("str") || tag.is_custom());
    let is_plain_text = as_text && written == Style::Plain;
    let style = if is_plain_text { Style::Quoted } else { written };
    Node {
        text_line,
        node_count: text_node_count(text).saturating_add(1),
        ..Node::new(Content::scalar(text, style), at)
    }
}
