//! The rules of `policies/applications/impersonation.cel.yaml`: who acts when no entry matches, and
//! which values about the caller the gateway sends in `Impersonate-Extra-…` headers.
//!
//! Invariant: expressions are compiled at load, never per request.
//!
//! Security: a key or value that Kubernetes would read differently is refused.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_saphyr::Spanned;

use super::Fallback;
use crate::cel::{Expression, Variables};
use crate::impersonate::{Error, checks, compile, failed, load_file, location_of};
use tollgate_config::ServiceAccountSemantics;
use tollgate_core::diagnostic::{Diagnostic, Loaded, Location};
use tollgate_core::yaml;
use tollgate_objects::Application;

const VARIABLES: [&str; 2] = ["principal", "application"];
const MAX_KEYS: usize = 64;

/// Who acts when no entry matches, and which `extra` values about the caller clusters get.
#[derive(Debug, Default)]
pub struct ImpersonationRules {
    /// The semantics of lists.
    pub semantics: ServiceAccountSemantics,
    /// Who acts when no entry matches, unless `argocd-cm` says that the controller does.
    pub fallback: Fallback,
    extra: Vec<(String, Expression)>,
}

/// The caller, as expressions see it.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct PrincipalInfo<'a> {
    /// The name that people use.
    pub username: &'a str,
    /// Its groups.
    pub groups: &'a [String],
    /// `iss`; `argocd` for tokens Argo CD signed.
    pub issuer: &'a str,
    /// What authenticated it, such as `oidc`.
    pub kind: &'a str,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRules {
    fallback: Option<Fallback>,
    #[serde(default)]
    extra: BTreeMap<String, Spanned<String>>,
}

impl ImpersonationRules {
    /// The rules where there is no file: no `extra`, and if no entry matches the account `default`
    /// acts, or under [`ServiceAccountSemantics::Argocd`] nobody.
    pub fn new(semantics: ServiceAccountSemantics) -> Self {
        let fallback = match semantics {
            ServiceAccountSemantics::Strict => Fallback::DefaultServiceAccount,
            ServiceAccountSemantics::Argocd => Fallback::Deny,
        };
        Self {
            semantics,
            fallback,
            extra: Vec::new(),
        }
    }

    /// Reads `impersonation.cel.yaml` of `folder`, if it is there. Blocks for some
    /// milliseconds.
    pub fn load(folder: &Path, semantics: ServiceAccountSemantics) -> Loaded<Self> {
        let parse = |path: &str, text: &str| Self::parse(path, text, semantics);
        load_file(folder, Some(Self::new(semantics)), parse)
    }

    /// Reads and compiles the text of the file at `path`. Every mistake is reported.
    pub fn parse(path: &str, text: &str, semantics: ServiceAccountSemantics) -> Loaded<Self> {
        let RawRules { fallback, extra } = match yaml::deserialize(path, text) {
            Ok(raw) => raw,
            Err(finding) => return Loaded::refused(vec![finding]),
        };
        let mut rules = Self::new(semantics);
        rules.fallback = fallback.unwrap_or(rules.fallback);
        let mut found = Vec::new();
        if extra.len() > MAX_KEYS {
            let message = format!("`extra` has {} entries, {MAX_KEYS} are allowed", extra.len());
            return Loaded::refused(vec![Diagnostic::error(Location::new(path, 0), message)]);
        }
        for (key, source) in extra {
            if let Err(error) = checks::check_key(&key) {
                found.push(Diagnostic::error(location_of(path, &source), error.to_string()));
            }
            if let Some(expression) = compile(path, &format!("extra.{key}"), &source, &VARIABLES, &mut found) {
                rules.extra.push((key, expression));
            }
        }
        Loaded::new(rules, found)
    }

    /// The keys of `extra` that may be sent to a cluster, sorted.
    pub fn extra_keys(&self) -> impl Iterator<Item = &str> {
        self.extra.iter().map(|(key, _)| key.as_str())
    }

    /// The `extra` values that a cluster gets about the caller when an account acts for
    /// `application`: keys of `Impersonate-Extra-…` with their values, checked. Keys without a value
    /// are left out.
    ///
    /// Takes some 10 µs unless there are no keys: call it once per caller and Application, not once
    /// per request.
    ///
    /// # Errors
    /// [`Error::Expression`], and the errors about keys and values; each denies.
    pub fn extra(
        &self,
        principal_info: &PrincipalInfo<'_>,
        application: &Application,
    ) -> Result<Vec<(String, Vec<String>)>, Error> {
        if self.extra.is_empty() {
            return Ok(Vec::new());
        }
        let principal = json!(principal_info);
        let about = json!({
            "namespace": application.name.namespace,
            "name": application.name.name,
            "project": application.project,
        });
        let variables =
            Variables::new([("principal", &principal), ("application", &about)]).map_err(failed("variables"))?;
        let mut extra = Vec::with_capacity(self.extra.len());
        for (key, expression) in &self.extra {
            let texts = expression.eval_flattened_strings_in(&variables);
            extra.push((key.clone(), texts.map_err(failed(&format!("extra.{key}")))?));
        }
        checks::check_extra(extra)
    }
}
