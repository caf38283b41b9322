use serde_json::{Value, json};

use super::super::git::sanitize_name;
use super::{Fixture, matrix};

const URL: &str = "https://git.example/r.git";

fn fixture() -> Fixture {
    Fixture {
        files: vec![
            (
                "apps/one/config.yaml",
                "name: one\nsize: 3\ndeep:\n  live: yes\n  list: [a, b]\n",
            ),
            ("apps/Two_x/config.yaml", "- name: two\n- name: three\n-\n"),
            ("apps/one-b/readme.md", "text"),
            ("apps/empty/config.yaml", "# nothing\n"),
            ("apps/one/deep/x", ""),
            ("root.json", "{\"name\": \"root\", \"path\": \"lost\"}"),
        ],
        ..Fixture::default()
    }
}

fn directories(items: Value) -> Value {
    json!({"git": {"repoURL": URL, "revision": "HEAD", "directories": items}})
}

fn files(items: Value) -> Value {
    json!({"git": {"repoURL": URL, "revision": "main", "files": items}})
}

#[test]
fn directories_have_path_parameters() {
    let fixture = fixture();
    let generator = directories(json!([{"path": "apps/*"}, {"path": "apps/empty", "exclude": true}]));
    let made = fixture.fast(generator.clone()).unwrap();
    let paths: Vec<&Value> = made.iter().map(|params| &params["path"]).collect();
    assert_eq!(paths, ["apps/Two_x", "apps/one", "apps/one-b"]);
    assert_eq!(
        made[0],
        json!({
            "path": "apps/Two_x",
            "path.basename": "Two_x",
            "path.basenameNormalized": "two-x",
            "path[0]": "apps",
            "path[1]": "Two_x",
        })
    );
    let made = fixture.go(generator).unwrap();
    assert_eq!(
        made[0],
        json!({"path": {
            "path": "apps/Two_x",
            "basename": "Two_x",
            "basenameNormalized": "two-x",
            "segments": ["apps", "Two_x"],
        }})
    );
    assert_eq!(
        *fixture.accesses.lock().unwrap(),
        [format!("{URL}@HEAD"), format!("{URL}@HEAD")]
    );
}

#[test]
fn directories_are_in_the_order_of_a_directory_walk() {
    let made = fixture()
        .fast(directories(json!([{"path": "apps/*"}, {"path": "apps/*/*"}])))
        .unwrap();
    let paths: Vec<&Value> = made.iter().map(|params| &params["path"]).collect();
    assert_eq!(
        paths,
        ["apps/Two_x", "apps/empty", "apps/one", "apps/one/deep", "apps/one-b"]
    );
}

/// Argo CD also generates from directories in submodules, which are not read here.
#[test]
fn patterns_that_reach_into_a_submodule_are_refused() {
    let mut fixture = fixture();
    fixture.files.push(("vendor/lib/SUBMODULE", ""));
    for items in [
        json!([{"path": "*/*/*"}]),
        json!([{"path": "apps/*"}, {"path": "vendor/lib/*"}]),
    ] {
        let error = fixture.fast(directories(items)).unwrap_err().to_string();
        assert!(error.contains("`vendor/lib` is a submodule"), "{error}");
    }
    for items in [
        json!([{"path": "*/*"}]),
        json!([{"path": "apps/*"}, {"path": "vendor/lib/*", "exclude": true}]),
    ] {
        fixture.fast(directories(items)).unwrap();
    }
}

#[test]
fn objects_of_files_are_flattened_without_go_templates() {
    let made = fixture().fast(files(json!([{"path": "apps/**/config.yaml"}]))).unwrap();
    assert_eq!(made.len(), 5);
    let path = json!({
        "path": "apps/one",
        "path.basename": "one",
        "path.filename": "config.yaml",
        "path.basenameNormalized": "one",
        "path.filenameNormalized": "config.yaml",
        "path[0]": "apps",
        "path[1]": "one",
    });
    let mut expected = json!({"name": "one", "size": "3", "deep.live": "true", "deep.list.0": "a", "deep.list.1": "b"});
    expected
        .as_object_mut()
        .unwrap()
        .extend(path.as_object().unwrap().clone());
    assert_eq!(made[4], expected);
    assert_eq!(
        (&made[0]["name"], &made[1]["name"], made[2].get("name")),
        (&json!("two"), &json!("three"), None)
    );
    assert_eq!(made[3]["path"], "apps/empty");
}

#[test]
fn objects_of_files_are_kept_unchanged_with_go_templates() {
    let made = fixture()
        .go(files(json!([{"path": "apps/one/config.yaml"}, {"path": "root.json"}])))
        .unwrap();
    assert_eq!(
        made,
        [
            json!({
                "name": "one",
                "size": 3,
                "deep": {"live": true, "list": ["a", "b"]},
                "path": {
                    "path": "apps/one",
                    "basename": "one",
                    "filename": "config.yaml",
                    "basenameNormalized": "one",
                    "filenameNormalized": "config.yaml",
                    "segments": ["apps", "one"],
                },
            }),
            json!({
                "name": "root",
                "path": {
                    "path": ".",
                    "basename": ".",
                    "filename": "root.json",
                    "basenameNormalized": "",
                    "filenameNormalized": "root.json",
                    "segments": ["."],
                },
            }),
        ]
    );
}

