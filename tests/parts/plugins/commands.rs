//! The commands of `tollgate plugin`.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use tollgate_config::Plugins;

use crate::plugins::support::{Fixture, unchanged};

/// Runs `tollgate plugin …`: whether it succeeded, its standard output and its errors.
pub(crate) fn command(arguments: &[&str], settings: Plugins) -> (bool, String, String) {
    #[derive(clap::Parser)]
    struct Tollgate {
        #[command(flatten)]
        plugin: tollgate_cli::plugin::PluginArgs,
    }
    let arguments = ["plugin"].iter().chain(arguments);
    let args = <Tollgate as clap::Parser>::try_parse_from(arguments).unwrap().plugin;
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let code = tollgate_cli::plugin::run(args, settings, &mut out, &mut err);
    let done = match code {
        Ok(code) => format!("{code:?}") == format!("{:?}", std::process::ExitCode::SUCCESS),
        Err(error) => {
            err.extend(error.to_string().into_bytes());
            false
        }
    };
    (done, String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())
}

#[test]
fn the_command_line_lists_inspects_and_tests() {
    let mut fixture = Fixture::new();
    fixture.install("baseline", "baseline", unchanged);
    fixture.install("tenant-router", "tenant-router", unchanged);
    fixture.grant("tenant-router", &[], json!({ "groups": { "team-a": "a" } }));
    let settings = || fixture.plugins.clone();

    let (done, out, err) = command(&["list"], settings());
    assert!(done && err.is_empty(), "{err}");
    assert!(
        out.contains("NAME") && out.contains("baseline") && out.contains("tenant-router"),
        "{out}"
    );
    let (_, out, _) = command(&["list", "-o", "json"], settings());
    let listed: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(listed[1]["filters"], json!(["request"]));

    let file = fixture.file("tenant-router.wasm");
    let (done, out, err) = command(&["inspect", file.to_str().unwrap(), "-o", "json"], settings());
    assert!(done, "{err}");
    let seen: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(seen["exports"], json!(["tollgate:plugin/headers@0.1.0"]));
    assert_eq!(seen["imports"], json!([]));
    fs::write(fixture.file("lie.wasm"), b"\0asm\x0d\0\x01\0").unwrap();
    let (done, _, err) = command(&["inspect", fixture.file("lie.wasm").to_str().unwrap()], settings());
    assert!(!done && err.contains("cannot read the manifest"), "{err}");
    fs::remove_file(fixture.file("lie.wasm")).unwrap();

    let request = fixture.root.path().join("request.yaml");
    let request = request.to_str().unwrap();
    fs::write(
        request,
        "extension: metrics\ngroups: [team-a]\nheaders: { accept: '*/*' }\n",
    )
    .unwrap();
    let (done, out, err) = command(
        &["test", "tenant-router", "--request", request, "-o", "json"],
        settings(),
    );
    assert!(done, "{err}");
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(report["outcome"], "passed");
    assert_eq!(report["changes"][0]["field"], "x-scope-orgid");
    assert_eq!(report["changes"][0]["after"], json!(["a"]));
    fs::write(request, "extension: metrics\ngroups: [strangers]\n").unwrap();
    let (done, out, _) = command(&["test", "tenant-router", "--request", request], settings());
    assert!(
        !done && out.contains("refused") && out.contains("you belong to no tenant"),
        "{out}"
    );
}

#[test]
fn a_new_plugin_overwrites_nothing() {
    let root = tempfile::tempdir().unwrap();
    let into = root.path().to_str().unwrap();
    let (done, out, err) = command(
        &["new", "header-filter", "my-filter", "--into", into],
        Plugins::default(),
    );
    assert!(done, "{err}");
    assert!(
        out.contains("cargo run --release --manifest-path build/Cargo.toml"),
        "{out}"
    );
    let manifest = fs::read_to_string(root.path().join("my-filter/manifest.yaml")).unwrap();
    assert!(
        manifest.contains("name: my-filter\n") && !manifest.contains("{{"),
        "{manifest}"
    );
    assert!(root.path().join("my-filter/sdk/wit/headers.wit").exists());
    let (done, _, err) = command(
        &["new", "header-filter", "my-filter", "--into", into],
        Plugins::default(),
    );
    assert!(!done && err.contains("exists already"), "{err}");
    let (done, _, err) = command(
        &["new", "header-filter", "My_Filter", "--into", into],
        Plugins::default(),
    );
    assert!(!done && err.contains("not a plugin name"), "{err}");
}

/// A new plugin contains every file of `wit/`.
#[test]
fn a_new_plugin_has_the_whole_contract() {
    let root = tempfile::tempdir().unwrap();
    let into = root.path().to_str().unwrap();
    for (world, name, sdk) in [
        ("header-filter", "a", "a/sdk/wit"),
        ("provider", "b", "b/sdk/provider/wit"),
        ("credential-provider", "c", "c/sdk/provider/wit"),
    ] {
        assert!(command(&["new", world, name, "--into", into], Plugins::default()).0);
        for entry in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("wit")).unwrap() {
            let path = entry.unwrap().path();
            let copy = root.path().join(sdk).join(path.file_name().unwrap());
            assert_eq!(fs::read(&path).unwrap(), fs::read(&copy).unwrap(), "{}", path.display());
        }
    }
}

/// A new provider contains every source of the SDK.
#[test]
fn a_new_provider_has_the_whole_sdk() {
    let root = tempfile::tempdir().unwrap();
    let into = root.path().to_str().unwrap();
    assert!(command(&["new", "provider", "a", "--into", into], Plugins::default()).0);
    let sdk = Path::new(env!("CARGO_MANIFEST_DIR")).join("plugins/sdk/provider/src");
    let (mut folders, mut seen) = (vec![sdk.clone()], 0);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let copy = root
                .path()
                .join("a/sdk/provider/src")
                .join(path.strip_prefix(&sdk).unwrap());
            assert_eq!(fs::read(&path).unwrap(), fs::read(&copy).unwrap(), "{}", path.display());
            seen += 1;
        }
    }
    assert!(seen > 10, "{seen}");
    let manifest = fs::read_to_string(root.path().join("a/manifest.yaml")).unwrap();
    assert!(manifest.contains("name: a\n") && !manifest.contains("{{"), "{manifest}");
}
