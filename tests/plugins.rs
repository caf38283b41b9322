//! Guests at their worst beside guests at work.
//!
//! Needs the built guests: `cargo xtask plugins`, or their folder in
//! `TOLLGATE_GUESTS`.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use serde_json::{Value, json};
use tollgate::config::{Grant, Plugins};
use tollgate::diagnostic::Diagnostic;
use tollgate::plugin::{Allocation, CallError, HeaderFilter, Lie, Origin, RequestContext, Runtime, Set, TrapCause};

/// Where `cargo xtask plugins` puts the guests.
fn guests() -> PathBuf {
    let folder = std::env::var_os("TOLLGATE_GUESTS").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("target/guests"),
        PathBuf::from,
    );
    assert!(
        folder.join("hostile.wasm").exists(),
        "no guests in {}: run `cargo xtask plugins`",
        folder.display()
    );
    folder
}

/// A plugins folder, a cache folder, and what is granted.
struct Place {
    root: tempfile::TempDir,
    plugins: Plugins,
}

impl Place {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("plugins")).unwrap();
        let plugins = Plugins {
            directory: Some(root.path().join("plugins")),
            cache: Some(root.path().join("cache")),
            required: Vec::new(),
            grants: BTreeMap::new(),
        };
        Self { root, plugins }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.root.path().join("plugins").join(name)
    }

    /// Puts a guest into the folder under another name.
    fn install(&mut self, guest: &str, name: &str, edit: impl Fn(String) -> String) {
        let manifest = fs::read_to_string(guests().join(format!("{guest}.yaml"))).unwrap();
        let manifest = manifest.replacen(&format!("name: {guest}"), &format!("name: {name}"), 1);
        fs::copy(
            guests().join(format!("{guest}.wasm")),
            self.file(&format!("{name}.wasm")),
        )
        .unwrap();
        fs::write(self.file(&format!("{name}.yaml")), edit(manifest)).unwrap();
    }

    fn grant(&mut self, name: &str, imports: &[&str], config: Value) {
        let imports = imports.iter().map(|import| (*import).to_owned()).collect();
        let grant = Grant {
            imports,
            config,
            time: Some(Duration::from_millis(60)),
            ..Grant::default()
        };
        self.plugins.grants.insert(name.to_owned(), grant);
    }

    fn runtime(&self) -> Runtime {
        Runtime::new(&self.plugins).unwrap()
    }

    /// Loads a folder that has nothing wrong in it.
    fn load(&self) -> Set {
        let (set, diagnostics) = self.runtime().load(None);
        assert_eq!(lines(&diagnostics), Vec::<String>::new());
        set
    }
}

fn same(manifest: String) -> String {
    manifest
}

fn lines(diagnostics: &[Diagnostic]) -> Vec<String> {
    diagnostics.iter().map(ToString::to_string).collect()
}

fn filter(set: &Set, name: &str) -> Arc<HeaderFilter> {
    set.header_filter(name)
        .unwrap_or_else(|| panic!("no plugin `{name}`"))
        .clone()
}

fn headers(fields: &[(&'static str, &'static str)]) -> HeaderMap {
    let pair =
        |(name, value): &(&'static str, &'static str)| (HeaderName::from_static(name), HeaderValue::from_static(value));
    fields.iter().map(pair).collect()
}

async fn call(filter: &HeaderFilter, headers: &mut HeaderMap) -> Result<(), CallError> {
    let context = RequestContext {
        extension: "metrics",
        method: "GET",
        path: "/",
        ..RequestContext::default()
    };
    filter.filter_request(&context, headers).await
}