#[test]
fn files_are_left_out_by_any_exclude() {
    let items = json!([{"path": "apps/one", "exclude": true}, {"path": "*.yaml"}, {"path": "apps/one/*"}]);
    let made = fixture().fast(files(items)).unwrap();
    let paths: Vec<&Value> = made.iter().map(|params| &params["path"]).collect();
    assert_eq!(paths, ["apps/Two_x", "apps/Two_x", "apps/Two_x", "apps/empty"]);
    assert!(
        fixture()
            .fast(files(json!([{"path": "*", "exclude": true}])))
            .unwrap()
            .is_empty()
    );
}

#[test]
fn path_parameters_can_have_a_prefix() {
    let mut generator = directories(json!([{"path": "apps/one"}]));
    generator["git"]["pathParamPrefix"] = json!("p");
    let made = fixture().fast(generator.clone()).unwrap();
    assert_eq!(
        made[0],
        json!({
            "p.path": "apps/one",
            "p.path.basename": "one",
            "p.path.basenameNormalized": "one",
            "p.path[0]": "apps",
            "p.path[1]": "one",
        })
    );
    let made = fixture().go(generator).unwrap();
    assert_eq!(made[0]["p"]["path"]["basename"], "one");
    assert_eq!(made[0].get("path"), None);
}

#[test]
fn values_are_templates_over_the_file_parameters() {
    let mut generator = files(json!([{"path": "apps/one/config.yaml"}]));
    generator["git"]["values"] = json!({"v": "{{name}}/{{path.basename}}/{{path[0]}}"});
    assert_eq!(
        fixture().fast(generator.clone()).unwrap()[0]["values.v"],
        "one/one/apps"
    );
    generator["git"]["values"] = json!({"v": "{{.name}}/{{index .path.segments 0}}"});
    assert_eq!(fixture().go(generator).unwrap()[0]["values"]["v"], "one/apps");
}

#[test]
fn invalid_git_generators_are_refused() {
    let fixture = Fixture {
        files: vec![("text", "just text"), ("list", "[1]"), ("broken", "a: [")],
        ..Fixture::default()
    };
    for (generator, why) in [
        (
            json!({"git": {"repoURL": URL}}),
            "git`: has neither `directories` nor `files`",
        ),
        (
            directories(json!([{"path": "a["}])),
            "git.directories[0].path`: `a[` has a syntax error in pattern",
        ),
        (
            directories(json!([{"path": "a"}, {"path": "[]", "exclude": true}])),
            "directories[1].path`: `[]` has a syntax error",
        ),
        (
            directories(json!([{"path": "a".repeat(5000)}])),
            "has 5000 bytes, at most 4096 are allowed",
        ),
        (
            files(json!([{"path": "../x"}])),
            "git.files[0].path`: `../x` is outside repository",
        ),
        (
            files(json!([{"path": "text"}])),
            "file `text` of `https://git.example/r.git` is neither a mapping",
        ),
        (
            files(json!([{"path": "list"}])),
            "is neither a mapping nor a list of mappings",
        ),
        (
            files(json!([{"path": "broken"}])),
            "file `broken` of `https://git.example/r.git` cannot be read: line ",
        ),
        (
            json!({"git": {"repoURL": "https://git.example/missing", "files": [{"path": "x"}]}}),
            "`spec.generators[0].git`: there is no repository `https://git.example/missing`",
        ),
    ] {
        let error = fixture.fast(generator).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn a_repository_is_opened_once_per_revision() {
    let fixture = fixture();
    let mut second = files(json!([{"path": "{{path}}/config.yaml"}]));
    second["git"]["pathParamPrefix"] = json!("file");
    second["git"]["revision"] = json!("HEAD");
    let made = fixture
        .fast(matrix(json!([directories(json!([{"path": "apps/*"}])), second])))
        .unwrap();
    assert_eq!(made.len(), 5);
    assert_eq!(made[0]["path"], made[0]["file.path"]);
    assert_eq!(*fixture.accesses.lock().unwrap(), [format!("{URL}@HEAD")]);
}

#[test]
fn names_are_normalized_as_argo_cd_does() {
    for (name, expected) in [
        ("Team_A/x.y-", "team-a-x.y"),
        ("..a--b..", "a--b"),
        ("ÄB", "b"),
        ("_", ""),
        ("", ""),
    ] {
        assert_eq!(sanitize_name(name), expected, "{name}");
    }
    assert_eq!(sanitize_name(&"a".repeat(300)).len(), 253);
}
