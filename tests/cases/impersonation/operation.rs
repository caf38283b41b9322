//! The operations of a tool that acts for an Application, and their expected results.

use serde::Deserialize;
use tollgate_config::ImpersonationMode;
use tollgate_config::ServiceAccountSemantics;
use tollgate_objects::destination;
use tollgate_policy::applications::ENFORCED_KEY;
use tollgate_policy::impersonate::service_account::ImpersonationRules;

use super::scenario::Scenario;
use super::{contains, controller_message, gateway};
use crate::suite::same;

/// An operation of Argo CD.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Operation {
    Sync,
    ServerSideDiff,
    ApiServerLiveOperations,
    CascadeDelete,
    SyncE2e,
}

/// A request to the Application's cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Read,
    Apply,
    DryRun,
    Delete,
}

impl Operation {
    /// The requests of the operation.
    fn actions(self) -> &'static [Action] {
        match self {
            // As Argo CD's sync engine does: read the live object, dry run, apply, and read again.
            Self::Sync | Self::SyncE2e => &[Action::Read, Action::DryRun, Action::Apply, Action::Read],
            Self::ServerSideDiff => &[Action::Read, Action::DryRun],
            Self::ApiServerLiveOperations => &[Action::Read, Action::Apply, Action::Delete],
            Self::CascadeDelete => &[Action::Delete],
        }
    }
}

