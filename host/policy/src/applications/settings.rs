//! Reads the settings of `argocd-cm` that control impersonation: the [`ImpersonationMode`], the
//! fallback when no entry matches, and whether permissions on an Application extend to its objects.
//!
//! Security: values are compared exactly. A value that is merely similar to a known one never
//! counts as it.

use crate::impersonate::service_account::Fallback;
use tollgate_config::ImpersonationMode;
use tollgate_core::diagnostic::{Diagnostic, one_line};
use tollgate_state::{ConfigMap, Resources};

/// Enables impersonation of service accounts if it is exactly `true`. Exactly `audit`, which Argo
/// CD reads as off, only records what they would refuse.
pub const ENABLED_KEY: &str = "application.sync.impersonation.enabled";
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

/// What is wrong with the setting that enables impersonation. A missing `argocd-cm` is an error,
/// after which nothing of the load may be used. A value with no meaning is a warning. Call it only
/// if the mode is not set elsewhere.
// SECURITY: with impersonation off the gateway's own identity acts, so a missing ConfigMap must not
// count as off.
pub(super) fn findings(resources: &Resources) -> Option<Diagnostic> {
    if resources.argocd_cm_location.is_none() {
        let message =
            "there is no ConfigMap `argocd-cm`, which says whether Applications act as their service accounts";
        let hint = format!(
            "add `argocd-cm` to the state, with `{ENABLED_KEY}` or without, or say it with `--enable-impersonation`"
        );
        return Some(Diagnostic::error(None, message).with_hint(hint));
    }
    let setting = resources.argocd_cm.data.get(ENABLED_KEY)?;
    match &*setting.value {
        "true" | "false" | "audit" | "" => None,
        other => {
            let other = one_line(other, SHOWN_BYTES);
            let message = format!("`{ENABLED_KEY}` is `{other}`, which means off: nobody acts as a service account");
            let hint = "`true`, `audit` and `false` are its values, to the letter";
            Some(Diagnostic::warning(setting.location.clone(), message).with_hint(hint))
        }
    }
}

pub(super) fn mode(argocd_cm: &ConfigMap) -> ImpersonationMode {
    match text(argocd_cm, ENABLED_KEY) {
        Some("true") => ImpersonationMode::Enforce,
        Some("audit") => ImpersonationMode::Audit,
        Some(_) | None => ImpersonationMode::Off,
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
