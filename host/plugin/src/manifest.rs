//! A plugin's [`Manifest`], read from `<name>.yaml` before any of its code runs. Every mistake is
//! reported with its line; an unknown key is a mistake.

use std::collections::BTreeSet;
use std::sync::Arc;
use tollgate_core::plugin::World;

use http::HeaderName;
use serde::Deserialize;
use serde::de::value::StrDeserializer;
use serde_saphyr::Spanned;

use super::permissions::ProviderPermissions;
use tollgate_core::diagnostic::{Diagnostic, Loaded, Location};
use tollgate_core::header_names::is_host_owned;
use tollgate_core::plugin::Import;
use tollgate_objects::GeneratorKind;

mod provider;

use provider::{RawAudience, RawCapture, RawSecret};

/// Fields a manifest may ask to see in one direction.
const MAX_FIELDS: usize = 64;

/// A direction messages go in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// To the backend.
    Request,
    /// To the client.
    Response,
}

/// A part of the context a plugin may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ContextPart {
    /// Name of the caller.
    User,
    /// Groups of the caller.
    Groups,
    /// Application, as `namespace:name`.
    Application,
    /// Project of the application.
    Project,
    /// Cluster of the application.
    Cluster,
}

#[derive(Clone, Debug)]
pub(crate) struct Manifest {
    /// Also the name of its two files.
    pub(crate) name: String,
    pub(crate) version: semver::Version,
    pub(crate) description: String,
    /// Digest of the component, lower-case hex.
    pub(crate) sha256: String,
    pub(crate) world: World,
    pub(crate) imports: BTreeSet<Import>,
    /// Request fields it may see.
    pub(crate) request_fields: Vec<HeaderName>,
    /// Response fields it may see.
    pub(crate) response_fields: Vec<HeaderName>,
    /// Parts of the context it may see.
    pub(crate) context: BTreeSet<ContextPart>,
    /// Directions in which it is called for each message.
    pub(crate) filters: BTreeSet<Direction>,
    /// Kinds of generators it provides.
    pub(crate) generators: BTreeSet<GeneratorKind>,
    /// Permissions that it declares as a credential provider or generator.
    pub(crate) provider: ProviderPermissions,
    /// JSON Schema of its configuration. Without one, every configuration is valid.
    config_schema: Option<jsonschema::Validator>,
    pub(crate) locations: ManifestLocations,
}

impl Manifest {
    pub(crate) fn check_digest(&self, observed: &str) -> Result<(), Diagnostic> {
        if self.sha256 == observed {
            return Ok(());
        }
        let said = &self.sha256;
        let message = format!("the component's digest is `{observed}`, its manifest says `{said}`");
        Err(Diagnostic::error(self.locations.sha256.clone(), message))
    }

    /// Violations of the schema by a configuration. They contain no values.
    pub(crate) fn config_violations(&self, config: &serde_json::Value) -> Vec<String> {
        let errors = self.config_schema.iter().flat_map(|schema| schema.iter_errors(config));
        let texts = errors.map(|error| match error.instance_path().as_str() {
            "" => error.masked().to_string(),
            path => format!("`{path}`: {}", error.masked()),
        });
        texts.collect()
    }
}

/// Source locations of keys, for findings that need the component too.
#[derive(Clone, Debug)]
pub(crate) struct ManifestLocations {
    pub(crate) file: Location,
    pub(crate) sha256: Location,
    pub(crate) world: Location,
    /// `imports`, or the file.
    pub(crate) imports: Location,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawManifest {
    name: Spanned<String>,
    version: Spanned<String>,
    #[serde(default)]
    description: String,
    sha256: Spanned<String>,
    world: Spanned<String>,
    minimum_host_version: Option<Spanned<String>>,
    #[serde(default)]
    imports: Words,
    #[serde(default)]
    request_fields: Words,
    #[serde(default)]
    response_fields: Words,
    #[serde(default)]
    context: Words,
    #[serde(default)]
    filters: Words,
    #[serde(default)]
    generators: Words,
    config_schema: Option<Spanned<serde_json::Value>>,
    #[serde(default)]
    hosts: Words,
    #[serde(default)]
    secrets: Vec<RawSecret>,
    #[serde(default)]
    audiences: Vec<RawAudience>,
    #[serde(default)]
    captures: Vec<RawCapture>,
    #[serde(default)]
    visible: Words,
    #[serde(default)]
    response_headers: Words,
    #[serde(default)]
    output_headers: Words,
}

type Words = Vec<Spanned<String>>;

/// Reads the manifest `text` of the file `file`, which should describe the plugin `stem`.
pub(super) fn parse(text: &str, file: &str, stem: &str) -> Loaded<Manifest> {
    let file: Arc<str> = file.into();
    let raw: RawManifest = match crate::yaml::from_str(text) {
        Ok(raw) => raw,
        Err(error) => return Loaded::refused(vec![crate::yaml::diagnostic(&error, &file)]),
    };
    let mut checker = ManifestChecker {
        file,
        diagnostics: Vec::new(),
    };
    let manifest = checker.manifest(raw, stem);
    match manifest {
        Some(manifest) => Loaded::new(manifest, checker.diagnostics),
        None => Loaded::refused(checker.diagnostics),
    }
}

struct ManifestChecker {
    file: Arc<str>,
    diagnostics: Vec<Diagnostic>,
}

impl ManifestChecker {
    fn at<T>(&self, part: &Spanned<T>) -> Location {
        crate::yaml::location(&part.referenced, &self.file)
    }

