//! Finds the bytes of each value in a YAML text that [`yaml::parse`](tollgate_core::yaml::parse)
//! reads without a mistake: a tree parallel to the parsed one, with ranges instead of values.
//! Aliases are not followed.

use std::ops::Range;

use serde_saphyr::granit_parser::{Event, Parser, ScalarStyle, Span, StructureStyle, options};

/// Deepest nesting of collections, as in the loader.
const MAX_NESTING: usize = 64;

#[derive(Debug)]
pub(super) struct SyntaxNode {
    /// From its first character to after its last, without tag and anchor.
    pub(super) range: Range<usize>,
    pub(super) line: usize,
    pub(super) property: NodeProperty,
    pub(super) kind: SyntaxKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NodeProperty {
    None,
    /// `&name`: aliases may repeat it.
    Anchor,
    /// `*name`: the value is written elsewhere.
    Alias,
    /// `!tag`.
    Tag,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CollectionStyle {
    Block,
    Flow,
}

#[derive(Debug)]
pub(super) enum SyntaxKind {
    /// A scalar, or an alias.
    Scalar {
        /// Its text, used for keys.
        text: String,
        is_quoted: bool,
    },
    Sequence(CollectionStyle, Vec<SyntaxNode>),
    /// A mapping; `<<` is one of its keys.
    Mapping(CollectionStyle, Vec<Pair>),
}

#[derive(Debug)]
pub(super) struct Pair {
    pub(super) key: SyntaxNode,
    pub(super) value: SyntaxNode,
}

impl Pair {
    pub(super) fn range(&self) -> Range<usize> {
        self.key.range.start..self.value.range.end.max(self.key.range.end)
    }
}

impl SyntaxNode {
    pub(super) fn pairs(&self) -> &[Pair] {
        match &self.kind {
            SyntaxKind::Mapping(_, pairs) => pairs,
            SyntaxKind::Sequence(..) | SyntaxKind::Scalar { .. } => &[],
        }
    }

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

    pub(super) fn text(&self) -> Option<&str> {
        match &self.kind {
            SyntaxKind::Scalar { text, .. } => Some(text),
            SyntaxKind::Sequence(..) | SyntaxKind::Mapping(..) => None,
        }
    }
}

/// The documents of `text`, without empty ones, as the loader counts them; `None` if the text has a
/// mistake.
pub(super) fn documents(text: &str) -> Option<Vec<SyntaxNode>> {
    let options = options! {
        emit_comments: false,
        block_nesting_limit: MAX_NESTING,
        flow_nesting_limit: MAX_NESTING,
        simple_key_max_lookahead: 4096,
    };
    let mut parser = Parser::new_from_str_with_options(text, options);
    let mut documents = Vec::new();
    while let Some(event) = parser.next_event() {
        let (event, span) = event.ok()?;
        match event {
            Event::StreamStart | Event::StreamEnd | Event::DocumentStart(..) | Event::DocumentEnd => {}
            event => documents.push(node(event, span, &mut || parser.next_event()?.ok())?),
        }
    }
    documents.retain(|root: &SyntaxNode| match &root.kind {
        SyntaxKind::Scalar { text, is_quoted: false } => !["", "~", "null", "Null", "NULL"].contains(&text.as_str()),
        SyntaxKind::Scalar { .. } | SyntaxKind::Sequence(..) | SyntaxKind::Mapping(..) => true,
    });
    Some(documents)
}

/// Reads the value that begins with an event, and its content from the `next` ones.
fn node<'t>(event: Event<'t>, span: Span, next: &mut dyn FnMut() -> Option<(Event<'t>, Span)>) -> Option<SyntaxNode> {
    let property = |anchor: usize, is_tagged: bool| match (anchor, is_tagged) {
        (0, false) => NodeProperty::None,
        (0, true) => NodeProperty::Tag,
        (_, _) => NodeProperty::Anchor,
    };
    let whole = bytes(span)?;
    let (range, property, kind) = match event {
        Event::Scalar(text, style, anchor, tag) => {
            let is_quoted = matches!(style, ScalarStyle::SingleQuoted | ScalarStyle::DoubleQuoted);
            let text = text.into_owned();
            let kind = SyntaxKind::Scalar { text, is_quoted };
            (whole, property(anchor, tag.is_some()), kind)
        }
        Event::Alias(_) => {
            let (text, is_quoted) = (String::new(), false);
            (whole, NodeProperty::Alias, SyntaxKind::Scalar { text, is_quoted })
        }
        Event::SequenceStart(style, anchor, tag) => {
            let (style, range, items) = collection(style, whole, next)?;
            let kind = SyntaxKind::Sequence(style, items);
            (range, property(anchor, tag.is_some()), kind)
        }
        Event::MappingStart(style, anchor, tag) => {
            let (style, range, nodes) = collection(style, whole, next)?;
            let mut nodes = nodes.into_iter();
            let pairs = std::iter::from_fn(|| {
                let (key, value) = (nodes.next()?, nodes.next()?);
                Some(Pair { key, value })
            });
            let kind = SyntaxKind::Mapping(style, pairs.collect());
            (range, property(anchor, tag.is_some()), kind)
        }
        // Nothing else is within a document.
        _ => return None,
    };
    Some(SyntaxNode {
        range,
        line: span.start.line(),
        property,
        kind,
    })
}

/// The style of a collection, its bytes, and its items or its keys and values in turn.
fn collection<'t>(
    style: StructureStyle,
    start: Range<usize>,
    next: &mut dyn FnMut() -> Option<(Event<'t>, Span)>,
) -> Option<(CollectionStyle, Range<usize>, Vec<SyntaxNode>)> {
    let mut nodes: Vec<SyntaxNode> = Vec::new();
    let end = loop {
        match next()? {
            (Event::SequenceEnd | Event::MappingEnd, end) => break end,
            (event, span) => nodes.push(node(event, span, next)?),
        }
    };
    let content = nodes.first().zip(nodes.last());
    let (style, range) = match style {
        StructureStyle::Flow => (CollectionStyle::Flow, start.start..bytes(end)?.end),
        // The parser ends a block where the next thing starts, which is too late.
        StructureStyle::Block => {
            let content = content.map(|(first, last)| first.range.start..last.range.end);
            (CollectionStyle::Block, content.unwrap_or(start.start..start.start))
        }
    };
    Some((style, range, nodes))
}

fn bytes(span: Span) -> Option<Range<usize>> {
    Some(span.start.byte_offset()?..span.end.byte_offset()?)
}
