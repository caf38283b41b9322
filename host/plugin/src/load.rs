//! Loads a [`PluginSet`](super::PluginSet) from a folder of `<name>.wasm` and `<name>.yaml` pairs, each
//! with its configuration in `<name>.config.yaml` if it has one, and reports every finding.
//!
//! Invariant: a broken file never replaces a version that works.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::budget::Budget;
use super::call_state::{HostServices, ProviderGrant};
use super::compilation_cache;
use super::egress::EgressAllowList;
use super::engine::{MAX_MEMORY_BYTES, MAX_PLUGINS};
use super::filter::HeaderFilter;
use super::generator::Generator;
use super::granted_imports::GrantedImports;
use super::provider::CredentialProvider;
use super::sandbox::Sandbox;
use super::{Runtime, manifest, manifest::Manifest, yaml};
use tollgate_core::diagnostic::{Diagnostic, Location, with_causes};
use tollgate_core::plugin::{Import, World};

pub(super) const MAX_COMPONENT_BYTES: u64 = 64 << 20;
/// Of the manifest, and of the configuration.
const MAX_MANIFEST_BYTES: u64 = 256 << 10;
/// What follows the plugin's name in the name of its configuration's file.
const CONFIG_SUFFIX: &str = ".config";

#[derive(Clone, Debug)]
pub(super) struct LoadedPlugin {
    pub(super) plugin: Plugin,
    /// Digest of the manifest and of the configuration. Unchanged files are not loaded again.
    texts_sha256: String,
}

#[derive(Clone, Debug)]
pub(super) enum Plugin {
    HeaderFilter(Arc<HeaderFilter>),
    CredentialProvider(Arc<CredentialProvider>),
    Generator(Arc<Generator>),
}

impl Plugin {
    pub(super) fn manifest(&self) -> &Manifest {
        match self {
            Self::HeaderFilter(filter) => &filter.manifest,
            Self::CredentialProvider(provider) => &provider.manifest,
            Self::Generator(generator) => &generator.manifest,
        }
    }

    pub(super) fn header_filter(&self) -> Option<&Arc<HeaderFilter>> {
        match self {
            Self::HeaderFilter(filter) => Some(filter),
            Self::CredentialProvider(_) | Self::Generator(_) => None,
        }
    }

    pub(super) fn origin(&self) -> compilation_cache::CodeOrigin {
        match self {
            Self::HeaderFilter(filter) => filter.origin,
            Self::CredentialProvider(provider) => provider.origin,
            Self::Generator(generator) => generator.origin,
        }
    }
}

#[derive(Default)]
struct PluginFiles {
    component: Option<PathBuf>,
    manifest: Option<PathBuf>,
    config: Option<PathBuf>,
}

impl Runtime {
    /// Loads the plugin `only`, or all of the folder. A plugin that cannot be loaded stays as in
    /// `previous`.
    pub(super) async fn load_entries(
        &self,
        only: Option<&str>,
        previous: &BTreeMap<String, LoadedPlugin>,
    ) -> (BTreeMap<String, LoadedPlugin>, Vec<Diagnostic>) {
        let mut diagnostics = Vec::new();
        let mut entries = BTreeMap::new();
        let Some(directory) = &self.config.directory else {
            return (entries, diagnostics);
        };
        let files_by_name = match plugin_files(directory) {
            Ok(files) => files,
            Err(error) => {
                let message = format!("cannot read the plugins folder: {error}");
                diagnostics.push(Diagnostic::error(file_location(directory), message));
                return (previous.clone(), diagnostics);
            }
        };
        self.unused_grants(&files_by_name, &mut diagnostics);
        for (name, files) in files_by_name {
            if only.is_some_and(|only| only != name) {
                continue;
            }
            // The engine has slots for this many.
            if entries.len() >= MAX_PLUGINS {
                let message = format!("there are more than `{MAX_PLUGINS}` plugins; `{name}` is left out");
                diagnostics.push(Diagnostic::error(file_location(directory), message));
                continue;
            }
            let (entry, findings) = self.next_entry(&name, &files, previous.get(&name)).await;
            diagnostics.extend(findings);
            entries.extend(entry.map(|entry| (name, entry)));
        }
        (entries, diagnostics)
    }