    fn refuse<T>(&mut self, part: &Spanned<T>, message: String, hint: &str) {
        self.diagnostics
            .push(Diagnostic::error(self.at(part), message).with_hint(hint));
    }

    fn manifest(&mut self, raw: RawManifest, stem: &str) -> Option<Manifest> {
        if raw.name.value != stem {
            let message = format!("the plugin is named `{}`, its files `{stem}`", raw.name.value);
            self.refuse(&raw.name, message, "both must be the same");
        }
        let good = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if raw.name.value.is_empty() || raw.name.value.len() > 63 || !raw.name.value.bytes().all(good) {
            let message = format!("`{}` is not a plugin name", raw.name.value);
            self.refuse(&raw.name, message, NAME_HINT);
        }
        let version = self.version(&raw.version);
        let sha256 = self.digest(&raw.sha256);
        let world = World::try_from(raw.world.value.as_str()).ok();
        if world.is_none() {
            let message = format!("there is no world `{}`", raw.world.value);
            let hint = "known: `header-filter`, `credential-provider`, `generator`";
            self.refuse(&raw.world, message, hint);
        }
        self.host_version(raw.minimum_host_version.as_ref());
        let file = Location::new(self.file.clone(), 0);
        let first_import = raw.imports.first().map(|part| self.at(part));
        let locations = ManifestLocations {
            sha256: self.at(&raw.sha256),
            world: self.at(&raw.world),
            imports: first_import.unwrap_or_else(|| file.clone()),
            file,
        };
        let imports = self.words(&raw.imports, "host interface", IMPORTS, |name| name.parse().ok());
        let context = self.words(&raw.context, "part of the context", CONTEXT, known_word);
        let filters = self.words(&raw.filters, "direction", FILTERS, known_word);
        let generators = self.words(&raw.generators, "kind of generator", GENERATORS, guest_kind);
        self.generators_fit(world, &raw.generators, &raw.world);
        let request_fields = self.fields(&raw.request_fields);
        let response_fields = self.fields(&raw.response_fields);
        let config_schema = raw.config_schema.as_ref().and_then(|part| self.schema(part));
        if let Some(world) = world {
            self.imports_fit(world, &raw.imports);
        }
        self.fits_world(world, &raw);
        let provider = self.provider(&raw);
        Some(Manifest {
            name: raw.name.value,
            // Only here does a mistake end the check, so that all of them are reported at once.
            version: version?,
            description: raw.description,
            sha256: sha256?,
            world: world?,
            imports,
            request_fields,
            response_fields,
            context,
            filters,
            generators,
            provider,
            config_schema,
            locations,
        })
    }

    fn version(&mut self, part: &Spanned<String>) -> Option<semver::Version> {
        let version = semver::Version::parse(&part.value).inspect_err(|error| {
            let message = format!("`{}` is not a version: {error}", part.value);
            self.refuse(part, message, "such as `1.0.0`");
        });
        version.ok()
    }

    fn host_version(&mut self, part: Option<&Spanned<String>>) {
        let Some(part) = part else { return };
        let Some(wanted) = self.version(part) else { return };
        let host = semver::Version::parse(env!("CARGO_PKG_VERSION"));
        if host.as_ref().map_or(true, |host| *host < wanted) {
            let message = format!("the plugin needs version `{wanted}` of the gateway");
            let hint = concat!("this is version `", env!("CARGO_PKG_VERSION"), "`");
            self.refuse(part, message, hint);
        }
    }

