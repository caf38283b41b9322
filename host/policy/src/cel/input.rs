//! Converts JSON, possibly from an untrusted caller, to the evaluator's values.
//!
//! Invariant: no value is larger than the cost estimates assume.

use std::collections::HashMap;
use std::sync::Arc;

use cel::objects::{Key, Map};
use cel::{Context, Value};

use super::{Error, library};

pub(super) const MAX_TEXT_BYTES: usize = 16 * 1024;
/// Maximum length of all texts of one variable, in bytes.
const MAX_ALL_BYTES: usize = 256 * 1024;
const MAX_DEPTH: usize = 16;
/// Maximum number of numbers, texts, lists and maps of one variable.
const MAX_VALUES: usize = 16 * 1024;

/// Values converted once, for any number of expressions.
#[derive(derive_more::Debug)]
pub struct Variables {
    /// Not shown: the values may be claims of an untrusted caller.
    #[debug(skip)]
    pub(super) context: Context<'static, 'static>,
    /// Length of the longest list or map inside each variable.
    longest: Vec<(String, usize)>,
}

impl Variables {
    /// Converts JSON values, bound by name. A whole number is an `int`, or a
    /// `uint` beyond its range; any other number is a `double`.
    ///
    /// # Errors
    /// [`Error::InputTooLarge`]: a text above 16 KiB, a variable above
    /// 256 KiB or 16,384 values, or nested more than 16 deep.
    pub fn new<'a>(variables: impl IntoIterator<Item = (&'a str, &'a serde_json::Value)>) -> Result<Self, Error> {
        let mut context = Context::with_env(library::eval_env());
        let mut longest = Vec::new();
        for (name, value) in variables {
            let mut conversion = Conversion {
                variable: name,
                bytes: 0,
                values: 0,
                longest: 0,
            };
            context.add_variable_from_value(name, conversion.value(value, 0)?);
            longest.push((name.to_owned(), conversion.longest));
        }
        Ok(Self { context, longest })
    }

    /// Checks the lists in the variables `names` against what is allowed.
    pub(super) fn check_items(&self, names: &[String], allowed: usize) -> Result<(), Error> {
        let mut longest = self.longest.iter();
        match longest.find(|(name, items)| *items > allowed && names.contains(name)) {
            None => Ok(()),
            Some((name, observed)) => Err(Error::TooManyItems {
                variable: name.clone(),
                observed: *observed,
                allowed,
            }),
        }
    }
}

struct Conversion<'a> {
    variable: &'a str,
    bytes: usize,
    values: usize,
    longest: usize,
}

impl Conversion<'_> {
    fn value(&mut self, json: &serde_json::Value, depth: usize) -> Result<Value, Error> {
        self.values += 1;
        self.bound("a number of values", self.values, MAX_VALUES)?;
        self.bound("a depth", depth, MAX_DEPTH)?;
        Ok(match json {
            serde_json::Value::Null => Value::Null,
            serde_json::Value::Bool(value) => Value::Bool(*value),
            serde_json::Value::Number(number) => match (number.as_i64(), number.as_u64(), number.as_f64()) {
                (Some(value), ..) => Value::Int(value),
                (None, Some(value), _) => Value::UInt(value),
                (None, None, Some(value)) => Value::Float(value),
                (None, None, None) => Value::Null,
            },
            serde_json::Value::String(text) => Value::String(Arc::new(self.text(text)?)),
            serde_json::Value::Array(items) => {
                self.longest = self.longest.max(items.len());
                let items: Result<Vec<_>, _> = items.iter().map(|item| self.value(item, depth + 1)).collect();
                Value::List(Arc::new(items?))
            }
            serde_json::Value::Object(entries) => {
                self.longest = self.longest.max(entries.len());
                let mut map = HashMap::with_capacity(entries.len());
                for (key, value) in entries {
                    map.insert(Key::String(Arc::new(self.text(key)?)), self.value(value, depth + 1)?);
                }
                Value::Map(Map { map: Arc::new(map) })
            }
        })
    }

    fn text(&mut self, text: &str) -> Result<String, Error> {
        self.bytes += text.len();
        self.bound("a text", text.len(), MAX_TEXT_BYTES)?;
        self.bound("texts", self.bytes, MAX_ALL_BYTES)?;
        Ok(text.to_owned())
    }

    fn bound(&self, what: &'static str, observed: usize, allowed: usize) -> Result<(), Error> {
        if observed <= allowed {
            return Ok(());
        }
        Err(Error::InputTooLarge {
            variable: self.variable.to_owned(),
            what,
            observed,
            allowed,
        })
    }
}