/// A refusal or failure, without the plugin's name, as it should be.
fn expected(behavior: &str, error: &CallError) -> bool {
    let forbidden = |name: &'static str| Lie::ForbiddenHeader(HeaderName::from_static(name));
    let lie = |wanted: Lie| matches!(error, CallError::Lie { lie, .. } if *lie == wanted);
    let trap = |wanted: TrapCause| matches!(error, CallError::Trap { cause, .. } if *cause == wanted);
    match behavior {
        "loop" => matches!(error, CallError::Timeout { allowed_ms: 60, .. }),
        "trap" | "panic" => trap(TrapCause::Guest),
        "recurse" => trap(TrapCause::Stack) || trap(TrapCause::Guest),
        "memoryBomb" => matches!(error, CallError::Memory { .. }),
        "forbiddenHeader" => lie(forbidden("argocd-username")),
        "forbiddenRemoval" => lie(forbidden("authorization")),
        "badHeaderName" => lie(Lie::HeaderName),
        "badHeaderValue" => lie(Lie::HeaderValue),
        "tooManyEdits" => lie(Lie::TooManyEdits {
            observed: 1000,
            allowed: 128,
        }),
        "tooManyBytes" => lie(Lie::TooManyBytes {
            observed: 100_006,
            allowed: 32_768,
        }),
        "gigabyte" => trap(TrapCause::HostData),
        "refuseWithOk" => lie(Lie::Status(200)),
        "refuse" => {
            let (status, reason) = (StatusCode::UNAVAILABLE_FOR_LEGAL_REASONS, "for  legal  reasons");
            matches!(error, CallError::Refused { status: s, reason: r, .. } if *s == status && r == reason)
        }
        other => panic!("unknown behavior {other}"),
    }
}

const BEHAVIORS: [&str; 14] = [
    "loop",
    "trap",
    "panic",
    "recurse",
    "memoryBomb",
    "forbiddenHeader",
    "forbiddenRemoval",
    "badHeaderName",
    "badHeaderValue",
    "tooManyEdits",
    "tooManyBytes",
    "gigabyte",
    "refuseWithOk",
    "refuse",
];

