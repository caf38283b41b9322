//! A plugins folder with guests and grants.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;
use tollgate_config::{PluginGrant, Plugins};
use tollgate_core::diagnostic::Diagnostic;
use tollgate_plugin::{CallError, FilterContext, HeaderFilter, PluginSet, Runtime};

/// The folder where `cargo xtask plugins` puts the guests.
pub(crate) fn guests() -> PathBuf {
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

/// The time limit of guests that loop, in milliseconds.
pub(crate) const LOOP_MS: u64 = 100;

/// A plugins folder, a cache folder and grants.
pub(crate) struct Fixture {
    pub(crate) root: tempfile::TempDir,
    pub(crate) plugins: Plugins,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("plugins")).unwrap();
        let plugins = Plugins {
            directory: Some(root.path().join("plugins")),
            cache: Some(root.path().join("cache")),
            ..Plugins::default()
        };
        Self { root, plugins }
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.root.path().join("plugins").join(name)
    }

    /// Installs a guest in the folder under another name, with an edited manifest.
    pub(crate) fn install(&mut self, guest: &str, name: &str, edit: impl Fn(String) -> String) {
        let manifest = fs::read_to_string(guests().join(format!("{guest}.yaml"))).unwrap();
        let manifest = manifest.replacen(&format!("name: {guest}"), &format!("name: {name}"), 1);
        fs::copy(
            guests().join(format!("{guest}.wasm")),
            self.file(&format!("{name}.wasm")),
        )
        .unwrap();
        fs::write(self.file(&format!("{name}.yaml")), edit(manifest)).unwrap();
    }

    pub(crate) fn grant(&mut self, name: &str, imports: &[&str], config: Value) {
        let imports = imports.iter().map(|import| (*import).to_owned()).collect();
        // A loop uses up its time. Other calls get enough for a busy machine.
        let time = Duration::from_millis(if config["request"] == "loop" { LOOP_MS } else { 10_000 });
        let grant = PluginGrant {
            imports,
            config,
            time: Some(time),
            ..PluginGrant::default()
        };
        self.plugins.grants.insert(name.to_owned(), grant);
    }

    pub(crate) fn runtime(&self) -> Runtime {
        Runtime::new(&self.plugins).unwrap()
    }

    /// Loads the folder, which must give no diagnostics.
    pub(crate) fn load(&self) -> PluginSet {
        let (set, diagnostics) = self.runtime().load(None);
        assert_eq!(lines(&diagnostics), Vec::<String>::new());
        set
    }
}

pub(crate) fn unchanged(manifest: String) -> String {
    manifest
}

pub(crate) fn lines(diagnostics: &[Diagnostic]) -> Vec<String> {
    diagnostics.iter().map(ToString::to_string).collect()
}

pub(crate) fn filter(set: &PluginSet, name: &str) -> Arc<HeaderFilter> {
    set.header_filter(name)
        .unwrap_or_else(|| panic!("no plugin `{name}`"))
        .clone()
}

pub(crate) fn headers(fields: &[(&'static str, &'static str)]) -> HeaderMap {
    let pair =
        |(name, value): &(&'static str, &'static str)| (HeaderName::from_static(name), HeaderValue::from_static(value));
    fields.iter().map(pair).collect()
}

pub(crate) async fn call(filter: &HeaderFilter, headers: &mut HeaderMap) -> Result<(), CallError> {
    let context = FilterContext {
        extension: "metrics",
        method: "GET",
        path: "/",
        ..FilterContext::default()
    };
    filter.filter_request(&context, headers).await
}
