//! Files of plugins: wrong manifests, replaced, broken and removed files, and the cache.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use http::{HeaderMap, StatusCode};
use serde_json::json;
use tollgate_core::diagnostic::Location;
use tollgate_plugin::{CallError, CodeOrigin, PluginSet};

use crate::plugins::support::{Fixture, call, filter, lines, unchanged};

#[test]
fn what_manifest_and_component_disagree_on_is_refused() {
    let mut fixture = Fixture::new();
    fixture.install("hostile", "digest", |manifest| {
        manifest.replace("sha256: ", "sha256: 0")
    });
    let wrong = format!("sha256: {}", "0".repeat(64));
    fixture.install("hostile", "other", |manifest| {
        let line = manifest
            .lines()
            .find(|line| line.starts_with("sha256:"))
            .unwrap()
            .to_owned();
        manifest.replace(&line, &wrong)
    });
    fixture.install("hostile", "pinned", unchanged);
    fixture.grant("pinned", &[], json!({}));
    fixture.plugins.grants.get_mut("pinned").unwrap().sha256 = Some("1".repeat(64));
    fixture.install("chatty", "secretive", |manifest| {
        manifest.replace("imports: [log, clock, random]", "")
    });
    fixture.install("chatty", "ungranted", unchanged);
    fixture.grant("ungranted", &["log", "random"], json!({}));
    for (name, bytes) in [
        ("empty", &b"\0asm\x0d\0\x01\0"[..]),
        ("module", b"\0asm\x01\0\0\0"),
        ("text", b"hello"),
    ] {
        fixture.install("hostile", name, |manifest| {
            let line = manifest
                .lines()
                .find(|line| line.starts_with("sha256:"))
                .unwrap()
                .to_owned();
            manifest.replace(&line, &format!("sha256: {}", sha256(bytes)))
        });
        fs::write(fixture.file(&format!("{name}.wasm")), bytes).unwrap();
    }
    fixture.install("hostile", "alone", unchanged);
    fs::remove_file(fixture.file("alone.yaml")).unwrap();
    fixture.install("hostile", "huge", unchanged);
    fs::File::options()
        .write(true)
        .open(fixture.file("huge.wasm"))
        .unwrap()
        .set_len((64 << 20) + 1)
        .unwrap();
    fixture.install("tenant-router", "misconfigured", unchanged);
    fixture.grant("misconfigured", &[], json!({ "fallback": 7 }));
    fs::create_dir(fixture.file("folder.wasm")).unwrap();
    fs::write(fixture.file("folder.yaml"), "name: folder").unwrap();

    let (set, diagnostics) = fixture.runtime().load(None);
    let found = lines(&diagnostics);
    for (name, text) in [
        ("digest.yaml:2:9", "not a digest"),
        ("other.yaml:2:9", "its manifest says"),
        ("pinned.yaml:2:9", "the grant pins"),
        ("secretive.yaml", "which its manifest does not list"),
        ("ungranted.yaml", "imports `clock`, which is not granted"),
        ("empty.yaml", "does not export `tollgate:plugin/headers`"),
        ("module.yaml", "does not compile"),
        ("text.yaml", "not WebAssembly"),
        ("alone.wasm", "has no manifest"),
        ("huge.wasm", "at most `67108864` are allowed"),
        ("misconfigured.yaml", "config`: `/fallback`"),
        ("folder.wasm", "not a regular file"),
    ] {
        assert!(
            found.iter().any(|line| line.contains(name) && line.contains(text)),
            "{name} {text}: {found:#?}"
        );
    }
    assert_eq!(set.list().count(), 0);
}

