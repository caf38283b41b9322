//! A JSON tree with templates in its strings and keys. It is parsed once and rendered for each set
//! of parameters.

use serde_json::{Map, Value};

use super::{AuthorizationImpact, Error, RenderContext, StringTemplate};
use crate::{TemplateEngine, heap_size};

/// Maximum nesting of lists and objects in a template.
const DEPTH: usize = 100;

#[derive(Debug)]
pub(super) enum TemplateTree {
    /// No template, here or below.
    Fixed(Value),
    Text(StringTemplate),
    List(Vec<Self>),
    /// Keys are templates too. Members that are `null` are omitted.
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
            Value::Null | Value::Bool(_) | Value::Number(_) => Self::Fixed(value.clone()),
            Value::String(text) => match parse(text, pointer)? {
                StringTemplate::Plain(text) => Self::Fixed(Value::String(text)),
                text => Self::Text(text),
            },
            Value::Array(items) => {
                let mut parsed = Vec::with_capacity(items.len());
                for (index, item) in items.iter().enumerate() {
                    parsed.push(Self::child(item, parse, (pointer, depth), &index.to_string())?);
                }
                match parsed.iter().all(|item| matches!(item, Self::Fixed(_))) {
                    true => Self::Fixed(parsed.into_iter().filter_map(Self::into_fixed).collect()),
                    false => Self::List(parsed),
                }
            }
            Value::Object(fields) => {
                let mut parsed = Vec::with_capacity(fields.len());
                for (key, value) in fields.iter().filter(|(_, value)| !value.is_null()) {
                    let name = parse(key, pointer)?;
                    parsed.push((name, Self::child(value, parse, (pointer, depth), key)?));
                }
                let is_fixed = |(key, value): &_| matches!((key, value), (StringTemplate::Plain(_), Self::Fixed(_)));
                match parsed.iter().all(is_fixed) {
                    true => {
                        let fixed = parsed.into_iter();
                        let fixed = fixed.filter_map(|(key, value)| Some((key.into_plain()?, value.into_fixed()?)));
                        Self::Fixed(Value::Object(fixed.collect()))
                    }
                    false => Self::Object(parsed),
                }
            }
        })
    }

    fn into_fixed(self) -> Option<Value> {
        match self {
            Self::Fixed(value) => Some(value),
            _ => None,
        }
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

    /// # Errors
    /// Those of rendering a string.
    pub(super) fn render(&self, context: &mut RenderContext<'_>) -> Result<Value, Error> {
        let budget = context.budget;
        Ok(match self {
            Self::Fixed(value) => {
                budget.charge_bytes(heap_size::of(value))?;
                value.clone()
            }
            // The characters are charged where they are made.
            Self::Text(text) => {
                budget.charge_bytes(heap_size::STRING_BYTES)?;
                Value::String(text.render(context)?)
            }
            Self::List(items) => {
                budget.charge_bytes(heap_size::VALUE_BYTES)?;
                let items = items.iter().map(|item| item.render(context));
                Value::Array(items.collect::<Result<_, _>>()?)
            }
            Self::Object(fields) => {
                budget.charge_bytes(heap_size::map_overhead(fields.len()).saturating_add(heap_size::VALUE_BYTES))?;
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
