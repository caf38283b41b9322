//! Reads the world and the imports of a component without running any of its code.

use std::fmt;
use std::fs;
use std::io;
use std::path::Path;

use wasmtime::component::Component;
use wasmtime::{Config, Engine};

use super::compilation_cache;
use super::egress_scope::HostTemplate;
use super::load::MAX_COMPONENT_BYTES;
use super::{manifest, manifest::ContextPart, manifest::Direction, manifest::Manifest};
use tollgate_core::diagnostic::{Diagnostic, Location};
use tollgate_core::plugin::{Import, World};

/// A component and what its manifest says about it.
#[derive(Clone, Debug, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Inspection {
    /// The component's file.
    pub file: String,
    /// Its digest, lower-case hex.
    pub sha256: String,
    /// Its size.
    pub bytes: usize,
    /// Interfaces it imports, with versions.
    pub imports: Vec<String>,
    /// Interfaces it exports, with versions.
    pub exports: Vec<String>,
    /// The manifest beside it, if it is valid.
    pub manifest: Option<ManifestSummary>,
    /// What is wrong with either.
    pub diagnostics: Vec<Diagnostic>,
}

/// The parts of a manifest that help an operator decide.
#[derive(Clone, Debug, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ManifestSummary {
    /// Plugin name.
    pub name: String,
    /// Version of the plugin.
    pub version: String,
    /// What it does, in the author's words.
    pub description: String,
    /// What kind of plugin it is.
    pub world: World,
    /// Host interfaces it asks for.
    pub imports: Vec<Import>,
    /// Directions in which it is called for each message.
    pub filters: Vec<Direction>,
    /// Request fields it sees.
    pub request_fields: Vec<String>,
    /// Response fields it sees.
    pub response_fields: Vec<String>,
    /// Parts of the context it sees.
    pub context: Vec<ContextPart>,
    /// What a credential provider asks for. `None` for other plugins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<ProviderSummary>,
}

/// What a credential provider asks for, as its manifest writes it: `{name}` is
/// a member of the cluster's configuration.
#[derive(Clone, Debug, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProviderSummary {
    /// Hosts it may contact if they are granted; `*` for every granted host.
    pub hosts: Vec<String>,
    /// Values of the cluster's Secret it may use.
    pub secrets: Vec<EgressScopeSummary>,
    /// Audiences of the pod's own tokens.
    pub audiences: Vec<EgressScopeSummary>,
    /// Where values captured from a host's responses may be sent, in addition to the credential.
    pub captures: Vec<EgressScopeSummary>,
    /// Strings of responses it may read.
    pub visible: Vec<String>,
    /// Fields of responses it may read, in addition to `content-type`, `date` and `retry-after`.
    pub response_headers: Vec<String>,
    /// Fields a credential may carry.
    pub output_headers: Vec<String>,
}

/// A value and where it may be sent.
#[derive(Clone, Debug, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EgressScopeSummary {
    /// Name, audience or host.
    pub name: String,
    /// Hosts it may be sent to.
    pub hosts: Vec<String>,
    /// Whether it may become part of the credential.
    pub cluster: bool,
    /// Whether the plugin may read it.
    pub public: bool,
    /// Strings within it the plugin may read.
    pub public_fields: Vec<String>,
}

impl fmt::Display for EgressScopeSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut to: Vec<&str> = self.hosts.iter().map(String::as_str).collect();
        if self.cluster {
            to.push("the cluster");
        }
        match to.as_slice() {
            [] => write!(f, "{} -> nowhere", self.name)?,
            to => write!(f, "{} -> {}", self.name, to.join(", "))?,
        }
        match (self.public, self.public_fields.as_slice()) {
            (true, _) => f.write_str(" (the plugin reads it)"),
            (false, []) => Ok(()),
            (false, fields) => write!(f, " (the plugin reads {})", fields.join(", ")),
        }
    }
}

fn texts<T: ToString>(items: &[T]) -> Vec<String> {
    items.iter().map(ToString::to_string).collect()
}

impl ProviderSummary {
    /// `None` for a header filter.
    pub(super) fn new(manifest: &Manifest) -> Option<Self> {
        if manifest.world == World::HeaderFilter {
            return None;
        }
        let permissions = &manifest.provider;
        let all = texts(&permissions.hosts);
        let summary = |name: String, hosts: Option<Vec<String>>, cluster| EgressScopeSummary {
            name,
            hosts: hosts.unwrap_or_else(|| all.clone()),
            cluster,
            public: false,
            public_fields: Vec::new(),
        };
        let hosts = |hosts: &Option<Vec<HostTemplate>>| hosts.as_deref().map(texts);
        let secrets = permissions.secrets.iter().map(|it| EgressScopeSummary {
            public: it.public,
            public_fields: texts(&it.public_fields),
            ..summary(it.name.clone(), hosts(&it.hosts), it.cluster)
        });
        let audiences = permissions.audiences.iter();
        let audiences = audiences.map(|it| summary(it.audience.to_string(), hosts(&it.hosts), it.cluster));
        let captures = permissions.captures.iter();
        let captures = captures.map(|it| summary(it.host.to_string(), Some(texts(&it.hosts)), it.cluster));
        Some(Self {
            secrets: secrets.collect(),
            audiences: audiences.collect(),
            captures: captures.collect(),
            visible: texts(&permissions.visible),
            response_headers: texts(&permissions.response_headers),
            output_headers: texts(&permissions.output_headers),
            hosts: all,
        })
    }
}

