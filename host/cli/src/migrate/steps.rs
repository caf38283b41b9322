//! The steps until Argo CD holds no credential of a cluster, and the way back, in order.
//!
//! Source: docs/guides/argocd-without-cluster-admin.md, whose commands a test runs.

use serde::Serialize;

use super::report::{ClusterReport, ImpersonationState, Route};
use tollgate_config::ControlPlaneMode;
use tollgate_policy::applications::{ENABLED_KEY, ENFORCED_KEY};

/// One step.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Step {
    pub(super) state: StepState,
    pub(super) text: String,
    /// A command line, where one is enough.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) command: Option<String>,
}

/// A way back.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct WayBack {
    pub(super) text: &'static str,
    pub(super) command: String,
}

/// Whether a step is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum StepState {
    Done,
    Open,
    /// Nothing that is read says it.
    Unknown,
}

impl StepState {
    fn of(is_done: bool) -> Self {
        if is_done { Self::Done } else { Self::Open }
    }
}

fn step(state: StepState, text: impl Into<String>, command: Option<String>) -> Step {
    Step {
        state,
        text: text.into(),
        command,
    }
}

/// What is left to do for a cluster. Empty for one that cannot be enrolled.
pub(super) fn steps(
    report: &ClusterReport,
    impersonation: ImpersonationState,
    mode: Option<ControlPlaneMode>,
) -> Vec<Step> {
    if report.route == Route::InCluster {
        return Vec::new();
    }
    let name = &report.name;
    let enroll = "tollgate cluster enroll";
    let files = "--proxy-url URL --token-file FILE --dry-run";
    let is_enrolled = report.route == Route::Enrolled;
    let is_enforced = mode == Some(ControlPlaneMode::Enforce);
    let recorded = match &report.would_refuse {
        None => StepState::Unknown,
        // Decisions are those of the past: what is fixed stays there for a while.
        Some(refused) => StepState::of(is_enrolled && refused.is_empty()),
    };
    let roles = format!("tollgate migrate argocd --cluster {name} --roles");
    vec![
        step(
            StepState::of(report.without_account.is_empty()),
            "name an account in the project of each Application that has none",
            Some(format!(
                "argocd proj add-destination-service-account PROJECT {} NAMESPACE ACCOUNT",
                report.server
            )),
        ),
        step(
            StepState::Unknown,
            "give each account what it needs, and no more",
            Some(format!("{roles} accounts")),
        ),
        step(
            StepState::of(impersonation != ImpersonationState::Off),
            format!(
                "let the accounts act: `{ENABLED_KEY}: \"true\"` in argocd-cm, and `{ENFORCED_KEY}: \"false\"` for now"
            ),
            None,
        ),
        step(
            StepState::of(mode.is_some()),
            "open the front for Argo CD's components: `controlPlane` in Tollgate's settings, with `mode: audit`",
            None,
        ),
        step(
            StepState::of(is_enrolled),
            "have Argo CD reach the cluster through Tollgate",
            Some(format!("{enroll} {name} {files}")),
        ),
        step(
            recorded,
            "sync Applications, until mode audit records nothing more",
            Some(format!("tollgate migrate argocd --cluster {name} --admin URL")),
        ),
        step(
            StepState::of(is_enforced && impersonation == ImpersonationState::Enforced),
            format!("refuse the rest: `mode: enforce`, and argocd-cm without `{ENFORCED_KEY}`"),
            None,
        ),
        step(
            StepState::Unknown,
            "let Tollgate's own account act as the accounts, and as nobody else",
            Some(format!("{roles} gateway")),
        ),
        step(
            StepState::Unknown,
            "release the cluster, and enroll it with a token of that account",
            Some(format!("{enroll} {name} --credential-token-file FILE {files}")),
        ),
        step(
            StepState::Unknown,
            "delete the account in the cluster whose credential Argo CD had",
            None,
        ),
    ]
}

/// How Argo CD reaches the cluster by itself again.
pub(super) fn way_back(report: &ClusterReport) -> Vec<WayBack> {
    if report.route == Route::InCluster {
        return Vec::new();
    }
    let release = format!("tollgate cluster release {}", report.name);
    let with_token = format!("{release} --credential-token-file FILE");
    vec![
        WayBack {
            text: "up to step 8, also with Tollgate down: with the credential that Argo CD had",
            command: release,
        },
        WayBack {
            text: "from step 9, also with Tollgate down: with a new token of an account that may deploy",
            command: with_token,
        },
    ]
}
