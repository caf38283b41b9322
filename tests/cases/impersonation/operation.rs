//! What a tool that acts for an Application does, and what it must come to.

use serde::Deserialize;
use tollgate_config::ImpersonationMode;
use tollgate_config::ServiceAccountSemantics;
use tollgate_policy::applications::ENFORCED_KEY;
use tollgate_policy::impersonate::service_account::ImpersonationRules;
use tollgate_state::destination;

use super::scene::Scene;
use super::{contains, gateway, told};
use crate::suite::same;

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Operation {
    Sync,
    ServerSideDiff,
    ApiServerLiveOperations,
    CascadeDelete,
    SyncE2e,
}

/// A request into the Application's cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    Read,
    Apply,
    DryRun,
    Delete,
}

impl Operation {
    /// The requests it is made of.
    fn acts(self) -> &'static [Act] {
        match self {
            // As the controller's engine does: it reads what there is, tries, applies, and
            // compares what there is then.
            Self::Sync | Self::SyncE2e => &[Act::Read, Act::DryRun, Act::Apply, Act::Read],
            Self::ServerSideDiff => &[Act::Read, Act::DryRun],
            Self::ApiServerLiveOperations => &[Act::Read, Act::Apply, Act::Delete],
            Self::CascadeDelete => &[Act::Delete],
        }
    }
}

/// What came of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The cluster did it; it was told of this user, if of any.
    Done { user: Option<String> },
    /// The cluster refused it.
    ClusterRefused { user: Option<String>, message: String },
    /// The gateway refused it, and the cluster saw nothing.
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
    /// The control plane's own affair; only where nothing is deleted.
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
    /// What was synced cannot be compared any more.
    Unknown,
}

/// How an operation ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Done,
    Refused,
    /// The control plane does it without the cluster; a request has no part in it.
    Untouched,
}

impl Expected {
    /// That it is refused, for this reason.
    pub(super) fn refused(error_class: Option<String>, error_contains: Option<String>) -> Self {
        Self {
            ok: Some(false),
            error_class,
            error_contains,
            ..Self::default()
        }
    }

    /// Whether the control plane comes to this end without the cluster.
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
        let message = told(outcome);
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
                    return Err(format!("`{user}` cannot act where nothing is done"));
                }
            }
            (end, outcome) => return Err(format!("expected {end:?}, observed {outcome:?}")),
        }
        if self.finalizers_removed.is_some() && end != End::Untouched {
            return Err("finalizers are the control plane's, not a request's".to_owned());
        }
        for part in [&self.message_contains, &self.error_contains].into_iter().flatten() {
            contains(&message, part)?;
        }
        Ok(())
    }
}

/// Runs an operation by the index alone, then through a gateway.
pub(super) fn check(
    operation: Operation,
    scene: &Scene,
    expected: &Expected,
    semantics: ServiceAccountSemantics,
) -> Result<(), String> {
    let mut scene = scene.clone();
    if operation == Operation::CascadeDelete {
        // Argo CD does not ask whether accounts are enforced here; that is what
        // somebody says who wants the same of this gateway.
        if semantics == ServiceAccountSemantics::Argocd {
            scene.settings.insert(ENFORCED_KEY.to_owned(), "false".to_owned());
        }
    }
    by_index(&scene, expected, semantics).map_err(|error| format!("index: {error}"))?;
    let runtime = tokio::runtime::Runtime::new().map_err(|error| error.to_string())?;
    let own = scene.cluster.as_ref().map(|cluster| cluster.server.clone());
    let outcomes = runtime.block_on(gateway::run(&scene, operation.acts(), semantics))?;
    let mut of_patched = None;
    for (act, server, outcome) in outcomes.acts {
        // The text names the server, which is another there.
        let outcome = renamed(outcome, &server, own.as_deref());
        let check = if scene.patched.is_some() {
            done(&outcome)
        } else {
            expected.check(&outcome)
        };
        check.map_err(|error| format!("{act:?}: {error}"))?;
    }
    for (act, server, outcome) in outcomes.patched {
        let outcome = renamed(outcome, &server, own.as_deref());
        expected
            .check(&outcome)
            .map_err(|error| format!("{act:?} after the change: {error}"))?;
        of_patched = Some(());
    }
    same(&scene.patched.is_some(), &of_patched.is_some())
}

/// Before a project is changed everything is well.
fn done(outcome: &Outcome) -> Result<(), String> {
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

/// What the index says, with the servers as the case has them.
fn by_index(scene: &Scene, expected: &Expected, semantics: ServiceAccountSemantics) -> Result<(), String> {
    let outcome = outcome(scene, semantics);
    let Some(patched) = &scene.patched else {
        if let Some(class) = &expected.error_class {
            let found = scene
                .governed(&ImpersonationRules::new(semantics))
                .derived_account
                .as_ref()
                .err()
                .map(super::scene::class);
            same(&Some(class.as_str()), &found)?;
        }
        return expected.check(&outcome);
    };
    done(&outcome)?;
    let mut after = scene.clone();
    after.destinations.clone_from(patched);
    expected.check(&self::outcome(&after, semantics))
}

fn outcome(scene: &Scene, semantics: ServiceAccountSemantics) -> Outcome {
    let rules = ImpersonationRules::new(semantics);
    let index = scene.index(&rules);
    let governed = scene.governed(&rules);
    let refused = |message: String| Outcome::GatewayRefused { message };
    let (project, cluster) = match (&governed.project, &governed.destination) {
        (Some(project), Ok(cluster)) => (project, cluster),
        (None, _) => return refused("no project".to_owned()),
        (Some(_), Err(error)) => return refused(error.to_string()),
    };
    let namespace = &scene.app.destination.namespace;
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
        scene
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
