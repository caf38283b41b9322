//! Targets as ordinary tests.

use std::path::Path;

use super::own;

#[test]
fn every_target_holds_on_its_seeds_earlier_finds_and_mutations() {
    tollgate_fuzz::check(&own());
}

/// Every folder of finds belongs to a target: a renamed target must not lose them.
#[test]
fn finds_belong_to_targets() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let sources = tollgate_fuzz::sources();
    for folder in std::fs::read_dir(root.join("tests/data/fuzz")).unwrap() {
        let name = folder.unwrap().file_name().into_string().unwrap();
        let forms = [format!("name: \"{name}\","), format!("target(\"{name}\",")];
        let is_named = |source: &&String| forms.iter().any(|form| source.contains(form));
        let targets = sources.iter().filter(is_named).count();
        assert_eq!(targets, 1, "targets named `{name}`");
    }
}
