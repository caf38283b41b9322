//! The steps until Argo CD holds no credential of a cluster, and the way back, in order.
//!
//! Source: docs/tutorials/argocd-without-cluster-admin.md, whose commands a test runs.

use serde::Serialize;

use super::report::{ClusterReport, ImpersonationState, Route};
use tollgate_config::ControlPlaneMode;
use tollgate_objects::destination::IN_CLUSTER_SERVER;
use tollgate_policy::applications::{ENABLED_KEY, ENFORCED_KEY};

const IN_CLUSTER_PODS: &str = "have Argo CD's pods trust Tollgate, as docs/behind-argocd.md shows";

const IN_CLUSTER_BINDINGS: &str =
    "delete the ClusterRoleBindings of Argo CD's accounts; their Roles in Argo CD's namespace stay";

#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Step {
    pub(super) state: StepState,
    pub(super) text: String,
    /// A command line, where one is enough.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) command: Option<String>,
}

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

/// What is left to do for a cluster.
pub(super) fn steps(
    report: &ClusterReport,
    impersonation: ImpersonationState,
    mode: Option<ControlPlaneMode>,
) -> Vec<Step> {
    let name = &report.name;
    let files = "--proxy-url URL --token-file FILE --dry-run";
    let enroll = format!("tollgate cluster enroll {name}");
    let enroll_with_token = format!("{enroll} --credential-token-file FILE {files}");
    let is_enrolled = StepState::of(report.route == Route::Enrolled);
    let through = "have Argo CD reach the cluster through Tollgate";
    let impersonate = step(
        StepState::Unknown,
        "let Tollgate's own account act as the accounts, and as nobody else",
        Some(format!("tollgate migrate argocd --cluster {name} --roles gateway")),
    );
    let mut steps = before_enrollment(report, impersonation, mode);
    if report.server == IN_CLUSTER_SERVER {
        // Argo CD has no credential there that could be moved.
        steps.extend([
            impersonate,
            step(StepState::Unknown, IN_CLUSTER_PODS, None),
            step(is_enrolled, through, Some(enroll_with_token)),
        ]);
        steps.extend(after_enrollment(report, impersonation, mode));
        steps.push(step(StepState::Unknown, IN_CLUSTER_BINDINGS, None));
    } else {
        steps.push(step(is_enrolled, through, Some(format!("{enroll} {files}"))));
        steps.extend(after_enrollment(report, impersonation, mode));
        steps.extend([
            impersonate,
            step(
                StepState::Unknown,
                "release the cluster, and enroll it with a token of that account",
                Some(enroll_with_token),
            ),
            step(
                StepState::Unknown,
                "delete the account in the cluster whose credential Argo CD had",
                None,
            ),
        ]);
    }
    steps
}

fn before_enrollment(
    report: &ClusterReport,
    impersonation: ImpersonationState,
    mode: Option<ControlPlaneMode>,
) -> Vec<Step> {
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
            Some(format!(
                "tollgate migrate argocd --cluster {} --roles accounts",
                report.name
            )),
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
    ]
}

fn after_enrollment(
    report: &ClusterReport,
    impersonation: ImpersonationState,
    mode: Option<ControlPlaneMode>,
) -> [Step; 2] {
    let is_enforced = mode == Some(ControlPlaneMode::Enforce);
    let recorded = match &report.would_refuse {
        None => StepState::Unknown,
        // Decisions are those of the past: what is fixed stays there for a while.
        Some(refused) => StepState::of(report.route == Route::Enrolled && refused.is_empty()),
    };
    [
        step(
            recorded,
            "sync Applications, until mode audit records nothing more",
            Some(format!("tollgate migrate argocd --cluster {} --admin URL", report.name)),
        ),
        step(
            StepState::of(is_enforced && impersonation == ImpersonationState::Enforced),
            format!("refuse the rest: `mode: enforce`, and argocd-cm without `{ENFORCED_KEY}`"),
            None,
        ),
    ]
}

/// How Argo CD reaches the cluster by itself again.
pub(super) fn way_back(report: &ClusterReport) -> Vec<WayBack> {
    let release = format!("tollgate cluster release {}", report.name);
    if report.server == IN_CLUSTER_SERVER {
        return vec![WayBack {
            text: "also with Tollgate down, once the accounts of Argo CD have their rights again",
            command: release,
        }];
    }
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
