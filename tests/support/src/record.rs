//! The shape of decision records.

use std::sync::LazyLock;

use jsonschema::Validator;
use serde_json::Value;

static SHAPE: LazyLock<Validator> = LazyLock::new(|| {
    let schema = include_str!("../../../host/proxy/src/record/record.schema.json");
    jsonschema::validator_for(&serde_json::from_str(schema).unwrap()).unwrap()
});

/// Asserts that a record fits the schema that other programs read records by.
///
/// # Panics
/// It does not. The text names the field.
pub fn assert_record(record: &Value) {
    if let Err(error) = SHAPE.validate(record) {
        panic!("`{}` of a decision record: {error}: {record:#}", error.instance_path());
    }
}
