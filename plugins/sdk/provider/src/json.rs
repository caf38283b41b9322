//! JSON that contains secrets, as parts for the host to join.
//!
//! Security: the host encodes each secret as a JSON string, so that it cannot change the structure.

use crate::{Encoding, Part, Secret, SecretRef};

/// A JSON value that may contain secrets.
#[derive(Clone, Debug)]
pub enum Json<'a> {
    /// A value without secrets.
    Value(serde_json::Value),
    /// A secret, as a string.
    Secret(&'a Secret),
    /// An object, in order.
    Object(Vec<(&'a str, Json<'a>)>),
    /// An array.
    Array(Vec<Json<'a>>),
}

impl<'a> Json<'a> {
    /// The JSON text in parts. Adjacent text is one part.
    pub fn parts(&self) -> Vec<Part<'a>> {
        let mut writer = Writer::default();
        writer.json(self);
        writer.finish()
    }
}

impl From<serde_json::Value> for Json<'_> {
    fn from(value: serde_json::Value) -> Self {
        Self::Value(value)
    }
}

impl From<&str> for Json<'_> {
    fn from(text: &str) -> Self {
        Self::Value(text.into())
    }
}

impl<'a> From<&'a Secret> for Json<'a> {
    fn from(secret: &'a Secret) -> Self {
        Self::Secret(secret)
    }
}

/// Collects text and secrets in order.
#[derive(Default)]
struct Writer<'a> {
    parts: Vec<Part<'a>>,
    text: String,
}

impl<'a> Writer<'a> {
    fn json(&mut self, json: &Json<'a>) {
        match json {
            Json::Value(value) => self.text.push_str(&value.to_string()),
            Json::Secret(secret) => {
                self.flush();
                self.parts.push(Part::Secret(SecretRef {
                    value: secret,
                    encoding: Encoding::Json,
                }));
            }
            Json::Object(members) => {
                self.text.push('{');
                for (index, (name, value)) in members.iter().enumerate() {
                    if index > 0 {
                        self.text.push(',');
                    }
                    self.text.push_str(&serde_json::Value::from(*name).to_string());
                    self.text.push(':');
                    self.json(value);
                }
                self.text.push('}');
            }
            Json::Array(items) => {
                self.text.push('[');
                for (index, item) in items.iter().enumerate() {
                    if index > 0 {
                        self.text.push(',');
                    }
                    self.json(item);
                }
                self.text.push(']');
            }
        }
    }

    fn flush(&mut self) {
        if !self.text.is_empty() {
            self.parts.push(Part::Text(core::mem::take(&mut self.text)));
        }
    }

    fn finish(mut self) -> Vec<Part<'a>> {
        self.flush();
        self.parts
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn text_is_one_part_and_well_formed() {
        let json = Json::Object(vec![
            ("a\"b", Json::from("c\n")),
            (
                "list",
                Json::Array(vec![Json::from(json!(1)), Json::from(json!({"x": null}))]),
            ),
            ("empty", Json::Object(Vec::new())),
        ]);
        let parts = json.parts();
        let [Part::Text(text)] = parts.as_slice() else {
            panic!("one part of text")
        };
        assert_eq!(text, r#"{"a\"b":"c\n","list":[1,{"x":null}],"empty":{}}"#);
    }
}