    fn digest(&mut self, part: &Spanned<String>) -> Option<String> {
        // The digest that it is compared with is in lower case.
        let hex = part.value.to_ascii_lowercase();
        if hex.len() == 64 && hex.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Some(hex);
        }
        let hint = "64 hex digits, as `sha256sum` prints them";
        self.refuse(part, "`sha256` is not a digest".to_owned(), hint);
        None
    }

    fn words<T: Ord>(
        &mut self,
        parts: &[Spanned<String>],
        what: &str,
        hint: &str,
        from_name: fn(&str) -> Option<T>,
    ) -> BTreeSet<T> {
        let mut words = BTreeSet::new();
        for part in parts {
            match from_name(&part.value) {
                Some(word) => {
                    words.insert(word);
                }
                None => self.refuse(part, format!("there is no {what} `{}`", part.value), hint),
            }
        }
        words
    }

    /// Fields a plugin may see; credentials are not among them.
    fn fields(&mut self, parts: &[Spanned<String>]) -> Vec<HeaderName> {
        let mut fields = Vec::new();
        for part in parts {
            match HeaderName::from_bytes(part.value.as_bytes()) {
                // Sessions are in `Set-Cookie`, although it is not the host's.
                Ok(name) if is_host_owned(&name) || name == http::header::SET_COOKIE => {
                    let message = format!("no plugin may see the field `{name}`");
                    self.refuse(part, message, "credentials, identity and framing stay in the gateway");
                }
                Ok(name) if fields.contains(&name) => {}
                Ok(name) => fields.push(name),
                Err(_) => self.refuse(
                    part,
                    format!("`{}` is not a field name", part.value),
                    "such as `x-tenant`",
                ),
            }
        }
        if let (true, Some(part)) = (fields.len() > MAX_FIELDS, parts.first()) {
            self.refuse(part, format!("`{}` fields are too many", fields.len()), "at most 64");
        }
        fields
    }

    fn schema(&mut self, part: &Spanned<serde_json::Value>) -> Option<jsonschema::Validator> {
        let compiled = jsonschema::validator_for(&part.value).inspect_err(|error| {
            let message = format!("`configSchema` is not a JSON Schema: {error}");
            self.refuse(part, message, "draft 2020-12");
        });
        compiled.ok()
    }

    /// Checks that a generator names the kinds it provides, and that no other plugin does.
    fn generators_fit(&mut self, world: Option<World>, kinds: &[Spanned<String>], at: &Spanned<String>) {
        match (world, kinds.first()) {
            (Some(World::Generator), None) => {
                let message = "the plugin provides no kind of generator".to_owned();
                self.refuse(at, message, "such as `generators: [plugin]`");
            }
            (Some(World::HeaderFilter | World::CredentialProvider), Some(part)) => {
                let message = "only a `generator` has `generators`".to_owned();
                self.refuse(part, message, "remove the key, or change `world`");
            }
            (_, _) => {}
        }
    }

    fn imports_fit(&mut self, world: World, parts: &[Spanned<String>]) {
        for part in parts {
            if Import::try_from(part.value.as_str()).is_ok_and(|import| !import.is_available_in(world)) {
                let message = format!("a `{}` cannot have `{}`", world.as_ref(), part.value);
                self.refuse(part, message, "remove it, or change `world`");
            }
        }
    }
}

const NAME_HINT: &str = "1 to 63 lower-case letters, digits and `-`";
const IMPORTS: &str =
    "known: `clock`, `log`, `random`; for credential providers also `crypto`, `ambient`, `memo`, `reveal`";
const GENERATORS: &str = "known: `scmProvider`, `pullRequest`, `clusterDecisionResource`, `plugin`";
const CONTEXT: &str = "known: `user`, `groups`, `application`, `project`, `cluster`";
const FILTERS: &str = "known: `request`, `response`";

/// A kind the host does not have itself.
fn guest_kind(name: &str) -> Option<GeneratorKind> {
    let kinds = [
        GeneratorKind::ScmProvider,
        GeneratorKind::PullRequest,
        GeneratorKind::ClusterDecisionResource,
        GeneratorKind::Plugin,
    ];
    kinds.into_iter().find(|kind| kind.as_ref() == name)
}

/// The variant that serde knows by that name.
fn known_word<T: serde::de::DeserializeOwned>(name: &str) -> Option<T> {
    T::deserialize(StrDeserializer::<serde::de::value::Error>::new(name)).ok()
}

#[cfg(test)]
mod tests;