fn sha256(bytes: &[u8]) -> String {
    use sha2::Digest as _;
    sha2::Sha256::digest(bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

#[tokio::test]
async fn files_are_replaced_broken_and_removed_under_running_calls() {
    let mut fixture = Fixture::new();
    fixture.install("hostile", "a", unchanged);
    fixture.install("hostile", "b", unchanged);
    for name in ["a", "b"] {
        fixture.grant(name, &[], json!({}));
    }
    let runtime = fixture.runtime();
    let (first, _) = runtime.load(None);
    let (old_a, old_b) = (filter(&first, "a"), filter(&first, "b"));

    fixture.install("tenant-router", "a", |manifest| {
        manifest.replace("  type: object\n", "  type: object\n  maxProperties: 9\n")
    });
    let (second, diagnostics) = runtime.load(Some(&first));
    assert_eq!(lines(&diagnostics), Vec::<String>::new());
    drop(first);
    assert_ne!(filter(&second, "a").digest(), old_a.digest());
    assert!(
        Arc::ptr_eq(&filter(&second, "b"), &old_b),
        "an unchanged plugin was loaded again"
    );
    let mut headers = HeaderMap::new();
    call(&old_a, &mut headers).await.unwrap();
    assert_eq!(headers["x-calls-before"], "0");
    let error = call(&filter(&second, "a"), &mut headers).await.unwrap_err();
    assert!(
        matches!(
            error,
            CallError::Refused {
                status: StatusCode::FORBIDDEN,
                ..
            }
        ),
        "{error:?}"
    );

    fs::write(fixture.file("a.wasm"), b"\0asm broken").unwrap();
    let (third, diagnostics) = runtime.load(Some(&second));
    assert!(
        Arc::ptr_eq(&filter(&third, "a"), &filter(&second, "a")),
        "a broken file replaced one that works"
    );
    let found = lines(&diagnostics);
    for text in [
        "a.yaml:4:9: error: the component's digest is",
        "a.yaml: warning: version `0.1.0`, loaded before, stays in use",
    ] {
        assert!(found.iter().any(|line| line.contains(text)), "{text}: {found:?}");
    }
    fs::remove_file(fixture.file("a.yaml")).unwrap();
    let (third, _) = runtime.load(Some(&third));
    assert!(
        third.header_filter("a").is_some(),
        "a component without a manifest removed its previous version"
    );

    fs::remove_file(fixture.file("a.wasm")).unwrap();
    let (fourth, _) = runtime.load(Some(&third));
    assert_eq!(fourth.list().map(|plugin| plugin.name).collect::<Vec<_>>(), ["b"]);
    call(&filter(&third, "a"), &mut headers).await.unwrap_err();
    call(&old_a, &mut headers).await.unwrap();
}

#[tokio::test]
async fn a_configuration_beside_the_plugin_is_loaded_again() {
    let mut fixture = Fixture::new();
    fixture.install("tenant-router", "a", unchanged);
    let file = fixture.file("a.config.yaml");
    fs::write(&file, "fallback: one\n").unwrap();
    let runtime = fixture.runtime();
    let (first, diagnostics) = runtime.load(None);
    assert_eq!(lines(&diagnostics), Vec::<String>::new());
    let tenant = async |set: &PluginSet| {
        let mut headers = HeaderMap::new();
        call(&filter(set, "a"), &mut headers).await.unwrap();
        headers["x-scope-orgid"].to_str().unwrap().to_owned()
    };
    assert_eq!(tenant(&first).await, "one");

    fs::write(&file, "fallback: two\n").unwrap();
    let (second, diagnostics) = runtime.load(Some(&first));
    assert_eq!(lines(&diagnostics), Vec::<String>::new());
    assert_eq!(tenant(&second).await, "two");

    for (text, finding) in [
        ("fallback: 7\n", "a.config.yaml: error: the configuration: `/fallback`"),
        ("fallback: [\n", "a.config.yaml:"),
        ("fallbak: two\n", "a.config.yaml: error: the configuration: "),
    ] {
        fs::write(&file, text).unwrap();
        let (third, diagnostics) = runtime.load(Some(&second));
        let found = lines(&diagnostics);
        assert!(found.iter().any(|line| line.contains(finding)), "{text}: {found:?}");
        assert_eq!(tenant(&third).await, "two", "{text}");
    }

    fs::write(&file, "fallback: two\n").unwrap();
    fixture.grant("a", &[], json!({"fallback": "three"}));
    let (_, diagnostics) = fixture.runtime().load(None);
    let both = "a.config.yaml: error: `plugins.grants.a.config` in the settings is the configuration, too";
    assert!(
        lines(&diagnostics).iter().any(|line| line.contains(both)),
        "{diagnostics:?}"
    );
    fs::remove_file(fixture.file("a.wasm")).unwrap();
    fs::remove_file(fixture.file("a.yaml")).unwrap();
    let (none, diagnostics) = fixture.runtime().load(None);
    assert_eq!(none.list().count(), 0);
    let alone = "a.config.yaml: warning: there is no component `a.wasm` beside it";
    assert!(
        lines(&diagnostics).iter().any(|line| line.contains(alone)),
        "{diagnostics:?}"
    );
}

/// The only compiled guest in the cache.
fn compiled(fixture: &Fixture) -> PathBuf {
    let files = fs::read_dir(fixture.root.path().join("cache"))
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut files = files.filter(|path| path.extension().is_some_and(|extension| extension == "cwasm"));
    let file = files.next().unwrap();
    assert!(files.next().is_none());
    file
}

#[tokio::test]
async fn a_plugin_with_a_changed_cache_file_is_compiled_again() {
    let mut fixture = Fixture::new();
    fixture.install("hostile", "a", unchanged);
    fixture.grant("a", &[], json!({}));
    assert_eq!(filter(&fixture.load(), "a").origin, CodeOrigin::Compiled);
    assert_eq!(filter(&fixture.load(), "a").origin, CodeOrigin::Cached);
    let file = compiled(&fixture);
    let whole = fs::read(&file).unwrap();
    let mut tampered: Vec<Vec<u8>> = [0, 31, 32, 100, whole.len() / 2, whole.len() - 1]
        .into_iter()
        .map(|at| {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            bytes
        })
        .collect();
    tampered.extend([
        Vec::new(),
        whole[..10].to_vec(),
        whole[..whole.len() - 1].to_vec(),
        whole[32..].to_vec(),
    ]);
    for bytes in tampered {
        fs::write(&file, &bytes).unwrap();
        let plugin = filter(&fixture.load(), "a");
        assert_eq!(plugin.origin, CodeOrigin::Compiled);
        call(&plugin, &mut HeaderMap::new()).await.unwrap();
        assert_eq!(
            fs::read(&file).unwrap().len(),
            whole.len(),
            "the valid file was not written again"
        );
        assert_eq!(filter(&fixture.load(), "a").origin, CodeOrigin::Cached);
    }
    // A valid file of another guest.
    let mut other = Fixture::new();
    other.install("baseline", "a", unchanged);
    other.grant("a", &[], json!({}));
    other.plugins.cache = fixture.plugins.cache.clone();
    assert_eq!(filter(&other.load(), "a").origin, CodeOrigin::Compiled);
    let cache = fs::read_dir(fixture.root.path().join("cache"))
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let foreign = cache.filter(|path| path.extension().is_some_and(|extension| extension == "cwasm") && *path != file);
    fs::copy(foreign.last().unwrap(), &file).unwrap();
    assert_eq!(filter(&fixture.load(), "a").origin, CodeOrigin::Compiled);
}

#[tokio::test]
async fn a_cache_others_can_write_to_is_not_used() {
    let mut fixture = Fixture::new();
    fixture.install("hostile", "a", unchanged);
    fixture.grant("a", &[], json!({}));
    let cache = fixture.root.path().join("cache");
    fs::create_dir(&cache).unwrap();
    fs::set_permissions(&cache, fs::Permissions::from_mode(0o770)).unwrap();
    let (set, diagnostics) = fixture.runtime().load(None);
    let found = lines(&diagnostics);
    assert!(
        found
            .iter()
            .any(|line| line.contains("compiled plugins are not kept") && line.contains("mode `770`")),
        "{found:?}"
    );
    assert!(diagnostics.iter().all(|finding| !finding.is_error()));
    call(&filter(&set, "a"), &mut HeaderMap::new()).await.unwrap();
    assert_eq!(fs::read_dir(&cache).unwrap().count(), 0);
}

#[test]
fn a_grant_for_an_absent_plugin_is_reported_with_its_location() {
    let mut fixture = Fixture::new();
    fixture.install("hostile", "a", unchanged);
    for name in ["a", "b"] {
        fixture.grant(name, &[], json!({}));
        let grant = fixture.plugins.grants.get_mut(name).unwrap();
        grant.location = Some(Location::new("tollgate.yaml", 7));
    }
    let (_set, diagnostics) = fixture.runtime().load(None);
    let found: Vec<_> = diagnostics.iter().map(ToString::to_string).collect();
    let [found] = found.as_slice() else {
        panic!("expected one diagnostic, got {found:#?}");
    };
    assert!(
        found.starts_with("tollgate.yaml:7: warning: `plugins.grants.b` is for"),
        "{found}"
    );
}
