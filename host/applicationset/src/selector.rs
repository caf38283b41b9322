//! Label selectors, from `matchLabels` and `matchExpressions` or from the string of `?selector=`,
//! as Kubernetes and Argo CD parse them.
//!
//! Invariant: a requirement that cannot be parsed is an error, never ignored.
//!
//! Source: Kubernetes, `labels.Parse` and `LabelSelectorAsSelector`; Argo CD, its own copy of the
//! latter for post selectors, which takes any value.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::Value;

use super::decode::fields;
use tollgate_core::dns::is_subdomain;

mod parse;
#[cfg(test)]
mod tests;

/// Maximum length of a label's name and of its value, in bytes.
const MAX_LABEL_BYTES: usize = 63;

/// Why a selector is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The string of `?selector=` is invalid; the message is Argo CD's.
    #[error("error parsing the selector: {0}")]
    Text(String),
    /// `matchLabels` or `matchExpressions` is invalid.
    #[error("error parsing label selector: {0}")]
    Object(String),
}

/// Which values a selector may contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AllowedValues {
    /// Valid values of labels.
    Labels,
    /// Any value, because the selector is compared with parameters, such as URLs.
    Any,
}

/// Requirements that must all be met; a selector without requirements matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector {
    requirements: Vec<Requirement>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: String,
    operator: LabelOperator,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum LabelOperator {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    DoesNotExist,
    Greater(i64),
    Less(i64),
}

impl Selector {
    /// Parses the string of `?selector=`: `a=b,c!=d,e in (f,g),h notin (i),j,!k,l>1`.
    ///
    /// # Errors
    /// [`Error::Text`]. Source: Kubernetes, `labels.Parse`.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let requirements = parse::requirements(text).map_err(Error::Text)?;
        Ok(Self { requirements })
    }

    /// Decodes `{matchLabels, matchExpressions}`; an empty selector matches everything.
    pub(crate) fn read(object: &Value, values: AllowedValues) -> Result<Self, Error> {
        let requirements = from_object(object, values).map_err(Error::Object)?;
        Ok(Self { requirements })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Whether it matches the labels.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.matches_with(|key| labels.get(key).map(|value| Cow::Borrowed(value.as_str())))
    }

    /// Whether it matches the values that `label` returns by key.
    pub(crate) fn matches_with<'v>(&self, label: impl Fn(&str) -> Option<Cow<'v, str>>) -> bool {
        let met = |requirement: &Requirement| requirement.operator.is_met(label(&requirement.key).as_deref());
        self.requirements.iter().all(met)
    }
}

impl LabelOperator {
    fn is_met(&self, value: Option<&str>) -> bool {
        let number = || value.and_then(|value| value.parse::<i64>().ok());
        match self {
            Self::In(values) => value.is_some_and(|value| values.iter().any(|one| one == value)),
            // As in Kubernetes, a label that is missing is in no set.
            Self::NotIn(values) => value.is_none_or(|value| values.iter().all(|one| one != value)),
            Self::Exists => value.is_some(),
            Self::DoesNotExist => value.is_none(),
            Self::Greater(bound) => number().is_some_and(|number| number > *bound),
            Self::Less(bound) => number().is_some_and(|number| number < *bound),
        }
    }
}

fn from_object(object: &Value, values: AllowedValues) -> Result<Vec<Requirement>, String> {
    let read = |error: super::decode::Error| error.to_string();
    let object = fields::object(object, "selector").map_err(read)?;
    let mut requirements = Vec::new();
    for (key, value) in fields::text_map(object, "matchLabels", "selector").map_err(read)? {
        let operator = LabelOperator::In(vec![value.to_owned()]);
        requirements.push(requirement(key, operator, values)?);
    }
    for item in fields::list(object, "matchExpressions", "selector").map_err(read)? {
        let path = "selector.matchExpressions[]";
        let item = fields::object(item, path).map_err(read)?;
        let key = fields::text(item, "key", path).map_err(read)?;
        let operator = fields::text(item, "operator", path).map_err(read)?;
        let given = fields::texts(item, "values", path).map_err(read)?;
        let given: Vec<String> = given.into_iter().map(str::to_owned).collect();
        requirements.push(requirement(key, expression(operator, given)?, values)?);
    }
    Ok(requirements)
}

fn expression(operator: &str, given: Vec<String>) -> Result<LabelOperator, String> {
    match operator {
        "In" => Ok(LabelOperator::In(given)),
        "NotIn" => Ok(LabelOperator::NotIn(given)),
        "Exists" | "DoesNotExist" if !given.is_empty() => {
            Err("values set must be empty for exists and does not exist".to_owned())
        }
        "Exists" => Ok(LabelOperator::Exists),
        "DoesNotExist" => Ok(LabelOperator::DoesNotExist),
        _ => Err(format!("\"{operator}\" is not a valid label selector operator")),
    }
}

/// A requirement with a checked key and values.
fn requirement(key: &str, operator: LabelOperator, values: AllowedValues) -> Result<Requirement, String> {
    if !is_key(key) {
        return Err(format!("`{key}` is not a label's name"));
    }
    if let LabelOperator::In(given) | LabelOperator::NotIn(given) = &operator {
        if given.is_empty() {
            return Err("for 'in', 'notin' operators, values set can't be empty".to_owned());
        }
        let refused = given.iter().find(|value| !is_value(value));
        if let (AllowedValues::Labels, Some(value)) = (values, refused) {
            return Err(format!("`{value}` is not a value labels have"));
        }
    }
    let key = key.to_owned();
    Ok(Requirement { key, operator })
}

/// Whether this is a valid label key. Source: Kubernetes, `IsQualifiedName`.
fn is_key(key: &str) -> bool {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    prefix.is_none_or(is_subdomain) && !name.is_empty() && is_value(name)
}

/// Whether this is a valid label value. Source: Kubernetes, `IsValidLabelValue`.
fn is_value(value: &str) -> bool {
    let mark = |letter: char| matches!(letter, '-' | '_' | '.');
    value.len() <= MAX_LABEL_BYTES
        && value
            .chars()
            .all(|letter| letter.is_ascii_alphanumeric() || mark(letter))
        && !value.starts_with(mark)
        && !value.ends_with(mark)
}