    async fn next_entry(
        &self,
        name: &str,
        files: &PluginFiles,
        old: Option<&LoadedPlugin>,
    ) -> (Option<LoadedPlugin>, Vec<Diagnostic>) {
        match (&files.component, &files.manifest) {
            (Some(component), Some(manifest)) => {
                let config = files.config.as_deref();
                match self.load_plugin(name, component, manifest, config, old).await {
                    Ok((entry, warnings)) => (Some(entry), warnings),
                    Err(mut findings) => {
                        findings.extend(old.map(|entry| previous_kept(entry, manifest)));
                        (old.cloned(), findings)
                    }
                }
            }
            (Some(component), None) => {
                let finding = Diagnostic::error(file_location(component), "the component has no manifest");
                let mut findings = vec![finding.with_hint(format!("write `{name}.yaml` beside it"))];
                findings.extend(old.map(|entry| previous_kept(entry, component)));
                (old.cloned(), findings)
            }
            (None, manifest) => {
                let message = format!("there is no component `{name}.wasm` beside it");
                let location = manifest.as_deref().or(files.config.as_deref()).map(file_location);
                (None, vec![Diagnostic::warning(location, message)])
            }
        }
    }

    /// Loads one plugin. Returns `previous` if no file changed.
    async fn load_plugin(
        &self,
        name: &str,
        component: &Path,
        manifest: &Path,
        config: Option<&Path>,
        previous: Option<&LoadedPlugin>,
    ) -> Result<(LoadedPlugin, Vec<Diagnostic>), Vec<Diagnostic>> {
        let wasm = read(component, MAX_COMPONENT_BYTES).map_err(|error| vec![error])?;
        let text = read(manifest, MAX_MANIFEST_BYTES).map_err(|error| vec![error])?;
        let config = config.map(|path| ConfigFile::read(path, name)).transpose();
        let config = config.map_err(|error| vec![error])?;
        let sha256 = compilation_cache::sha256(&wasm);
        let texts_sha256 = [text.as_slice(), config.as_ref().map_or(&[], |config| &config.bytes)];
        let texts_sha256 = texts_sha256.map(compilation_cache::sha256).concat();
        let is_unchanged =
            |entry: &&LoadedPlugin| entry.texts_sha256 == texts_sha256 && entry.plugin.manifest().sha256 == sha256;
        if let Some(previous) = previous.filter(is_unchanged) {
            return Ok((previous.clone(), Vec::new()));
        }
        let not_text = |_| vec![Diagnostic::error(file_location(manifest), "the manifest is not UTF-8")];
        let text = String::from_utf8(text).map_err(not_text)?;
        let loaded = manifest::parse(&text, &manifest.display().to_string(), name);
        let mut diagnostics = loaded.diagnostics;
        let Some(checked) = loaded.value else {
            return Err(diagnostics);
        };
        match self.start(checked, &wasm, &sha256, config).await {
            Ok((plugin, warnings)) => {
                diagnostics.extend(warnings);
                let loaded = LoadedPlugin { plugin, texts_sha256 };
                Ok((loaded, diagnostics))
            }
            Err(errors) => {
                diagnostics.extend(errors);
                Err(diagnostics)
            }
        }
    }

