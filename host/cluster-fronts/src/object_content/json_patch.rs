//! Reads what a JSON patch (RFC 6902) makes of an object's annotations and labels.
//!
//! Security: a patch that could set them in a way that is not read here is [`Unreadable`].

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use super::{Unreadable, each_field};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};

#[derive(Default)]
struct Operation {
    op: String,
    path: String,
    value: Option<Value>,
}

pub(super) fn read_metadata(bytes: &[u8]) -> Result<ObjectMeta, Unreadable> {
    let text = std::str::from_utf8(bytes).map_err(|_| Unreadable)?;
    let operations: Vec<Operation> = serde_json::from_str(text).map_err(|_| Unreadable)?;
    let (mut annotations, mut labels) = (BTreeMap::new(), BTreeMap::new());
    for Operation { op, path, value } in operations {
        // It changes nothing, and may compare with any value.
        if op == "test" {
            continue;
        }
        // A `move` that takes a text away passes here. Without the text, the object in the cluster counts.
        let Some((field, key)) = target(&path)? else { continue };
        let texts = match field {
            Field::Annotations => &mut annotations,
            Field::Labels => &mut labels,
        };
        match (op.as_str(), value) {
            ("add" | "replace", Some(Value::String(value))) => _ = texts.insert(key, value),
            ("remove", _) => _ = texts.remove(&key),
            (_, _) => return Err(Unreadable),
        }
    }
    Ok(ObjectMeta {
        annotations: Some(annotations),
        labels: Some(labels),
        ..ObjectMeta::default()
    })
}

#[derive(Clone, Copy, Debug)]
enum Field {
    Annotations,
    Labels,
}

/// The annotation or label that a JSON pointer (RFC 6901) names. `None` if it is elsewhere.
fn target(path: &str) -> Result<Option<(Field, String)>, Unreadable> {
    let tokens: Vec<&str> = path.split('/').collect();
    // SECURITY: what folds cases reads another field.
    let is = |token: &str, name: &str| match token.eq_ignore_ascii_case(name) {
        true if token != name => Err(Unreadable),
        is_same => Ok(is_same),
    };
    match tokens.as_slice() {
        ["", metadata, rest @ ..] if is(metadata, "metadata")? => match rest {
            // The value would be the whole metadata, in which keys may occur twice.
            [] => Err(Unreadable),
            [field, key @ ..] => {
                let field = match (is(field, "annotations")?, is(field, "labels")?) {
                    (true, _) => Field::Annotations,
                    (_, true) => Field::Labels,
                    (false, false) => return Ok(None),
                };
                match key {
                    // In this order (RFC 6901, section 4): `~01` is `~1`, and not `/`.
                    [key] => Ok(Some((field, key.replace("~1", "/").replace("~0", "~")))),
                    _ => Err(Unreadable),
                }
            }
        },
        ["", field, ..] if !field.is_empty() => Ok(None),
        _ => Err(Unreadable),
    }
}

impl<'de> Deserialize<'de> for Operation {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Self::default())
    }
}

impl<'de> Visitor<'de> for Operation {
    type Value = Self;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an operation of a JSON patch")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, map: A) -> Result<Self, A::Error> {
        each_field(map, ["op", "path", "value"], |field, map| {
            match field {
                "op" => self.op = map.next_value()?,
                "path" => self.path = map.next_value()?,
                _ => self.value = Some(map.next_value()?),
            }
            Ok(())
        })?;
        Ok(self)
    }
}
