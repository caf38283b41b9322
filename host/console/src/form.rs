//! The fields of a query or a form.

use serde_json::{Map, Value};
use url::form_urlencoded;

use crate::text::Text;

/// Most fields of a form. A project with as many entries as can be stored has 3,002.
const MAX_FIELDS: usize = 5_000;

/// Fields by name. Of two with one name the first counts; empty ones count as absent.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fields(Vec<(String, String)>);

impl Fields {
    /// `None` if there are more than [`MAX_FIELDS`].
    pub(crate) fn read(encoded: &[u8]) -> Option<Self> {
        // Counted before the first field is copied.
        if form_urlencoded::parse(encoded).nth(MAX_FIELDS).is_some() {
            return None;
        }
        let pairs = form_urlencoded::parse(encoded);
        let owned = pairs.map(|(name, value)| (name.into_owned(), value.into_owned()));
        Some(Self(owned.collect()))
    }

    /// The value without surrounding blanks. `None` if there is none.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let mut pairs = self.0.iter();
        let (_, value) = pairs.find(|(key, _)| key == name)?;
        Some(value.trim()).filter(|value| !value.is_empty())
    }

    /// As [`Fields::get`], empty if there is none.
    pub(crate) fn text(&self, name: &str) -> &str {
        self.get(name).unwrap_or_default()
    }

    /// The value as it was sent, with its blanks.
    pub(crate) fn raw(&self, name: &'static str) -> &str {
        self.all(name).next().unwrap_or_default()
    }

    /// Every value of a name, as it was sent.
    pub(crate) fn all(&self, name: &'static str) -> impl Iterator<Item = &str> {
        self.0
            .iter()
            .filter(move |(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    }

    /// As [`Fields::text`], as it is shown.
    pub(crate) fn shown(&self, name: &str) -> Text {
        Text::from(self.text(name))
    }

    /// A JSON object of the fields that are there.
    ///
    /// - `names`: those that belong to it.
    pub(crate) fn object(&self, names: &[&str]) -> Value {
        let members = names
            .iter()
            .filter_map(|name| Some(((*name).to_owned(), Value::from(self.get(name)?))));
        Value::Object(Map::from_iter(members))
    }
}

/// Builds the query of an address.
#[derive(Debug, Default)]
pub(crate) struct Query(String);

impl Query {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Adds a parameter.
    pub(crate) fn with(self, name: &str, value: &str) -> Self {
        Self(
            form_urlencoded::Serializer::new(self.0)
                .append_pair(name, value)
                .finish(),
        )
    }

    /// Adds a parameter, if there is a value.
    pub(crate) fn with_some(self, name: &str, value: Option<&str>) -> Self {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    /// Adds those of the fields that are there.
    pub(crate) fn with_fields(self, fields: &Fields, names: &[&str]) -> Self {
        names
            .iter()
            .fold(self, |query, name| query.with_some(name, fields.get(name)))
    }

    /// The address of a path with this query.
    pub(crate) fn at(self, path: &str) -> String {
        match self.0.as_str() {
            "" => path.to_owned(),
            query => format!("{path}?{query}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Fields, Query};

    #[test]
    fn empty_fields_are_absent() {
        let fields = Fields::read(b"a=+1+&b=&c=x%26y&a=2").unwrap();
        assert_eq!(
            (fields.get("a"), fields.get("b"), fields.get("d")),
            (Some("1"), None, None)
        );
        assert_eq!(fields.object(&["a", "b", "c"]), json!({"a": "1", "c": "x&y"}));
        let address = Query::new().with_fields(&fields, &["b", "c"]).with("n", "ü").at("/x");
        assert_eq!(address, "/x?c=x%26y&n=%C3%BC");
        assert_eq!(Query::new().at("/x"), "/x");
    }

    #[test]
    fn a_form_has_at_most_5000_fields() {
        assert!(Fields::read("a=b&".repeat(5_000).as_bytes()).is_some());
        assert!(Fields::read("a=b&".repeat(5_001).as_bytes()).is_none());
        assert!(Fields::read("a&".repeat(5_001).as_bytes()).is_none());
    }
}
