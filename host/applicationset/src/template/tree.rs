//! A JSON tree with templates in its strings and keys. It is parsed once and rendered for each set
//! of parameters.

use serde_json::{Map, Value};

use super::{AuthorizationImpact, Error, RenderContext, StringTemplate};
use crate::{TemplateEngine, heap_size};

/// Maximum nesting of lists and objects in a template.
const DEPTH: usize = 100;

/// A node.
#[derive(Debug)]
pub(super) enum TemplateTree {
    /// No template, here or below; with its size in bytes.
    Fixed(Value, u64),
    /// A string.
    Text(StringTemplate),
    /// A list.
    List(Vec<Self>),
    /// An object; keys are templates too. Members that are `null` are omitted.
    Object(Vec<(StringTemplate, Self)>),
}

impl TemplateTree {
    /// Parses every string of `value`.
    ///
    /// - `impact_of`: what depends on the string at a pointer.
    ///
    /// # Errors
    /// [`Error::Syntax`]; [`Error::Depth`]; [`Error::Divergent`].
    pub(super) fn new(
        engine: TemplateEngine,
        value: &Value,
        impact_of: fn(&str) -> AuthorizationImpact,
    ) -> Result<Self, Error> {
        let mut pointer = String::new();
        let mut parse = |text: &str, pointer: &str| {
            let parsed = StringTemplate::new(engine, text, impact_of(pointer));
            parsed.map_err(|error| error.in_field(pointer))
        };
        Self::node(value, &mut parse, (&mut pointer, 0))
    }

    fn node(
        value: &Value,
        parse: &mut impl FnMut(&str, &str) -> Result<StringTemplate, Error>,
        (pointer, depth): (&mut String, usize),
    ) -> Result<Self, Error> {
        if depth > DEPTH {
            return Err(Error::Depth { allowed: DEPTH });
        }
        Ok(match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => Self::Fixed(value.clone(), heap_size::VALUE_BYTES),
            Value::String(text) => match parse(text, pointer)? {
                StringTemplate::Plain(text) => {
                    let bytes = heap_size::text(&text).saturating_add(heap_size::VALUE_BYTES);
                    Self::Fixed(Value::String(text), bytes)
                }
                text @ (StringTemplate::FastTemplate(_) | StringTemplate::GoTemplate(_)) => Self::Text(text),
            },
            Value::Array(items) => {
                let mut parsed = Vec::with_capacity(items.len());
                for (index, item) in items.iter().enumerate() {
                    parsed.push(Self::child(item, parse, (pointer, depth), &index.to_string())?);
                }
                fixed_list(parsed)
            }
            Value::Object(fields) => {
                let mut parsed = Vec::with_capacity(fields.len());
                for (key, value) in fields.iter().filter(|(_, value)| !value.is_null()) {
                    let name = parse(key, pointer)?;
                    parsed.push((name, Self::child(value, parse, (pointer, depth), key)?));
                }
                fixed_object(parsed)
            }
        })
    }

    fn child(
        value: &Value,
        parse: &mut impl FnMut(&str, &str) -> Result<StringTemplate, Error>,
        (pointer, depth): (&mut String, usize),
        name: &str,
    ) -> Result<Self, Error> {
        let length = pointer.len();
        pointer.push('/');
        pointer.push_str(name);
        let parsed = Self::node(value, parse, (pointer, depth + 1));
        pointer.truncate(length);
        parsed
    }

    /// Renders with parameters.
    ///
    /// # Errors
    /// Those of rendering a string.
    pub(super) fn render(&self, context: &mut RenderContext<'_>) -> Result<Value, Error> {
        Ok(match self {
            Self::Fixed(value, bytes) => {
                context.budget().charge_bytes(*bytes)?;
                value.clone()
            }
            // The characters are charged where they are made.
            Self::Text(text) => {
                context.budget().charge_bytes(heap_size::STRING_BYTES)?;
                Value::String(text.render(context)?)
            }
            Self::List(items) => {
                context.budget().charge_bytes(heap_size::VALUE_BYTES)?;
                Value::Array(
                    items
                        .iter()
                        .map(|item| item.render(context))
                        .collect::<Result<_, _>>()?,
                )
            }
            Self::Object(fields) => {
                context
                    .budget()
                    .charge_bytes(heap_size::map_overhead(fields.len()).saturating_add(heap_size::VALUE_BYTES))?;
                let mut object = Map::new();
                for (key, value) in fields {
                    let value = value.render(context)?;
                    object.insert(key.render(context)?, value);
                }
                Value::Object(object)
            }
        })
    }
}

/// A list that only has fixed nodes is fixed.
fn fixed_list(items: Vec<TemplateTree>) -> TemplateTree {
    if !items.iter().all(|item| matches!(item, TemplateTree::Fixed(_, _))) {
        return TemplateTree::List(items);
    }
    let mut total = heap_size::VALUE_BYTES;
    let mut values = Vec::with_capacity(items.len());
    for item in items {
        if let TemplateTree::Fixed(value, bytes) = item {
            total = total.saturating_add(bytes);
            values.push(value);
        }
    }
    TemplateTree::Fixed(Value::Array(values), total)
}

/// An object that only has fixed keys and nodes is fixed.
fn fixed_object(fields: Vec<(StringTemplate, TemplateTree)>) -> TemplateTree {
    let fixed = |(key, value): &(StringTemplate, TemplateTree)| {
        matches!((key, value), (StringTemplate::Plain(_), TemplateTree::Fixed(_, _)))
    };
    if !fields.iter().all(fixed) {
        return TemplateTree::Object(fields);
    }
    let mut total = heap_size::map_overhead(fields.len()).saturating_add(heap_size::VALUE_BYTES);
    let mut object = Map::new();
    for field in fields {
        if let (StringTemplate::Plain(key), TemplateTree::Fixed(value, bytes)) = field {
            total = total.saturating_add(bytes).saturating_add(heap_size::text(&key));
            object.insert(key, value);
        }
    }
    TemplateTree::Fixed(Value::Object(object), total)
}