    async fn start(
        &self,
        manifest: Manifest,
        wasm: &[u8],
        sha256: &str,
        config: Option<ConfigFile>,
    ) -> Result<(Plugin, Vec<Diagnostic>), Vec<Diagnostic>> {
        let locations = manifest.locations.clone();
        let refuse = |location: &Location, message: String| vec![Diagnostic::error(location.clone(), message)];
        manifest.check_digest(sha256).map_err(|finding| vec![finding])?;
        let mut grant = self.config.grants.get(&manifest.name).cloned().unwrap_or_default();
        let config = match config {
            Some(file) => file.take_place_in(&mut grant, &manifest.name)?,
            None => ConfigSource::of_grant(&manifest, &grant),
        };
        // Before the component is compiled. The manifest lies beside the component; the pin is in the settings.
        let pinned = grant.sha256.as_deref();
        if let Some(pinned) = pinned.filter(|pinned| !pinned.eq_ignore_ascii_case(sha256)) {
            let message = format!("the component's digest is `{sha256}`, the grant pins `{pinned}`");
            return Err(refuse(&locations.sha256, message));
        }
        let (granted, budget, mut warnings) = effective_grant(&manifest, &grant);
        fits_world(&manifest, &grant, &config)?;
        let services = HostServices {
            environment: self.environment.clone(),
            grant: Arc::new(provider_grant(&manifest, &grant)?),
            reveals_bodies: match manifest.world {
                World::HeaderFilter | World::CredentialProvider => granted.has(Import::Reveal),
                // Responses contain parameters, not credentials. Known secrets are removed from
                // them all the same.
                World::Generator => true,
            },
        };
        if !wasm.starts_with(b"\0asm") {
            let message = "the file beside the manifest is not WebAssembly".to_owned();
            return Err(refuse(&locations.file, message));
        }
        let (component, origin) =
            compilation_cache::component(&self.host.engine, self.cache.as_ref().ok(), sha256, wasm)
                .map_err(|error| refuse(&locations.file, format!("the component does not compile: {error:#}")))?;
        let sandbox = Sandbox::new(&self.host, &component, &manifest, granted, budget)?;
        let plugin = match manifest.world {
            World::HeaderFilter => {
                let config = grant.config.to_string();
                let started = HeaderFilter::start(manifest, origin, sandbox, config, grant.extensions).await;
                let filter = started.map_err(|error| refuse(&locations.file, format!("`plan` failed: {error}")))?;
                Plugin::HeaderFilter(Arc::new(filter))
            }
            World::CredentialProvider => {
                let started = CredentialProvider::start(manifest, origin, sandbox, services);
                let provider = started.map_err(|error| refuse(&locations.world, error))?;
                Plugin::CredentialProvider(Arc::new(provider))
            }
            World::Generator => {
                let started = Generator::start(manifest, origin, sandbox, services, &grant.config, grant.secret).await;
                let (generator, texts) = started.map_err(|error| refuse(&locations.file, error))?;
                let warning = |text| Diagnostic::warning(locations.file.clone(), text);
                warnings.extend(texts.into_iter().map(warning));
                Plugin::Generator(Arc::new(generator))
            }
        };
        Ok((plugin, warnings))
    }

    /// Reports grants without a plugin, which are usually typing mistakes.
    fn unused_grants(&self, files_by_name: &BTreeMap<String, PluginFiles>, diagnostics: &mut Vec<Diagnostic>) {
        let grants = self.config.grants.iter();
        for (name, grant) in grants.filter(|(name, _)| !files_by_name.contains_key(*name)) {
            let message = format!("`plugins.grants.{name}` is for a plugin that is not there");
            diagnostics.push(
                Diagnostic::warning(grant.location.clone(), message)
                    .with_hint("put its `.wasm` and `.yaml` into the plugins folder, or remove the grant"),
            );
        }
    }
}

/// The configuration in the plugins folder.
struct ConfigFile {
    bytes: Vec<u8>,
    value: serde_json::Value,
    location: Location,
}

