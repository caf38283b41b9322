//! Parses JSON and charges the memory of each value while it parses.
//!
//! Invariant: bytes are charged before a value is made: `[0,0,…]` takes sixteen times its text.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use super::heap_size;
use super::yaml::Error;

/// Parses a text that is one JSON value.
///
/// - `charge`: charges bytes before they are allocated.
pub(super) fn read<E>(text: &str, charge: &mut dyn FnMut(u64) -> Result<(), E>) -> Result<Value, Error<E>> {
    // The error of `charge`, which does not fit into the parser's own error type.
    let mut limit = None;
    let mut reader = serde_json::Deserializer::from_str(text);
    let mut has_room = |bytes| charge(bytes).map_err(|error| limit = Some(error)).is_ok();
    let read = Seed(&mut has_room).deserialize(&mut reader);
    match (read.and_then(|value| reader.end().map(|()| value)), limit) {
        // Before the parser's error, which only says that reading stopped.
        (_, Some(limit)) => Err(Error::Limit(limit)),
        (Ok(value), None) => Ok(value),
        (Err(error), None) => Err(Error::Syntax(error.to_string())),
    }
}

/// Charges bytes, and says whether the budget has room for them.
struct Seed<'s>(&'s mut dyn FnMut(u64) -> bool);

impl Seed<'_> {
    fn charge<D: serde::de::Error>(&mut self, bytes: u64) -> Result<(), D> {
        match (self.0)(bytes) {
            true => Ok(()),
            false => Err(D::custom("it is too large")),
        }
    }
}

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(mut self, reader: D) -> Result<Value, D::Error> {
        self.charge(heap_size::VALUE_BYTES)?;
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<D>(self) -> Result<Value, D> {
        Ok(Value::Null)
    }

    fn visit_bool<D>(self, yes: bool) -> Result<Value, D> {
        Ok(Value::Bool(yes))
    }

    fn visit_i64<D>(self, number: i64) -> Result<Value, D> {
        Ok(number.into())
    }

    fn visit_u64<D>(self, number: u64) -> Result<Value, D> {
        Ok(number.into())
    }

    fn visit_f64<D>(self, number: f64) -> Result<Value, D> {
        Ok(number.into())
    }

    fn visit_str<D: serde::de::Error>(mut self, text: &str) -> Result<Value, D> {
        self.charge(heap_size::text(text))?;
        Ok(Value::String(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(Seed(self.0))? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut entries: A) -> Result<Value, A::Error> {
        let mut members = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            // Duplicate keys are charged twice, which is more than they take.
            let bytes = heap_size::map_growth(members.len()).saturating_add(heap_size::text(&key));
            self.charge(bytes)?;
            let value = entries.next_value_seed(Seed(self.0))?;
            members.insert(key, value);
        }
        Ok(Value::Object(members))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Error, read};
    use crate::heap_size;

    fn within(text: &str, allowed: u64) -> Result<Value, Error<u64>> {
        let mut taken = 0;
        read(text, &mut |bytes| {
            taken += bytes;
            if taken > allowed { Err(taken) } else { Ok(()) }
        })
    }

    #[test]
    fn values_equal_those_of_serde_json_and_their_heap_size_is_charged() {
        for text in [
            "null",
            " [true, -1, 18446744073709551615, 1.5, \"\\u00e4\\n\"] ",
            "{\"a\": {\"b\": [], \"c\": {}}, \"d\": \"\"}",
        ] {
            let wanted: Value = serde_json::from_str(text).unwrap();
            let bytes = heap_size::of(&wanted);
            assert_eq!(within(text, bytes), Ok(wanted), "{text}");
            assert_eq!(within(text, bytes - 1), Err(Error::Limit(bytes)), "{text}");
        }
        assert_eq!(within("{\"a\": 1, \"a\": 2}", 10_000), Ok(json!({"a": 2})));
        for text in ["", "{", "1 2", "{\"a\": b}", "{1: 2}"] {
            assert!(matches!(within(text, 10_000), Err(Error::Syntax(_))), "{text}");
        }
    }

    #[test]
    fn many_small_values_stop_at_the_limit() {
        let zeros = format!("[{}0]", "0,".repeat(10_000));
        assert!(within(&zeros, 1_000_000).is_ok());
        let deep = format!("{}{}", "{\"a\":[".repeat(40), "]}".repeat(40));
        assert!(within(&deep, 1_000_000).is_ok());
        assert!(matches!(within(&zeros, 100_000), Err(Error::Limit(_))));
        assert!(matches!(within(&deep, 20_000), Err(Error::Limit(_))));
    }
}
