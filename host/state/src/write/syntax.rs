//! Finds the bytes of each value in a YAML text that [`yaml::parse`](tollgate_core::yaml::parse)
//! reads without a mistake: a tree parallel to the parsed one, with ranges instead of values.
//! Aliases are not followed.

use std::ops::Range;

use serde_saphyr::granit_parser::{Event, Parser, Span, StructureStyle, options};

/// Deepest nesting of collections, as in the loader.
const MAX_NESTING: usize = 64;

/// A value and its bytes.
#[derive(Debug)]
pub(super) struct SyntaxNode {
    /// From its first character to after its last, without tag and anchor.
    pub(super) range: Range<usize>,
    /// Line of its first character, from 1.
    pub(super) line: usize,
    /// Its anchor or tag, or that it is an alias.
    pub(super) property: NodeProperty,
    /// Its kind, with what it contains.
    pub(super) kind: SyntaxKind,
}

/// The anchor or tag of a value, or that it is an alias.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NodeProperty {
    /// None of these.
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
pub(super) enum CollectionStyle {
    /// One line for each item.
    Block,
    /// In brackets.
    Flow,
}

/// The kinds of values.
#[derive(Debug)]
pub(super) enum SyntaxKind {
    /// A scalar, or an alias.
    Scalar {
        /// Its text, used for keys.
        text: String,
        /// Whether it is in quotes.
        is_quoted: bool,
    },
    /// A list.
    Sequence(CollectionStyle, Vec<SyntaxNode>),
    /// A mapping; `<<` is one of its keys.
    Mapping(CollectionStyle, Vec<Pair>),
}

/// A key and its value.
#[derive(Debug)]
pub(super) struct Pair {
    /// The key.
    pub(super) key: SyntaxNode,
    /// The value.
    pub(super) value: SyntaxNode,
}

impl SyntaxNode {
    /// The first value in it that has an anchor or a tag, or is an alias.
    pub(super) fn first_with_property(&self) -> Option<&Self> {
        if self.property != NodeProperty::None {
            return Some(self);
        }
        match &self.kind {
            SyntaxKind::Scalar { .. } => None,
            SyntaxKind::Sequence(_, items) => items.iter().find_map(Self::first_with_property),
            SyntaxKind::Mapping(_, pairs) => pairs.iter().find_map(|pair| {
                pair.key
                    .first_with_property()
                    .or_else(|| pair.value.first_with_property())
            }),
        }
    }

    /// Its text, if it is a scalar.
    pub(super) fn text(&self) -> Option<&str> {
        match &self.kind {
            SyntaxKind::Scalar { text, .. } => Some(text),
            SyntaxKind::Sequence(..) | SyntaxKind::Mapping(..) => None,
        }
    }
}

/// The documents of `text`, without empty ones, as the loader counts them.
///
/// `None` if the text has a mistake.
pub(super) fn documents(text: &str) -> Option<Vec<SyntaxNode>> {
    let options = options! {
        emit_comments: false,
        block_nesting_limit: MAX_NESTING,
        flow_nesting_limit: MAX_NESTING,
        simple_key_max_lookahead: 4096,
    };
    let mut builder = Builder::default();
    let mut parser = Parser::new_from_str_with_options(text, options);
    while let Some(event) = parser.next_event() {
        let (event, span) = event.ok()?;
        builder.handle(event, span)?;
    }
    Some(builder.documents)
}

#[derive(Default)]
struct Builder {
    documents: Vec<SyntaxNode>,
    open: Vec<Open>,
}

struct Open {
    start: Span,
    property: NodeProperty,
    kind: OpenKind,
}

enum OpenKind {
    Sequence(CollectionStyle, Vec<SyntaxNode>),
    Mapping(CollectionStyle, Vec<Pair>, Option<SyntaxNode>),
}

fn bytes(span: Span) -> Option<Range<usize>> {
    Some(span.start.byte_offset()?..span.end.byte_offset()?)
}

fn collection_style(style: StructureStyle) -> CollectionStyle {
    match style {
        StructureStyle::Block => CollectionStyle::Block,
        StructureStyle::Flow => CollectionStyle::Flow,
    }
}

impl Builder {
    fn handle(&mut self, event: Event<'_>, span: Span) -> Option<()> {
        let property = |anchor: usize, is_tagged: bool| match (anchor, is_tagged) {
            (0, false) => NodeProperty::None,
            (0, true) => NodeProperty::Tag,
            (_, _) => NodeProperty::Anchor,
        };
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                use serde_saphyr::granit_parser::ScalarStyle;
                let is_quoted = matches!(style, ScalarStyle::SingleQuoted | ScalarStyle::DoubleQuoted);
                let kind = SyntaxKind::Scalar {
                    text: text.into_owned(),
                    is_quoted,
                };
                self.attach(leaf(span, property(anchor, tag.is_some()), kind)?);
            }
            Event::Alias(_) => {
                let kind = SyntaxKind::Scalar {
                    text: String::new(),
                    is_quoted: false,
                };
                self.attach(leaf(span, NodeProperty::Alias, kind)?);
            }
            Event::SequenceStart(style, anchor, tag) => self.open.push(Open {
                start: span,
                property: property(anchor, tag.is_some()),
                kind: OpenKind::Sequence(collection_style(style), Vec::new()),
            }),
            Event::MappingStart(style, anchor, tag) => self.open.push(Open {
                start: span,
                property: property(anchor, tag.is_some()),
                kind: OpenKind::Mapping(collection_style(style), Vec::new(), None),
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
        let (kind, style, first, last) = match open.kind {
            OpenKind::Sequence(style, items) => {
                let first = items.first().map(|item| item.range.start);
                let last = items.last().map(|item| item.range.end);
                (SyntaxKind::Sequence(style, items), style, first, last)
            }
            OpenKind::Mapping(style, pairs, _) => {
                let first = pairs.first().map(|pair| pair.key.range.start);
                let last = pairs.last().map(|pair| pair.value.range.end);
                (SyntaxKind::Mapping(style, pairs), style, first, last)
            }
        };
        let range = match style {
            CollectionStyle::Flow => opened.start..bytes(end)?.end,
            // The parser ends a block where the next thing starts, which is too late.
            CollectionStyle::Block => first.unwrap_or(opened.start)..last.unwrap_or(opened.start),
        };
        self.attach(SyntaxNode {
            range,
            line: open.start.start.line(),
            property: open.property,
            kind,
        });
        Some(())
    }

    fn attach(&mut self, value: SyntaxNode) {
        match self.open.last_mut().map(|open| &mut open.kind) {
            None => {
                let is_null = matches!(&value.kind, SyntaxKind::Scalar { text, is_quoted: false } if is_null(text));
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

fn leaf(span: Span, property: NodeProperty, kind: SyntaxKind) -> Option<SyntaxNode> {
    Some(SyntaxNode {
        range: bytes(span)?,
        line: span.start.line(),
        property,
        kind,
    })
}
