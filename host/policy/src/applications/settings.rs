//! Reads the settings of `argocd-cm` that control impersonation: the [`ImpersonationMode`], the
//! fallback when no entry matches, and whether permissions on an Application extend to its objects.
//!
//! Security: values are compared exactly. A value that is merely similar to a known one never
//! counts as it. A mistake in the gateway's own key never ends what Argo CD's key turns on.

use crate::impersonate::service_account::Fallback;
use tollgate_config::ImpersonationMode;
use tollgate_core::diagnostic::{Diagnostic, one_line};
use tollgate_objects::{ConfigMap, Resources, Text};

/// Argo CD's own key: enables impersonation of service accounts if it is exactly `true`. Exactly
/// `audit`, which Argo CD reads as off, only records what they would refuse.
pub const ENABLED_KEY: &str = "application.sync.impersonation.enabled";
/// The key of Argo CD's proposal, which Argo CD does not read. It has the same values and takes
/// precedence, so that the gateway can be set without Argo CD.
pub const OWN_ENABLED_KEY: &str = "applicationcontroller.enable.impersonation";
/// Exactly `false` lets the gateway's own identity act where no entry matches.
pub const ENFORCED_KEY: &str = "application.sync.impersonation.enforced";

/// Whether `applications, update` and `delete` extend to the Application's objects.
const INHERITANCE_KEY: &str = "server.rbac.disableApplicationFineGrainedRBACInheritance";

/// Whether a permission to change or delete an Application extends to its objects.
///
/// Source: Argo CD, `ApplicationFineGrainedRBACInheritanceDisabled`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Inheritance {
    /// It does not; `update/<group>/<kind>/<namespace>/<name>` is needed. Argo CD's default.
    #[default]
    Disabled,
    /// It does, as before Argo CD 3.0.
    Enabled,
}

const SHOWN_BYTES: usize = 64;

/// What is wrong with the settings that enable impersonation. A missing `argocd-cm` is an error,
/// after which nothing of the load may be used. Values with no meaning, and keys that contradict each
/// other, are warnings. Call it only if the mode is not set elsewhere.
// SECURITY: with impersonation off the gateway's own identity acts, so a missing ConfigMap must not
// count as off.
pub(super) fn findings(resources: &Resources) -> Vec<Diagnostic> {
    if resources.argocd_cm_location.is_none() {
        let message =
            "there is no ConfigMap `argocd-cm`, which says whether Applications act as their service accounts";
        let hint = format!(
            "add `argocd-cm` to the state, with `{ENABLED_KEY}` or without, or say it with `--enable-impersonation`"
        );
        return vec![Diagnostic::error(None, message).with_hint(hint)];
    }
    let keys = [OWN_ENABLED_KEY, ENABLED_KEY];
    let [own, argocd] = keys.map(|key| Some((key, resources.argocd_cm.data.get(key)?)));
    let mut found: Vec<Diagnostic> = [own, argocd].into_iter().flatten().filter_map(unknown_value).collect();
    if let (Some((_, own)), Some((_, argocd))) = (own, argocd)
        && let (Some(own_mode), Some(argocd_mode)) = (parse_mode(&own.value), parse_mode(&argocd.value))
        && own_mode != argocd_mode
    {
        let message = format!(
            "`{OWN_ENABLED_KEY}` is `{}` and `{ENABLED_KEY}` is `{}`; here the first one decides",
            own.value, argocd.value
        );
        let hint = format!("remove one of them; Argo CD itself reads only `{ENABLED_KEY}`");
        found.push(Diagnostic::warning(own.location.clone(), message).with_hint(hint));
    }
    found
}

/// The finding about a value that is none of those with a meaning.
fn unknown_value((key, setting): (&str, &Text)) -> Option<Diagnostic> {
    if setting.value.is_empty() || parse_mode(&setting.value).is_some() {
        return None;
    }
    let value = one_line(&setting.value, SHOWN_BYTES);
    let meaning = match key {
        OWN_ENABLED_KEY => "which means nothing and is ignored",
        _ => "which means off: nobody acts as a service account",
    };
    let hint = "`true`, `audit` and `false` are its values, to the letter";
    Some(Diagnostic::warning(setting.location.clone(), format!("`{key}` is `{value}`, {meaning}")).with_hint(hint))
}

