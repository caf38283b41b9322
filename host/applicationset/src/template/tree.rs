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
    pub(super) fn new(
        engine: TemplateEngine,
        value: &Value,
        impact_of: fn(&str) -> AuthorizationImpact,
    ) -> Result<Self, Error> {
        let pointer = String::new();
        TreeParser {
            engine,
            impact_of,
            pointer,
        }
        .node(value, 0)
    }

    fn into_fixed(self) -> Option<Value> {
        match self {
            Self::Fixed(value) => Some(value),
            _ => None,
        }
    }

    pub(super) fn render(&self, context: &RenderContext<'_>) -> Result<Value, Error> {
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

struct TreeParser {
    engine: TemplateEngine,
    impact_of: fn(&str) -> AuthorizationImpact,
    /// Of the value that is parsed.
    pointer: String,
}

impl TreeParser {
    fn node(&mut self, value: &Value, depth: usize) -> Result<TemplateTree, Error> {
        if depth > DEPTH {
            return Err(Error::Depth(DEPTH));
        }
        Ok(match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => TemplateTree::Fixed(value.clone()),
            Value::String(text) => match self.text(text)? {
                StringTemplate::Plain(text) => TemplateTree::Fixed(Value::String(text)),
                text => TemplateTree::Text(text),
            },
            Value::Array(items) => {
                let items = items.iter().enumerate();
                let parsed = items.map(|(index, item)| self.child(item, depth, &index.to_string()));
                let parsed = parsed.collect::<Result<Vec<_>, _>>()?;
                match parsed.iter().all(|item| matches!(item, TemplateTree::Fixed(_))) {
                    true => TemplateTree::Fixed(parsed.into_iter().filter_map(TemplateTree::into_fixed).collect()),
                    false => TemplateTree::List(parsed),
                }
            }
            Value::Object(fields) => {
                let fields = fields.iter().filter(|(_, value)| !value.is_null());
                let parsed = fields.map(|(key, value)| Ok((self.text(key)?, self.child(value, depth, key)?)));
                let parsed = parsed.collect::<Result<Vec<_>, Error>>()?;
                let is_fixed =
                    |(key, value): &_| matches!((key, value), (StringTemplate::Plain(_), TemplateTree::Fixed(_)));
                // Parts without templates are kept as one value, which a render only copies.
                match parsed.iter().all(is_fixed) {
                    true => {
                        let fixed = parsed.into_iter();
                        let fixed = fixed.filter_map(|(key, value)| Some((key.into_plain()?, value.into_fixed()?)));
                        TemplateTree::Fixed(Value::Object(fixed.collect()))
                    }
                    false => TemplateTree::Object(parsed),
                }
            }
        })
    }

    fn text(&self, text: &str) -> Result<StringTemplate, Error> {
        let parsed = StringTemplate::new(self.engine, text, (self.impact_of)(&self.pointer));
        parsed.map_err(|error| error.in_field(&self.pointer))
    }

    fn child(&mut self, value: &Value, depth: usize, name: &str) -> Result<TemplateTree, Error> {
        let length = self.pointer.len();
        self.pointer.push('/');
        self.pointer.push_str(name);
        let parsed = self.node(value, depth + 1);
        self.pointer.truncate(length);
        parsed
    }
}