/// The outcome of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It succeeded, with this user impersonated, if any.
    Done { user: Option<String> },
    /// The cluster refused it.
    ClusterRefused { user: Option<String>, message: String },
    /// The gateway refused it, and the cluster received nothing.
    GatewayRefused { message: String },
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Expected {
    phase: Option<Phase>,
    sync_status: Option<SyncStatus>,
    ok: Option<bool>,
    message_contains: Option<String>,
    error_contains: Option<String>,
    error_class: Option<String>,
    impersonate: Option<String>,
    /// Only the control plane removes finalizers; allowed only if nothing is deleted.
    finalizers_removed: Option<bool>,
    resources_deleted: Option<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
enum Phase {
    Succeeded,
    Failed,
    Error,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
enum SyncStatus {
    Synced,
    OutOfSync,
    /// The live state can no longer be compared.
    Unknown,
}

/// How an operation ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Done,
    Refused,
    /// The control plane completes it without a request to the cluster.
    Untouched,
}

impl Expected {
    /// Expects a refusal for this reason.
    pub(super) fn refused(error_class: Option<String>, error_contains: Option<String>) -> Self {
        Self {
            ok: Some(false),
            error_class,
            error_contains,
            ..Self::default()
        }
    }

    /// Whether the control plane completes the operation without the cluster.
    pub(super) fn is_control_planes(&self) -> bool {
        self.finalizers_removed == Some(true) && self.resources_deleted == Some(false)
    }

    fn end(&self) -> Result<End, String> {
        let mut ends = Vec::new();
        ends.extend(self.phase.map(|phase| match phase {
            Phase::Succeeded => End::Done,
            Phase::Failed | Phase::Error => End::Refused,
        }));
        ends.extend(self.sync_status.map(|status| match status {
            SyncStatus::Synced => End::Done,
            SyncStatus::OutOfSync | SyncStatus::Unknown => End::Refused,
        }));
        ends.extend(self.ok.map(|ok| match (ok, self.resources_deleted) {
            (true, Some(false)) => End::Untouched,
            (true, Some(true) | None) => End::Done,
            (false, _) => End::Refused,
        }));
        ends.dedup();
        match ends.as_slice() {
            [end] => Ok(*end),
            [] => Err("nothing is expected of the operation".to_owned()),
            ends => Err(format!("several endings are expected: {ends:?}")),
        }
    }

    fn check(&self, outcome: &Outcome) -> Result<(), String> {
        let message = controller_message(outcome);
        let end = self.end()?;
        match (end, outcome) {
            (End::Done, Outcome::Done { user }) | (End::Refused, Outcome::ClusterRefused { user, .. }) => {
                if let Some(expected) = &self.impersonate {
                    let expected = Some(expected.clone()).filter(|user| !user.is_empty());
                    same(&expected, user)?;
                }
            }
            (End::Refused | End::Untouched, Outcome::GatewayRefused { .. }) => {
                if let Some(user) = self.impersonate.as_ref().filter(|user| !user.is_empty()) {
                    return Err(format!("the case expects `{user}`, but no request reaches the cluster"));
                }
            }
            (end, outcome) => return Err(format!("expected {end:?}, observed {outcome:?}")),
        }
        if self.finalizers_removed.is_some() && end != End::Untouched {
            return Err("`finalizers_removed`: only the control plane removes finalizers".to_owned());
        }
        for part in [&self.message_contains, &self.error_contains].into_iter().flatten() {
            contains(&message, part)?;
        }
        Ok(())
    }
}

/// Checks an operation against the index alone, then through a gateway.
pub(super) fn check(
    operation: Operation,
    scenario: &Scenario,
    expected: &Expected,
    semantics: ServiceAccountSemantics,
) -> Result<(), String> {
    let mut scenario = scenario.clone();
    if operation == Operation::CascadeDelete {
        // Argo CD does not check here whether impersonation is enforced. The equivalent setting of
        // this gateway is not to enforce it.
        if semantics == ServiceAccountSemantics::Argocd {
            scenario.settings.insert(ENFORCED_KEY.to_owned(), "false".to_owned());
        }
    }
    by_index(&scenario, expected, semantics).map_err(|error| format!("index: {error}"))?;
    let runtime = tokio::runtime::Runtime::new().map_err(|error| error.to_string())?;
    let own = scenario.cluster.as_ref().map(|cluster| cluster.server.clone());
    let outcomes = runtime.block_on(gateway::run(&scenario, operation.actions(), semantics))?;
    let mut of_patched = None;
    for (action, server, outcome) in outcomes.actions {
        // Messages contain the server's URL, which is another one in the gateway's state.
        let outcome = renamed(outcome, &server, own.as_deref());
        let check = if scenario.patched.is_some() {
            check_done(&outcome)
        } else {
            expected.check(&outcome)
        };
        check.map_err(|error| format!("{action:?}: {error}"))?;
    }
    for (action, server, outcome) in outcomes.patched {
        let outcome = renamed(outcome, &server, own.as_deref());
        expected
            .check(&outcome)
            .map_err(|error| format!("{action:?} after the change: {error}"))?;
        of_patched = Some(());
    }
    same(&scenario.patched.is_some(), &of_patched.is_some())
}

/// Checks that a request succeeded, as all do before a project is changed.
fn check_done(outcome: &Outcome) -> Result<(), String> {
    match outcome {
        Outcome::Done { .. } => Ok(()),
        Outcome::ClusterRefused { .. } | Outcome::GatewayRefused { .. } => Err(format!("observed {outcome:?}")),
    }
}

fn renamed(outcome: Outcome, server: &str, own: Option<&str>) -> Outcome {
    let text = |text: String| own.map_or_else(|| text.clone(), |own| text.replace(server, own));
    match outcome {
        Outcome::GatewayRefused { message } => Outcome::GatewayRefused { message: text(message) },
        Outcome::ClusterRefused { user, message } => Outcome::ClusterRefused {
            user,
            message: text(message),
        },
        Outcome::Done { user } => Outcome::Done { user },
    }
}

/// Checks the operation against the index, with the case's own servers.
fn by_index(scenario: &Scenario, expected: &Expected, semantics: ServiceAccountSemantics) -> Result<(), String> {
    let outcome = outcome(scenario, semantics);
    let Some(patched) = &scenario.patched else {
        if let Some(class) = &expected.error_class {
            let found = scenario
                .governed(&ImpersonationRules::new(semantics))
                .derived_account
                .as_ref()
                .err()
                .map(super::scenario::class);
            same(&Some(class.as_str()), &found)?;
        }
        return expected.check(&outcome);
    };
    check_done(&outcome)?;
    let mut after = scenario.clone();
    after.destinations.clone_from(patched);
    expected.check(&self::outcome(&after, semantics))
}

fn outcome(scenario: &Scenario, semantics: ServiceAccountSemantics) -> Outcome {
    let rules = ImpersonationRules::new(semantics);
    let index = scenario.index(&rules);
    let governed = scenario.governed(&rules);
    let refused = |message: String| Outcome::GatewayRefused { message };
    let (project, cluster) = match (&governed.project, &governed.destination) {
        (Some(project), Ok(cluster)) => (project, cluster),
        (None, _) => return refused("no project".to_owned()),
        (Some(_), Err(error)) => return refused(error.to_string()),
    };
    let namespace = &scenario.app.destination.namespace;
    if !destination::permitted(project, cluster, namespace, std::slice::from_ref(&**cluster)) {
        return refused("the project does not permit the destination".to_owned());
    }
    let account = match (index.mode, &governed.derived_account) {
        (ImpersonationMode::Off | ImpersonationMode::Audit, _) => None,
        (ImpersonationMode::Enforce, Ok(derived)) => derived.account.as_ref(),
        (ImpersonationMode::Enforce, Err(error)) => return refused(error.public_message()),
    };
    let user = account.map(|account| account.username());
    let missing = account.is_some_and(|account| {
        let name = format!("{}/{}", account.namespace, account.name);
        scenario
            .existing
            .as_ref()
            .is_some_and(|existing| !existing.contains(&name))
    });
    if missing {
        let message = "forbidden".to_owned();
        return Outcome::ClusterRefused { user, message };
    }
    Outcome::Done { user }
}
