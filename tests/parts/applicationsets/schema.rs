//! The schema of ApplicationSets and Applications has exactly the fields of Argo CD's definitions.

use serde_json::{Map, Value, json};
use test_support::kubernetes::crds;
use tollgate_applicationset::schema::{self, Error};

/// Parts of the definitions that may be any JSON, and that Argo CD reads all the same.
const ANY_JSON: [&str; 2] = ["matrix", "merge"];

fn definition(name: &str) -> Value {
    let files = crds::files();
    let file = files.iter().find(|file| file.ends_with(name)).unwrap();
    let text = std::fs::read_to_string(file).unwrap();
    let whole: Value = serde_saphyr::from_str(&text).unwrap();
    whole["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone()
}

/// Calls `visit` with the path of every field below an object of the schema.
fn each_field(schema: &Value, path: &mut Vec<String>, visit: &mut impl FnMut(&[String])) {
    let mut of = schema;
    while of["type"] == "array" {
        of = &of["items"];
    }
    for (name, field) in of["properties"].as_object().into_iter().flatten() {
        path.push(name.clone());
        visit(path);
        each_field(field, path, visit);
        path.pop();
    }
}

/// An object with nothing but this path.
fn with(path: &[String]) -> Value {
    path.iter().rev().fold(json!({}), |inner, name| {
        Value::Object(Map::from_iter([(name.clone(), inner)]))
    })
}

fn unknown(found: Vec<Error>) -> Vec<String> {
    let unknown = found.into_iter().filter_map(|error| match error {
        Error::Unknown { path, .. } => Some(path),
        Error::Missing { .. } => None,
    });
    unknown.collect()
}

#[test]
fn the_schema_has_the_fields_of_argocds_definitions() {
    type Check = fn(&Value) -> Vec<Error>;
    let checks: [(&str, Check); 2] = [
        ("applicationset-crd.yaml", schema::check_application_set),
        ("application-crd.yaml", schema::check_application),
    ];
    for (file, check) in checks {
        let mut fields = 0;
        let definition = definition(file);
        each_field(&definition, &mut Vec::new(), &mut |path| {
            if path[0] == "status" {
                return;
            }
            fields += 1;
            assert_eq!(unknown(check(&with(path))), [""; 0], "{file}: {path:?}");
            // The same path with a name that no field has.
            let mut wrong = path.to_vec();
            wrong.last_mut().unwrap().push_str("Zz");
            assert_eq!(unknown(check(&with(&wrong))), [wrong.join(".")], "{file}");
        });
        assert!(fields > 200, "{file}: {fields}");
    }
    // Where the definitions stop, the generators of Argo CD go on.
    let nested = |kind: &str, name: &str| json!({"spec": {"generators": [{"matrix": {"generators": [{kind: {"generators": [{"list": {name: []}}]}}]}}]}});
    for kind in ANY_JSON {
        assert_eq!(
            unknown(schema::check_application_set(&nested(kind, "elements"))),
            [""; 0]
        );
        assert_eq!(
            unknown(schema::check_application_set(&nested(kind, "element"))).len(),
            1
        );
    }
}
