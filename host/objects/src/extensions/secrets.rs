//! Resolves `$key` references to Secrets. The results are marked as secret.
//!
//! Security: only Secrets that are labelled for it are read, and error texts contain no values.
//!
//! Source: Argo CD, `ReplaceStringSecret` and `updateSettingsFromSecret`.

use std::collections::BTreeMap;
use std::sync::Arc;

use secrecy::ExposeSecret;

use crate::Secret;
use tollgate_config::Compatibility;

/// The Secret that holds keys referenced without a Secret's name.
const DEFAULT_SECRET: &str = "argocd-secret";

/// Label a Secret must have to be referenced as `$<secret>:<key>`.
const LABEL: (&str, &str) = ("app.kubernetes.io/part-of", "argocd");

/// A text after substitution.
#[derive(Clone, PartialEq, Eq)]
pub struct Substituted {
    /// The text.
    pub value: String,
    /// Where it comes from.
    pub origin: Origin,
}

/// Where a text comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Written in the configuration.
    Literal,
    /// Taken from a Secret: must not be shown.
    Secret,
}

impl std::fmt::Debug for Substituted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.origin {
            Origin::Literal => write!(f, "{:?}", self.value),
            Origin::Secret => f.write_str("[secret]"),
        }
    }
}

/// Replaces a text that begins with `$` by the value it refers to, without the
/// white space around it; any other text stays as it is.
///
/// - `$key`: key of `argocd-secret`.
/// - `$secret:key`: key of a Secret labelled `app.kubernetes.io/part-of: argocd`.
///
/// With [`Compatibility::Argocd`], a reference that cannot be resolved stays, and the error is beside
/// it.
///
/// # Errors
/// Why the reference cannot be resolved; the text names the key, never a value.
pub fn substitute_or(
    text: &str,
    secrets: &BTreeMap<String, Arc<Secret>>,
    compatibility: Compatibility,
) -> Result<(Substituted, Option<String>), String> {
    let literal = Substituted {
        value: text.to_owned(),
        origin: Origin::Literal,
    };
    let Some(reference) = text.strip_prefix('$') else {
        return Ok((literal, None));
    };
    match (resolve(reference, secrets), compatibility) {
        (Ok(value), _) => {
            let (value, origin) = (value.trim().to_owned(), Origin::Secret);
            Ok((Substituted { value, origin }, None))
        }
        (Err(error), Compatibility::None) => Err(error),
        (Err(error), Compatibility::Argocd) => Ok((literal, Some(error))),
    }
}

/// Whether the settings of Argo CD may refer to keys of a Secret.
pub fn is_referable(name: &str, secret: &Secret) -> bool {
    let (label, wanted) = LABEL;
    name == DEFAULT_SECRET || secret.labels.get(label).is_some_and(|value| value == wanted)
}

fn resolve<'s>(reference: &str, secrets: &'s BTreeMap<String, Arc<Secret>>) -> Result<&'s str, String> {
    // As in Argo CD: the whole text is looked up as a key first.
    let own = secrets.get(DEFAULT_SECRET);
    if let Some(value) = own.and_then(|secret| secret.values.get(reference)) {
        return Ok(value.expose_secret());
    }
    let letters = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let is_key = |text: &str| !text.is_empty() && text.bytes().all(letters);
    let (name, key) = reference.split_once(':').unwrap_or((DEFAULT_SECRET, reference));
    if !is_key(name) || !is_key(key) {
        // The text is not shown because it may be a secret.
        return Err("a value that begins with `$` is not a reference to a key of a Secret".to_owned());
    }
    let Some(found) = secrets.get(name) else {
        return Err(format!("`${reference}` names Secret `{name}`, which does not exist"));
    };
    if !is_referable(name, found) {
        let (label, wanted) = LABEL;
        let lacks = format!("which lacks the label `{label}: {wanted}`");
        return Err(format!("`${reference}` names Secret `{name}`, {lacks}"));
    }
    let value = found.values.get(key).map(|value| value.expose_secret());
    value.ok_or_else(|| format!("`${reference}` names a key that Secret `{name}` does not have"))
}
