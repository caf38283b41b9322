#[path = "cases/extension_config.rs"]
mod extension_config;
#[path = "cases/project_destinations.rs"]
mod project_destinations;

#[test]
fn all() {
    let mut failed = Vec::new();
    let mut ran = 0;
    for file in ["extension_config", "project_destinations"] {
        let text = std::fs::read_to_string(format!("tests/cases/{file}.yaml")).unwrap();
        let value: serde_json::Value = serde_saphyr::from_str(&text).unwrap();
        for case in value["cases"].as_array().unwrap() {
            let run = match case["kind"].as_str().unwrap() {
                "register" => extension_config::register,
                "configmap_keys" => extension_config::configmap_keys,
                "secret_substitution" => extension_config::secret_substitution,
                "destination_permitted" => project_destinations::destination_permitted,
                "destination_permitted_error" => project_destinations::destination_permitted_error,
                other => panic!("{other}"),
            };
            ran += 1;
            if let Err(error) = run(case.clone()) { failed.push(format!("{}: {error}", case["id"])); }
        }
    }
    println!("{ran} cases");
    assert!(failed.is_empty(), "{failed:#?}");
}