impl ConfigFile {
    fn read(path: &Path, name: &str) -> Result<Self, Diagnostic> {
        let bytes = read(path, MAX_MANIFEST_BYTES)?;
        let location = file_location(path);
        let text = std::str::from_utf8(&bytes)
            .map_err(|_| Diagnostic::error(location.clone(), format!("the configuration of `{name}` is not UTF-8")))?;
        let value = yaml::from_str(text).map_err(|error| yaml::diagnostic(&error, &location.file))?;
        Ok(Self { bytes, value, location })
    }

    /// Puts the configuration into the grant, which must have none.
    fn take_place_in(
        self,
        grant: &mut tollgate_config::PluginGrant,
        name: &str,
    ) -> Result<ConfigSource, Vec<Diagnostic>> {
        if !grant.config.is_null() {
            let message = format!("`plugins.grants.{name}.config` in the settings is the configuration, too");
            return Err(vec![
                Diagnostic::error(self.location, message).with_hint("keep one of the two"),
            ]);
        }
        grant.config = self.value;
        Ok(ConfigSource {
            called: "the configuration".to_owned(),
            location: self.location,
        })
    }
}

/// Where a plugin's configuration is written, for findings.
struct ConfigSource {
    called: String,
    location: Location,
}

impl ConfigSource {
    /// Points at the grant, or at the manifest if there is no grant.
    fn of_grant(manifest: &Manifest, grant: &tollgate_config::PluginGrant) -> Self {
        let location = grant.location.as_ref().unwrap_or(&manifest.locations.file);
        Self {
            called: format!("`plugins.grants.{}.config`", manifest.name),
            location: location.clone(),
        }
    }
}

/// The imports and the budget that manifest and grant agree on, with warnings.
fn effective_grant(
    manifest: &Manifest,
    grant: &tollgate_config::PluginGrant,
) -> (GrantedImports, Budget, Vec<Diagnostic>) {
    let mut warnings = Vec::new();
    let mut agreed = BTreeSet::new();
    for name in &grant.imports {
        let import = Import::try_from(name.as_str())
            .ok()
            .filter(|import| manifest.imports.contains(import));
        if import.is_none() {
            let message = format!("`{name}` is granted to `{}`, which does not ask for it", manifest.name);
            warnings.push(Diagnostic::warning(manifest.locations.imports.clone(), message));
        }
        agreed.extend(import);
    }
    let mut budget = Budget::of_world(manifest.world);
    budget.time = grant.time.unwrap_or(budget.time);
    // A filter waits for nothing, so all of its time may be CPU time.
    if manifest.world == World::HeaderFilter {
        budget.cpu_time = budget.time;
    }
    let memory_bytes = grant.memory_bytes.unwrap_or(budget.memory_bytes);
    budget.memory_bytes = memory_bytes.min(MAX_MEMORY_BYTES);
    (GrantedImports::new(&agreed), budget, warnings)
}

fn fits_world(
    manifest: &Manifest,
    grant: &tollgate_config::PluginGrant,
    config: &ConfigSource,
) -> Result<(), Vec<Diagnostic>> {
    let Manifest { name, world, .. } = manifest;
    let secret_hint = "only generators have a Secret of the control plane's namespace";
    let secret = ("secret", grant.secret.is_some(), secret_hint);
    let has_extensions = !grant.extensions.is_empty();
    let misplaced = match world {
        World::HeaderFilter => vec![
            secret,
            ("hosts", !grant.hosts.is_empty(), "header filters have no network"),
            (
                "audiences",
                !grant.audiences.is_empty(),
                "header filters have no tokens",
            ),
        ],
        World::CredentialProvider => vec![
            secret,
            (
                "config",
                !grant.config.is_null(),
                "a provider is configured for each cluster, in the cluster's Secret",
            ),
            (
                "extensions",
                has_extensions,
                "a provider is chosen by the cluster's Secret",
            ),
        ],
        World::Generator => vec![("extensions", has_extensions, "a generator is chosen by its kinds")],
    };
    if let Some((key, _, hint)) = misplaced.into_iter().find(|(_, is_misplaced, _)| *is_misplaced) {
        let (called, location) = match key {
            "config" => (config.called.clone(), Some(config.location.clone())),
            _ => (format!("`plugins.grants.{name}.{key}`"), grant.location.clone()),
        };
        let message = format!("{called} is not for a `{}`", world.as_ref());
        return Err(vec![Diagnostic::error(location, message).with_hint(hint)]);
    }
    if *world == World::CredentialProvider {
        return Ok(());
    }
    let violations = manifest.config_violations(&grant.config);
    let findings: Vec<_> = violations
        .into_iter()
        .map(|text| Diagnostic::error(config.location.clone(), format!("{}: {text}", config.called)))
        .collect();
    if findings.is_empty() { Ok(()) } else { Err(findings) }
}