impl ManifestSummary {
    fn new(manifest: &Manifest) -> Self {
        Self {
            name: manifest.name.clone(),
            version: manifest.version.to_string(),
            description: manifest.description.clone(),
            world: manifest.world,
            imports: manifest.imports.iter().copied().collect(),
            filters: manifest.filters.iter().copied().collect(),
            request_fields: texts(&manifest.request_fields),
            response_fields: texts(&manifest.response_fields),
            context: manifest.context.iter().copied().collect(),
            provider: ProviderSummary::new(manifest),
        }
    }

    /// Describes everything of a message that reaches the guest.
    pub fn sees(&self) -> Vec<String> {
        let part = |part: &ContextPart| format!("{part:?}").to_lowercase();
        let request = self.request_fields.iter().map(|name| format!("{name} of requests"));
        let response = self.response_fields.iter().map(|name| format!("{name} of responses"));
        request.chain(response).chain(self.context.iter().map(part)).collect()
    }
}

/// Reads a component and the manifest beside it. Compiles it, as a load would,
/// but runs nothing of it.
///
/// # Errors
/// The component's file cannot be read. Everything else is a diagnostic.
pub fn inspect(file: &Path) -> io::Result<Inspection> {
    let size = fs::metadata(file)?.len();
    if size > MAX_COMPONENT_BYTES {
        let message = format!("the file has `{size}` bytes; at most `{MAX_COMPONENT_BYTES}` are allowed");
        return Err(io::Error::other(message));
    }
    let wasm = fs::read(file)?;
    let sha256 = compilation_cache::sha256(&wasm);
    let location = Location::new(file.display().to_string(), 0);
    let mut diagnostics = Vec::new();
    let (imports, exports) = interfaces(&wasm).unwrap_or_else(|error| {
        let message = match wasm.starts_with(b"\0asm") {
            true => format!("not a component: {error:#}"),
            false => "not a component: the file is no WebAssembly".to_owned(),
        };
        diagnostics.push(Diagnostic::error(location, message));
        (Vec::new(), Vec::new())
    });
    let manifest = manifest_beside(file, &sha256, &mut diagnostics);
    if let Some(manifest) = &manifest {
        let export = manifest.world.export();
        if !exports.iter().any(|name| name.split('@').next() == Some(export)) {
            let message = format!("the component does not export `{export}`, which its world demands");
            diagnostics.push(Diagnostic::error(manifest.locations.world.clone(), message));
        }
    }
    Ok(Inspection {
        file: file.display().to_string(),
        sha256,
        bytes: wasm.len(),
        imports,
        exports,
        manifest: manifest.as_ref().map(ManifestSummary::new),
        diagnostics,
    })
}

/// The manifest beside a component, checked against the component's digest.
fn manifest_beside(file: &Path, sha256: &str, diagnostics: &mut Vec<Diagnostic>) -> Option<Manifest> {
    let path = file.with_extension("yaml");
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) => {
            let location = Location::new(path.display().to_string(), 0);
            let message = format!("cannot read the manifest: {error}");
            diagnostics.push(Diagnostic::error(location, message));
            return None;
        }
    };
    let loaded = manifest::parse(&text, &path.display().to_string(), &stem);
    diagnostics.extend(loaded.diagnostics);
    let manifest = loaded.value?;
    diagnostics.extend(manifest.check_digest(sha256).err());
    Some(manifest)
}

/// Imports and exports of a component, without types of the package itself.
fn interfaces(wasm: &[u8]) -> wasmtime::Result<(Vec<String>, Vec<String>)> {
    let mut config = Config::new();
    config.wasm_component_model(true);
    // Not the gateway's engine: nothing runs here, so neither a pool nor a clock is needed.
    let engine = Engine::new(&config)?;
    let component = Component::from_binary(&engine, wasm)?;
    let kind = component.component_type();
    let imports = kind
        .imports(&engine)
        .map(|(name, _)| name.to_owned())
        // Interfaces of nothing but types ask for nothing.
        .filter(|name| !name.contains("/header-types@") && !name.contains("/provider-types@"));
    let exports = kind.exports(&engine).map(|(name, _)| name.to_owned());
    Ok((imports.collect(), exports.collect()))
}