/// The plugin that misbehaves in one way.
fn name_of(behavior: &str) -> String {
    format!("bad-{}", behavior.to_lowercase())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_hostile_guest_harms_only_its_own_call() {
    const GOOD_CALLS: usize = 10_000;
    let mut place = Place::new();
    place.install("hostile", "good", same);
    place.grant("good", &[], json!({}));
    for behavior in BEHAVIORS {
        place.install("hostile", &name_of(behavior), same);
        place.grant(
            &name_of(behavior),
            &[],
            json!({ "request": behavior, "response": behavior }),
        );
    }
    let set = place.load();
    let good = filter(&set, "good");

    let work = tokio::spawn(async move {
        for _ in 0..GOOD_CALLS {
            let mut headers = headers(&[("x-tenant", "a"), ("accept", "*/*")]);
            call(&good, &mut headers).await.unwrap();
            assert_eq!(
                headers.get("x-calls-before").unwrap(),
                "0",
                "an instance was used twice"
            );
            assert_eq!(headers.len(), 3);
        }
    });
    // More loops at once than one plugin has slots.
    let looping = filter(&set, &name_of("loop"));
    let loops: Vec<_> = (0..200)
        .map(|_| {
            let looping = looping.clone();
            tokio::spawn(async move { call(&looping, &mut HeaderMap::new()).await.unwrap_err() })
        })
        .collect();
    let mut rounds = 0;
    while !work.is_finished() {
        rounds += 1;
        for behavior in BEHAVIORS.into_iter().filter(|behavior| *behavior != "loop") {
            let mut headers = headers(&[("x-tenant", "a")]);
            let before = headers.clone();
            let bad = filter(&set, &name_of(behavior));
            let error = call(&bad, &mut headers).await.unwrap_err();
            assert!(expected(behavior, &error), "{behavior}: {error:?}");
            assert_eq!(headers, before, "{behavior} left half of its edits");
            let context = RequestContext::default();
            let error = bad
                .filter_response(&context, StatusCode::OK, &mut headers)
                .await
                .unwrap_err();
            assert!(expected(behavior, &error), "{behavior}: {error:?}");
        }
    }
    work.await.unwrap();
    assert!(rounds > 0);
    let mut codes = std::collections::BTreeSet::new();
    for task in loops {
        let error = task.await.unwrap();
        assert!(
            matches!(error, CallError::Busy { .. }) || expected("loop", &error),
            "{error:?}"
        );
        codes.insert(error.code());
    }
    assert!(codes.contains("timeout") && codes.contains("busy"), "{codes:?}");
}

#[tokio::test]
async fn a_looping_guest_leaves_its_worker_to_others() {
    let mut place = Place::new();
    place.install("hostile", "good", same);
    place.grant("good", &[], json!({}));
    place.install("hostile", "bad", same);
    place.grant("bad", &[], json!({ "request": "loop" }));
    let set = place.load();
    let (good, bad) = (filter(&set, "good"), filter(&set, "bad"));
    let looping = tokio::spawn(async move { call(&bad, &mut HeaderMap::new()).await });
    tokio::task::yield_now().await;
    call(&good, &mut HeaderMap::new()).await.unwrap();
    assert!(!looping.is_finished(), "the good call waited for the loop to end");
    assert!(expected("loop", &looping.await.unwrap().unwrap_err()));
}

#[test]
fn a_plugin_that_fails_in_plan_is_left_out_alone() {
    let mut place = Place::new();
    place.install("hostile", "good", same);
    place.grant("good", &[], json!({}));
    let cases = [
        ("trap", "a trap"),
        ("panic", "a trap"),
        ("memoryBomb", "bytes of memory"),
        ("forbiddenHeader", "`argocd-username`, which belongs to the gateway"),
        ("badHeaderName", "a name that no header field can have"),
        ("refuse", "refuses its configuration"),
        ("error", "this configuration is not to my taste"),
    ];
    for (behavior, _) in cases {
        place.install("hostile", &name_of(behavior), same);
        place.grant(&name_of(behavior), &[], json!({ "plan": behavior }));
    }
    let (set, diagnostics) = place.runtime().load(None);
    assert_eq!(set.list().map(|plugin| plugin.name).collect::<Vec<_>>(), ["good"]);
    for (behavior, text) in cases {
        let named = lines(&diagnostics)
            .into_iter()
            .find(|line| line.contains(&name_of(behavior)) && line.contains("plan"));
        let named = named.unwrap_or_else(|| panic!("nothing about {behavior}: {diagnostics:#?}"));
        assert!(named.contains(text), "{named}");
    }
}

#[test]
fn what_manifest_and_component_disagree_on_is_refused() {
    let mut place = Place::new();
    place.install("hostile", "digest", |manifest| {
        manifest.replace("sha256: ", "sha256: 0").replacen("0", "", 0)
    });
    let wrong = format!("sha256: {}", "0".repeat(64));
    place.install("hostile", "other", |manifest| {
        let line = manifest
            .lines()
            .find(|line| line.starts_with("sha256:"))
            .unwrap()
            .to_owned();
        manifest.replace(&line, &wrong)
    });
    place.install("hostile", "pinned", same);
    place.grant("pinned", &[], json!({}));
    place.plugins.grants.get_mut("pinned").unwrap().sha256 = Some("1".repeat(64));
    place.install("chatty", "secretive", |manifest| {
        manifest.replace("imports: [log, clock, random]", "")
    });
    place.install("chatty", "ungranted", same);
    place.grant("ungranted", &["log", "random"], json!({}));
    for (name, bytes) in [
        ("empty", &b"\0asm\x0d\0\x01\0"[..]),
        ("module", b"\0asm\x01\0\0\0"),
        ("text", b"hello"),
    ] {
        place.install("hostile", name, |manifest| {
            let line = manifest
                .lines()
                .find(|line| line.starts_with("sha256:"))
                .unwrap()
                .to_owned();
            manifest.replace(&line, &format!("sha256: {}", sha256(bytes)))
        });
        fs::write(place.file(&format!("{name}.wasm")), bytes).unwrap();
    }
    place.install("hostile", "alone", same);
    fs::remove_file(place.file("alone.yaml")).unwrap();
    place.install("hostile", "huge", same);
    fs::File::options()
        .write(true)
        .open(place.file("huge.wasm"))
        .unwrap()
        .set_len((64 << 20) + 1)
        .unwrap();
    place.install("tenant-router", "misconfigured", same);
    place.grant("misconfigured", &[], json!({ "fallback": 7 }));
    fs::create_dir(place.file("folder.wasm")).unwrap();
    fs::write(place.file("folder.yaml"), "name: folder").unwrap();

    let (set, diagnostics) = place.runtime().load(None);
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
        ("misconfigured.yaml", "config/fallback"),
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
async fn granted_imports_work_within_their_budget() {
    let mut place = Place::new();
    for (name, config) in [
        ("chatty", json!({ "lines": 10, "bytes": 16 })),
        ("too-many-calls", json!({ "lines": 1000, "bytes": 0 })),
        ("too-many-bytes", json!({ "lines": 0, "bytes": 4097 })),
    ] {
        place.install("chatty", name, same);
        place.grant(name, &["log", "clock", "random"], config);
    }
    let set = place.load();
    let mut first = HeaderMap::new();
    let mut second = HeaderMap::new();
    call(&filter(&set, "chatty"), &mut first).await.unwrap();
    call(&filter(&set, "chatty"), &mut second).await.unwrap();
    let number = |headers: &HeaderMap| headers["x-now"].to_str().unwrap().parse::<u64>().unwrap();
    assert!(number(&first) > 1_700_000_000_000);
    assert_eq!(first["x-random"].len(), 32);
    assert_ne!(first["x-random"], second["x-random"]);
    let error = call(&filter(&set, "too-many-calls"), &mut first).await.unwrap_err();
    assert!(
        matches!(
            error,
            CallError::Trap {
                cause: TrapCause::HostCalls,
                ..
            }
        ),
        "{error:?}"
    );
    let error = call(&filter(&set, "too-many-bytes"), &mut first).await.unwrap_err();
    assert!(
        matches!(
            error,
            CallError::Trap {
                cause: TrapCause::Guest,
                ..
            }
        ),
        "{error:?}"
    );
}

#[tokio::test]
async fn wasi_is_there_and_empty() {
    let mut place = Place::new();
    place.install("foreign", "nothing", same);
    place.install("foreign", "something", |manifest| {
        format!("{manifest}imports: [clock, random]\n")
    });
    place.grant("nothing", &[], Value::Null);
    place.grant("something", &["clock", "random"], Value::Null);
    let set = place.load();
    let mut nothing = HeaderMap::new();
    call(&filter(&set, "nothing"), &mut nothing).await.unwrap();
    for (name, value) in [
        ("x-environment", "0"),
        ("x-preopens", "0"),
        ("x-wall", "0"),
        ("x-random", "0000000000000000"),
    ] {
        assert_eq!(nothing[name], value, "{name}");
    }
    let mut something = HeaderMap::new();
    call(&filter(&set, "something"), &mut something).await.unwrap();
    assert_eq!(something["x-environment"], "0");
    assert_ne!(something["x-wall"], "0");
    assert_ne!(something["x-random"], "0000000000000000");
}

#[tokio::test]
async fn files_are_replaced_broken_and_removed_under_running_calls() {
    let mut place = Place::new();
    place.install("hostile", "a", same);
    place.install("hostile", "b", same);
    for name in ["a", "b"] {
        place.grant(name, &[], json!({}));
    }
    let runtime = place.runtime();
    let (first, _) = runtime.load(None);
    let (old_a, old_b) = (filter(&first, "a"), filter(&first, "b"));

    place.install("tenant-router", "a", |manifest| {
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

    fs::write(place.file("a.wasm"), b"\0asm broken").unwrap();
    let (third, diagnostics) = runtime.load(Some(&second));
    assert!(
        Arc::ptr_eq(&filter(&third, "a"), &filter(&second, "a")),
        "a broken file replaced one that works"
    );
    let found = lines(&diagnostics);
    assert!(
        found
            .iter()
            .any(|line| line.contains("a.yaml:2:9") && line.contains("stays in use")),
        "{found:?}"
    );
    fs::remove_file(place.file("a.yaml")).unwrap();
    let (third, _) = runtime.load(Some(&third));
    assert!(
        third.header_filter("a").is_some(),
        "a component without manifest ended its previous version"
    );

    fs::remove_file(place.file("a.wasm")).unwrap();
    let (fourth, _) = runtime.load(Some(&third));
    assert_eq!(fourth.list().map(|plugin| plugin.name).collect::<Vec<_>>(), ["b"]);
    call(&filter(&third, "a"), &mut headers).await.unwrap_err();
    call(&old_a, &mut headers).await.unwrap();
}

/// The one compiled guest of a place's cache.
fn compiled(place: &Place) -> PathBuf {
    let files = fs::read_dir(place.root.path().join("cache"))
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut files = files.filter(|path| path.extension().is_some_and(|extension| extension == "cwasm"));
    let file = files.next().unwrap();
    assert!(files.next().is_none());
    file
}

#[tokio::test]
async fn a_changed_file_of_the_cache_is_compiled_again() {
    let mut place = Place::new();
    place.install("hostile", "a", same);
    place.grant("a", &[], json!({}));
    assert_eq!(filter(&place.load(), "a").origin(), Origin::Compiled);
    assert_eq!(filter(&place.load(), "a").origin(), Origin::Cached);
    let file = compiled(&place);
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
        let plugin = filter(&place.load(), "a");
        assert_eq!(plugin.origin(), Origin::Compiled);
        call(&plugin, &mut HeaderMap::new()).await.unwrap();
        assert_eq!(
            fs::read(&file).unwrap().len(),
            whole.len(),
            "the good file was not written again"
        );
        assert_eq!(filter(&place.load(), "a").origin(), Origin::Cached);
    }
    // A file that is fine, but another guest's.
    let mut other = Place::new();
    other.install("baseline", "a", same);
    other.grant("a", &[], json!({}));
    other.plugins.cache = place.plugins.cache.clone();
    assert_eq!(filter(&other.load(), "a").origin(), Origin::Compiled);
    let cache = fs::read_dir(place.root.path().join("cache"))
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let foreign = cache.filter(|path| path.extension().is_some_and(|extension| extension == "cwasm") && *path != file);
    fs::copy(foreign.last().unwrap(), &file).unwrap();
    assert_eq!(filter(&place.load(), "a").origin(), Origin::Compiled);
}

#[tokio::test]
async fn a_cache_others_can_write_to_is_not_used() {
    let mut place = Place::new();
    place.install("hostile", "a", same);
    place.grant("a", &[], json!({}));
    let cache = place.root.path().join("cache");
    fs::create_dir(&cache).unwrap();
    fs::set_permissions(&cache, fs::Permissions::from_mode(0o770)).unwrap();
    let (set, diagnostics) = place.runtime().load(None);
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

#[tokio::test]
async fn without_a_pool_everything_works_as_well() {
    let mut place = Place::new();
    place.install("hostile", "good", same);
    place.grant("good", &[], json!({}));
    place.install("hostile", "bad", same);
    place.grant("bad", &[], json!({ "request": "memoryBomb" }));
    let runtime = Runtime::with_allocation(&place.plugins, Allocation::OnDemand).unwrap();
    assert_eq!(runtime.allocation(), Allocation::OnDemand);
    let (set, diagnostics) = runtime.load(None);
    assert_eq!(lines(&diagnostics), Vec::<String>::new());
    call(&filter(&set, "good"), &mut HeaderMap::new()).await.unwrap();
    assert!(expected(
        "memoryBomb",
        &call(&filter(&set, "bad"), &mut HeaderMap::new()).await.unwrap_err()
    ));
}

#[tokio::test]
async fn the_tenant_comes_from_the_project_or_the_groups() {
    let mut place = Place::new();
    place.install("tenant-router", "tenant-router", same);
    let groups = json!({ "team-a": "a", "team-b": "b" });
    place.grant(
        "tenant-router",
        &[],
        json!({ "projects": { "payments": "pay" }, "groups": groups }),
    );
    let filter = filter(&place.load(), "tenant-router");
    let ask = async |project: Option<&str>, groups: &[&str], wanted: Option<&'static str>| {
        let groups: Vec<String> = groups.iter().map(|group| (*group).to_owned()).collect();
        let context = RequestContext {
            project,
            groups: &groups,
            ..RequestContext::default()
        };
        let mut headers = HeaderMap::new();
        if let Some(wanted) = wanted {
            headers.insert("x-scope-orgid", HeaderValue::from_static(wanted));
        }
        match filter.filter_request(&context, &mut headers).await {
            Ok(()) => headers["x-scope-orgid"].to_str().unwrap().to_owned(),
            Err(CallError::Refused { status, .. }) => status.as_str().to_owned(),
            Err(error) => panic!("{error}"),
        }
    };
    assert_eq!(ask(Some("payments"), &["team-a"], None).await, "pay");
    assert_eq!(ask(Some("payments"), &[], Some("a")).await, "403");
    assert_eq!(ask(None, &["team-a"], None).await, "a");
    assert_eq!(ask(None, &["team-a", "team-b"], Some("b")).await, "b");
    assert_eq!(ask(None, &["team-a", "team-b"], None).await, "400");
    assert_eq!(ask(None, &["team-a"], Some("b")).await, "403");
    assert_eq!(ask(None, &[], None).await, "403");
}

#[test]
fn the_baseline_strips_noise_and_keeps_the_rest() {
    let mut place = Place::new();
    place.install("baseline", "baseline", same);
    place.grant(
        "baseline",
        &[],
        json!({ "keepRequest": ["X-Api-Key"], "setResponse": { "x-frame-options": null } }),
    );
    place.plugins.grants.get_mut("baseline").unwrap().extensions = vec!["metrics".to_owned()];
    place.plugins.required = vec!["baseline".to_owned()];
    let set = place.load();
    assert_eq!(set.header_filters("metrics").count(), 1);
    assert_eq!(set.header_filters("logs").count(), 0);
    assert_eq!(set.missing_required(), Vec::<String>::new());
    let plugin = filter(&set, "baseline");
    assert!(!plugin.filters_requests() && !plugin.filters_responses());
    let mut request = headers(&[
        ("accept", "*/*"),
        ("x-api-key", "kept by the operator"),
        ("x-vault-token", "s.1"),
        ("x-auth-request-user", "root"),
        ("argocd-username", "eve"),
    ]);
    plugin.request_plan().apply(&mut request);
    let left: Vec<_> = request.keys().map(HeaderName::as_str).collect();
    assert_eq!(left, ["accept", "x-api-key", "argocd-username"]);
    let mut response = headers(&[
        ("server", "nginx/1.2"),
        ("set-cookie", "a=b"),
        ("content-type", "text/html"),
    ]);
    plugin.response_plan().apply(&mut response);
    assert_eq!(response["x-content-type-options"], "nosniff");
    assert_eq!(response["content-type"], "text/html");
    for gone in ["server", "set-cookie", "x-frame-options"] {
        assert!(!response.contains_key(gone), "{gone}");
    }
}

#[test]
fn a_required_plugin_that_is_missing_is_named() {
    let mut place = Place::new();
    place.plugins.required = vec!["baseline".to_owned()];
    let (set, diagnostics) = place.runtime().load(None);
    assert_eq!(set.missing_required(), ["baseline"]);
    assert!(
        lines(&diagnostics)
            .iter()
            .any(|line| line.contains("the required plugin `baseline` is not loaded"))
    );
}