fn provider_grant(manifest: &Manifest, grant: &tollgate_config::PluginGrant) -> Result<ProviderGrant, Vec<Diagnostic>> {
    let allow_list = EgressAllowList::new(&grant.hosts).map_err(|errors| {
        let finding = |error: super::egress::EntryError| {
            let message = format!("`plugins.grants.{}.hosts`: {}", manifest.name, with_causes(&error));
            Diagnostic::error(grant.location.clone(), message)
        };
        errors.into_iter().map(finding).collect::<Vec<_>>()
    })?;
    let entries: Vec<String> = grant.hosts.iter().map(|entry| format!("{entry:?}")).collect();
    let granted = serde_json::json!([entries, grant.audiences, grant.imports]);
    Ok(ProviderGrant {
        allow_list,
        audiences: grant.audiences.iter().cloned().collect(),
        digest: compilation_cache::sha256(granted.to_string().as_bytes()),
    })
}

fn plugin_files(directory: &Path) -> std::io::Result<BTreeMap<String, PluginFiles>> {
    let mut files_by_name: BTreeMap<String, PluginFiles> = BTreeMap::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let (Some(stem), Some(extension)) = (path.file_stem(), path.extension()) else {
            continue;
        };
        // Editors and Kubernetes volumes keep their own files under dots.
        let stem = stem.to_string_lossy().into_owned();
        if stem.starts_with('.') {
            continue;
        }
        match extension.to_str() {
            Some("wasm") => files_by_name.entry(stem).or_default().component = Some(path),
            Some("yaml") => match stem.strip_suffix(CONFIG_SUFFIX) {
                Some(name) => files_by_name.entry(name.to_owned()).or_default().config = Some(path),
                None => files_by_name.entry(stem).or_default().manifest = Some(path),
            },
            Some(_) | None => {}
        }
    }
    Ok(files_by_name)
}

/// Reads a regular file of at most `most` bytes.
fn read(path: &Path, most: u64) -> Result<Vec<u8>, Diagnostic> {
    let fail = |error: std::io::Error| Diagnostic::error(file_location(path), format!("cannot read the file: {error}"));
    let metadata = fs::metadata(path).map_err(fail)?;
    // A pipe would block the load.
    if !metadata.is_file() {
        return Err(Diagnostic::error(file_location(path), "not a regular file"));
    }
    let mut content = Vec::new();
    File::open(path)
        .and_then(|file| file.take(most + 1).read_to_end(&mut content))
        .map_err(fail)?;
    // The content may be one byte longer than allowed: that shows a file that grew after its size was read.
    let observed = metadata.len().max(u64::try_from(content.len()).unwrap_or(u64::MAX));
    if observed > most {
        let message = format!("the file has `{observed}` bytes; at most `{most}` are allowed");
        return Err(Diagnostic::error(file_location(path), message));
    }
    Ok(content)
}

fn file_location(path: &Path) -> Location {
    Location::new(path.display().to_string(), 0)
}

fn previous_kept(entry: &LoadedPlugin, path: &Path) -> Diagnostic {
    let version = &entry.plugin.manifest().version;
    let message = format!("version `{version}`, loaded before, stays in use");
    Diagnostic::warning(file_location(path), message)
}