/// The mode that [`OWN_ENABLED_KEY`] says, else the one that [`ENABLED_KEY`] says.
pub(super) fn mode(argocd_cm: &ConfigMap) -> ImpersonationMode {
    let keys = [OWN_ENABLED_KEY, ENABLED_KEY].into_iter();
    let mut modes = keys.filter_map(|key| parse_mode(text(argocd_cm, key)?));
    modes.next().unwrap_or(ImpersonationMode::Off)
}

fn parse_mode(value: &str) -> Option<ImpersonationMode> {
    match value {
        "true" => Some(ImpersonationMode::Enforce),
        "audit" => Some(ImpersonationMode::Audit),
        "false" => Some(ImpersonationMode::Off),
        _ => None,
    }
}

/// - `of_rules`: the fallback in the front's rules.
pub(super) fn fallback(argocd_cm: &ConfigMap, of_rules: Fallback) -> Fallback {
    match text(argocd_cm, ENFORCED_KEY) {
        Some("false") => Fallback::Controller,
        Some(_) | None => of_rules,
    }
}

/// What `argocd-cm` says. Where the value is no boolean, Argo CD answers every request with an
/// error; here it grants nothing either.
pub(super) fn inheritance(argocd_cm: &ConfigMap) -> Inheritance {
    match text(argocd_cm, INHERITANCE_KEY) {
        Some("0" | "f" | "F" | "false" | "FALSE" | "False") => Inheritance::Enabled,
        Some(_) | None => Inheritance::Disabled,
    }
}

fn text<'a>(argocd_cm: &'a ConfigMap, key: &str) -> Option<&'a str> {
    argocd_cm.data.get(key).map(|text| &*text.value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_core::diagnostic::Location;

    fn resources(own: Option<&str>, argocd: Option<&str>) -> Resources {
        let mut resources = Resources {
            argocd_cm_location: Some(Location::new("argocd-cm.yaml", 1)),
            ..Resources::default()
        };
        for (key, value, line) in [(OWN_ENABLED_KEY, own, 2), (ENABLED_KEY, argocd, 3)] {
            if let Some(value) = value {
                let location = Location::new("argocd-cm.yaml", line);
                let value = value.into();
                resources
                    .argocd_cm
                    .data
                    .insert(key.to_owned(), Text { value, location });
            }
        }
        resources
    }

    #[test]
    fn the_gateways_own_key_takes_precedence() {
        use ImpersonationMode::{Audit, Enforce, Off};
        let (conflict, ignored) = ("here the first one decides", "which means nothing and is ignored");
        for (own, argocd, expected, warnings) in [
            (None, None, Off, &[][..]),
            (Some("true"), None, Enforce, &[]),
            (Some("audit"), None, Audit, &[]),
            (Some("false"), None, Off, &[]),
            (Some("true"), Some("true"), Enforce, &[]),
            (Some("true"), Some("false"), Enforce, &[conflict]),
            (Some("false"), Some("true"), Off, &[conflict]),
            (Some("audit"), Some("true"), Audit, &[conflict]),
            (None, Some("true"), Enforce, &[]),
            (Some(""), Some("true"), Enforce, &[]),
            (Some("True"), None, Off, &[ignored]),
            (Some("True"), Some("true"), Enforce, &[ignored]),
            (Some("0"), Some("audit"), Audit, &[ignored]),
            (Some("no"), Some("yes"), Off, &[ignored, "which means off"]),
            (Some("true"), Some("yes"), Enforce, &["which means off"]),
        ] {
            let resources = resources(own, argocd);
            assert_eq!(mode(&resources.argocd_cm), expected, "{own:?} {argocd:?}");
            let found: Vec<String> = findings(&resources).iter().map(ToString::to_string).collect();
            assert_eq!(found.len(), warnings.len(), "{found:?}");
            for (found, warning) in found.iter().zip(warnings) {
                assert!(
                    found.starts_with("argocd-cm.yaml:") && found.contains(warning),
                    "{found}"
                );
            }
        }
    }
}
