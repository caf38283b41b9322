//! Finds the bytes of each value in a YAML text that [`yaml::parse`](tollgate_core::yaml::parse)
//! reads without a mistake: a tree parallel to the parsed one, with ranges instead of values.
//! Aliases are not followed.

use std::ops::Range;

use serde_saphyr::granit_parser::{Event, Parser, Span, StructureStyle, options};

/// Deepest nesting of collections, as in the loader.
const NESTING: usize = 64;

/// A value and its bytes.
#[derive(Debug)]
pub(super) struct Syntax {
    /// From its first character to after its last, without tag and anchor.
    pub(super) range: Range<usize>,
    /// Line of its first character, from 1.
    pub(super) line: usize,
    /// Whether it has an anchor or a tag, or is an alias.
    pub(super) mark: Mark,
    /// What it is.
    pub(super) shape: Shape,
}

/// What ties a value to others of its document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    /// Nothing.
    None,
    /// `&name`: aliases may repeat it.
    Anchor,
    /// `*name`: the value is written elsewhere.
    Alias,
    /// `!tag`.
    Tag,
}

/// How collections are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// One line for each item.
    Block,
    /// In brackets.
    Flow,
}

/// The kinds of values.
#[derive(Debug)]
pub(super) enum Shape {
    /// A scalar, or an alias.
    Scalar {
        /// Its text, used for keys.
        text: String,
        /// Whether it is in quotes.
        is_quoted: bool,
    },
    /// A list.
    Sequence(Layout, Vec<Syntax>),
    /// A mapping; `<<` is one of its keys.
    Mapping(Layout, Vec<Pair>),
}

/// A key and its value.
#[derive(Debug)]
pub(super) struct Pair {
    /// The key.
    pub(super) key: Syntax,
    /// The value.
    pub(super) value: Syntax,
}

impl Syntax {
    /// The first anchor, alias or tag in it.
    pub(super) fn marked(&self) -> Option<&Self> {
        if self.mark != Mark::None {
            return Some(self);
        }
        match &self.shape {
            Shape::Scalar { .. } => None,
            Shape::Sequence(_, items) => items.iter().find_map(Self::marked),
            Shape::Mapping(_, pairs) => pairs
                .iter()
                .find_map(|pair| pair.key.marked().or_else(|| pair.value.marked())),
        }
    }

    /// Its text, if it is a scalar.
    pub(super) fn text(&self) -> Option<&str> {
        match &self.shape {
            Shape::Scalar { text, .. } => Some(text),
            Shape::Sequence(..) | Shape::Mapping(..) => None,
        }
    }
}

/// The documents of `text`, without empty ones, as the loader counts them.
///
/// `None` if the text has a mistake.
pub(super) fn documents(text: &str) -> Option<Vec<Syntax>> {
    let options = options! {
        emit_comments: false,
        block_nesting_limit: NESTING,
        flow_nesting_limit: NESTING,
        simple_key_max_lookahead: 4096,
    };
    let mut builder = Builder::default();
    let mut parser = Parser::new_from_str_with_options(text, options);
    while let Some(event) = parser.next_event() {
        let (event, span) = event.ok()?;
        builder.take(event, span)?;
    }
    Some(builder.documents)
}

#[derive(Default)]
struct Builder {
    documents: Vec<Syntax>,
    open: Vec<Open>,
}

struct Open {
    start: Span,
    mark: Mark,
    kind: OpenKind,
}

enum OpenKind {
    Sequence(Layout, Vec<Syntax>),
    Mapping(Layout, Vec<Pair>, Option<Syntax>),
}

fn bytes(span: Span) -> Option<Range<usize>> {
    Some(span.start.byte_offset()?..span.end.byte_offset()?)
}

fn layout(style: StructureStyle) -> Layout {
    match style {
        StructureStyle::Block => Layout::Block,
        StructureStyle::Flow => Layout::Flow,
    }
}

impl Builder {
    fn take(&mut self, event: Event<'_>, span: Span) -> Option<()> {
        let mark = |anchor: usize, is_tagged: bool| match (anchor, is_tagged) {
            (0, false) => Mark::None,
            (0, true) => Mark::Tag,
            (_, _) => Mark::Anchor,
        };
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                use serde_saphyr::granit_parser::ScalarStyle;
                let is_quoted = matches!(style, ScalarStyle::SingleQuoted | ScalarStyle::DoubleQuoted);
                let shape = Shape::Scalar {
                    text: text.into_owned(),
                    is_quoted,
                };
                self.place(leaf(span, mark(anchor, tag.is_some()), shape)?);
            }
            Event::Alias(_) => {
                let shape = Shape::Scalar {
                    text: String::new(),
                    is_quoted: false,
                };
                self.place(leaf(span, Mark::Alias, shape)?);
            }
            Event::SequenceStart(style, anchor, tag) => self.open.push(Open {
                start: span,
                mark: mark(anchor, tag.is_some()),
                kind: OpenKind::Sequence(layout(style), Vec::new()),
            }),
            Event::MappingStart(style, anchor, tag) => self.open.push(Open {
                start: span,
                mark: mark(anchor, tag.is_some()),
                kind: OpenKind::Mapping(layout(style), Vec::new(), None),
            }),
            Event::SequenceEnd | Event::MappingEnd => self.close(span)?,
            // Streams, documents and comments are not values.
            _ => {}
        }
        Some(())
    }

    fn close(&mut self, end: Span) -> Option<()> {
        let open = self.open.pop()?;
        let opened = bytes(open.start)?;
        let (shape, layout, first, last) = match open.kind {
            OpenKind::Sequence(layout, items) => {
                let first = items.first().map(|item| item.range.start);
                let last = items.last().map(|item| item.range.end);
                (Shape::Sequence(layout, items), layout, first, last)
            }
            OpenKind::Mapping(layout, pairs, _) => {
                let first = pairs.first().map(|pair| pair.key.range.start);
                let last = pairs.last().map(|pair| pair.value.range.end);
                (Shape::Mapping(layout, pairs), layout, first, last)
            }
        };
        let range = match layout {
            Layout::Flow => opened.start..bytes(end)?.end,
            // The parser ends a block where the next thing starts, which is too late.
            Layout::Block => first.unwrap_or(opened.start)..last.unwrap_or(opened.start),
        };
        self.place(Syntax {
            range,
            line: open.start.start.line(),
            mark: open.mark,
            shape,
        });
        Some(())
    }

    fn place(&mut self, value: Syntax) {
        match self.open.last_mut().map(|open| &mut open.kind) {
            None => {
                let is_null = matches!(&value.shape, Shape::Scalar { text, is_quoted: false } if is_null(text));
                if !is_null {
                    self.documents.push(value);
                }
            }
            Some(OpenKind::Sequence(_, items)) => items.push(value),
            Some(OpenKind::Mapping(_, pairs, key)) => match key.take() {
                None => *key = Some(value),
                Some(key) => pairs.push(Pair { key, value }),
            },
        }
    }
}

fn is_null(text: &str) -> bool {
    matches!(text, "" | "~" | "null" | "Null" | "NULL")
}

fn leaf(span: Span, mark: Mark, shape: Shape) -> Option<Syntax> {
    Some(Syntax {
        range: bytes(span)?,
        line: span.start.line(),
        mark,
        shape,
    })
}
