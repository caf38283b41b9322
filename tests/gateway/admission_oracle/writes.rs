//! The writes of a sequence, and how a random one is chosen. A write is data: it names an actor and
//! what they try, and does nothing where that makes no sense in the world it meets.

use serde_json::{Value, json};

use super::objects::{IN_CLUSTER, Kind, SetSpec, application, field, object, project, set_claim, set_spec};
use super::rights::{ACCOUNTS, USERS};
use super::world::{Settings, World};

pub(super) type Target = (Kind, &'static str);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Write {
    /// Somebody with every right in Kubernetes.
    Kubectl {
        user: &'static str,
        target: Target,
        change: Change,
    },
    /// Somebody by argocd-server, past the gateway.
    Server {
        user: &'static str,
        target: Target,
        change: Change,
    },
    /// Somebody who changes an object of an Application by argocd-server, through the gateway.
    Resource {
        user: &'static str,
        parent: &'static str,
        child: Target,
        change: Change,
    },
    /// The application controller, from the Git repository of an Application.
    Git {
        parent: &'static str,
        target: Target,
        change: Change,
    },
    /// The application controller, from somebody's own manifests.
    Local {
        user: &'static str,
        parent: &'static str,
        target: Target,
        change: Change,
        claim: LocalClaim,
        by_kubectl: bool,
    },
    /// The application controller deletes what an Application has and Git does not.
    Prune { parent: &'static str, target: Target },
    /// Somebody by the gateway's own API.
    Tollgate {
        user: &'static str,
        set: &'static str,
        spec: SetSpec,
    },
    /// The ApplicationSet controller makes the Applications of a set what they should be.
    Reconcile { set: &'static str },
    /// The garbage collector.
    Collect,
    /// The application controller says how an Application is, and heeds a refresh.
    Compare { application: &'static str },
    /// The application controller starts or ends the operation of an Application.
    Progress { application: &'static str },
    /// The application controller syncs an Application by itself.
    Automate { application: &'static str },
}

/// The tracking id in a local manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LocalClaim {
    /// As it is stored.
    Kept,
    /// Of the Application that is synced.
    Own,
    /// Of this Application.
    Forged(&'static str),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Creates it in this project, or changes its specification a little.
    Apply(&'static str),
    Move(&'static str),
    Label,
    Skip,
    Refresh,
    Finalizer,
    /// An owner that does not exist.
    Orphan,
    Claim(&'static str),
    Operation(Operation),
    State(State),
    Set(SetSpec),
    /// The statements of another set.
    Statements(&'static str),
    Delete,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Empty,
    Sync,
    Revision,
    Manifests,
    Source,
    AsSomebodyElse,
    Automated,
    End,
}

/// What the status says of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    RunningManifests,
    Running,
    Terminating,
}

const PARENTS: [&str; 4] = ["cart", "root", "prod-root", "theirs"];
const APPLICATIONS: [&str; 11] = [
    "theirs",
    "solo",
    "cart-child",
    "root-child",
    "alice-set-one",
    "carol-set-one",
    "apps-one",
    "platform-set-one",
    "root-set-one",
    "evil",
    "evil-set-one",
];
const SETS: [&str; 6] = ["apps", "root-set", "platform-set", "alice-set", "carol-set", "evil-set"];
const PROJECTS: [&str; 3] = ["team-a", "team-b", "shop"];
const IN_PROJECTS: [&str; 4] = ["shop", "team-a", "other", "platform"];

/// Random numbers (SplitMix64) for one sequence. Most of its writes are about one set and one
/// Application, so that they build on each other.
pub(super) struct Dice {
    state: u64,
    /// The set of the last write, if it was about one.
    last_set: Option<&'static str>,
    set: &'static str,
    application: &'static str,
}

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        let mut dice = Self {
            state: seed,
            last_set: None,
            set: SETS[0],
            application: APPLICATIONS[0],
        };
        dice.set = dice.one_of(&SETS);
        dice.application = dice.one_of(&APPLICATIONS);
        dice
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(bound).unwrap()).unwrap()
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    fn is_one_in(&mut self, bound: usize) -> bool {
        self.below(bound) == 0
    }

    pub(super) fn settings(&mut self) -> Settings {
        Settings {
            children: !self.is_one_in(3),
            by_label: self.is_one_in(3),
            impersonation: self.is_one_in(3),
            authors: !self.is_one_in(3),
            strict_revisions: !self.is_one_in(3),
        }
    }

    pub(super) fn write(&mut self) -> Write {
        // What is done to a set shows only in what is made of it.
        let follows = self.last_set.filter(|_| self.is_one_in(2));
        let write = match follows {
            Some(set) if self.is_one_in(4) => Write::Kubectl {
                user: self.one_of(&["alice", "admin"]),
                target: (Kind::ApplicationSet, set),
                change: Change::Label,
            },
            Some(set) => Write::Reconcile { set },
            None => self.unrelated(),
        };
        self.last_set = match write {
            Write::Kubectl { target, .. } | Write::Server { target, .. } => Some(target),
            Write::Git { target, .. } | Write::Local { target, .. } => Some(target),
            _ => None,
        }
        .filter(|(kind, _)| *kind == Kind::ApplicationSet)
        .map(|(_, name)| name);
        write
    }

    fn unrelated(&mut self) -> Write {
        match self.below(30) {
            0..9 => {
                let target = self.target();
                Write::Kubectl {
                    user: self.user(&USERS),
                    target,
                    change: self.change(target.0),
                }
            }
            9..13 => {
                let target = self.target();
                Write::Server {
                    user: self.user(&ACCOUNTS),
                    target,
                    change: self.change(target.0),
                }
            }
            13 => {
                let child = self.one_of(&[
                    (Kind::Application, "cart-child"),
                    (Kind::Application, "root-child"),
                    (Kind::ApplicationSet, "apps"),
                ]);
                let user = self.one_of(&["patcher", "patcher", "editor", "admin"]);
                Write::Resource {
                    user,
                    parent: self.one_of(&PARENTS),
                    child,
                    change: self.change(child.0),
                }
            }
            14..17 => {
                let target = self.target();
                Write::Git {
                    parent: self.one_of(&PARENTS),
                    target,
                    change: self.change(target.0),
                }
            }
            17 | 18 => {
                let target = self.target();
                let claim = match self.below(4) {
                    0 => LocalClaim::Own,
                    1 => LocalClaim::Kept,
                    _ => LocalClaim::Forged(self.one_of(&PARENTS)),
                };
                Write::Local {
                    user: self.one_of(&["over", "alice", "admin"]),
                    parent: self.one_of(&["cart", "cart", "root"]),
                    target,
                    change: self.change(target.0),
                    claim,
                    by_kubectl: self.is_one_in(2),
                }
            }
            19 => Write::Prune {
                parent: self.one_of(&PARENTS),
                target: self.target(),
            },
            20 => Write::Tollgate {
                user: self.user(&ACCOUNTS),
                set: self.set(),
                spec: self.set_spec(),
            },
            21..26 => Write::Reconcile { set: self.set() },
            26 => Write::Collect,
            27 => Write::Progress {
                application: self.application(),
            },
            28 => Write::Compare {
                application: self.application(),
            },
            _ => Write::Automate {
                application: self.application(),
            },
        }
    }

    /// Somebody; every second time somebody who may do much.
    fn user(&mut self, all: &[&'static str]) -> &'static str {
        match self.is_one_in(2) {
            true => self.one_of(&["alice", "carol", "storer", "editor", "admin"]),
            false => self.one_of(all),
        }
    }

    fn set(&mut self) -> &'static str {
        match self.is_one_in(4) {
            true => self.one_of(&SETS),
            false => self.set,
        }
    }

    fn application(&mut self) -> &'static str {
        match self.is_one_in(3) {
            true => self.one_of(&APPLICATIONS),
            false => self.application,
        }
    }

    fn target(&mut self) -> Target {
        match self.below(10) {
            0..4 => (Kind::Application, self.application()),
            4..9 => (Kind::ApplicationSet, self.set()),
            _ => (Kind::AppProject, self.one_of(&PROJECTS)),
        }
    }

    fn change(&mut self, kind: Kind) -> Change {
        match kind {
            Kind::AppProject if self.is_one_in(4) => Change::Delete,
            Kind::AppProject => Change::Apply("shop"),
            Kind::ApplicationSet => match self.below(12) {
                0..7 => Change::Set(self.set_spec()),
                7 | 8 => Change::Label,
                9 => Change::Claim(self.one_of(&PARENTS)),
                10 => Change::Statements(self.one_of(&SETS)),
                _ => Change::Delete,
            },
            Kind::Application => match self.below(16) {
                0..3 => Change::Apply(self.one_of(&IN_PROJECTS)),
                3 => Change::Move(self.one_of(&IN_PROJECTS)),
                4 => self.one_of(&[Change::Label, Change::Skip, Change::Finalizer, Change::Refresh]),
                5 => Change::Orphan,
                6 => Change::Claim(self.one_of(&PARENTS)),
                7..12 => Change::Operation(self.one_of(&[
                    Operation::Empty,
                    Operation::Empty,
                    Operation::Sync,
                    Operation::Revision,
                    Operation::Manifests,
                    Operation::Source,
                    Operation::AsSomebodyElse,
                    Operation::Automated,
                    Operation::End,
                ])),
                12..14 => Change::State(self.one_of(&[State::RunningManifests, State::Running, State::Terminating])),
                _ => Change::Delete,
            },
        }
    }

    fn set_spec(&mut self) -> SetSpec {
        let project = self.one_of(&["team-a", "other", "platform"]);
        match self.below(12) {
            0 | 1 => SetSpec::Literal("shop"),
            2 => SetSpec::Literal(project),
            3 => SetSpec::Templated(self.one_of(&IN_PROJECTS)),
            4 => SetSpec::Revised,
            5 => SetSpec::Empty,
            6 => SetSpec::Overridden(project),
            7 => SetSpec::Patched(project),
            8 => SetSpec::Operation,
            9 => SetSpec::Claim(self.one_of(&PARENTS)),
            10 => SetSpec::Skip,
            _ => SetSpec::Named(self.one_of(&["theirs", "solo"])),
        }
    }
}

/// An object after a change. `None` if the change makes no sense for it.
#[expect(
    clippy::option_option,
    reason = "the outer one says whether there is a change, the inner one whether the object stays"
)]
pub(super) fn changed(world: &World, (kind, name): Target, change: Change) -> Option<Option<Value>> {
    let before = world.object(kind, name);
    if change == Change::Delete {
        return before.map(|_| None);
    }
    let mut after = match (before, kind) {
        (Some(before), _) => before.clone(),
        (None, Kind::AppProject) => project(name),
        (None, Kind::ApplicationSet) => object(kind, name, &set_spec(name, SetSpec::Literal("shop"))),
        (None, Kind::Application) => {
            let in_project = match change {
                Change::Apply(project) | Change::Move(project) => project,
                _ => "shop",
            };
            application(name, in_project, IN_CLUSTER)
        }
    };
    let metadata = &mut after["metadata"];
    match change {
        Change::Apply(_) => match kind {
            Kind::AppProject => after["spec"]["description"] = json!("changed"),
            Kind::ApplicationSet => return None,
            Kind::Application if before.is_some() => after["spec"]["source"]["path"] = json!("elsewhere"),
            Kind::Application => {}
        },
        Change::Move(project) => after["spec"]["project"] = json!(project),
        Change::Label => metadata["labels"]["team"] = json!("x"),
        Change::Skip => metadata["annotations"]["argocd.argoproj.io/skip-reconcile"] = json!("true"),
        Change::Refresh => metadata["annotations"]["argocd.argoproj.io/refresh"] = json!("normal"),
        Change::Finalizer => metadata["finalizers"] = json!(["resources-finalizer.argocd.argoproj.io"]),
        Change::Orphan => {
            metadata["ownerReferences"] = json!([{
                "apiVersion": "argoproj.io/v1alpha1", "kind": "ApplicationSet", "name": "gone", "uid": "uid-of-nothing",
            }]);
        }
        Change::Claim(parent) => set_claim(world.settings.by_label, &mut after, parent),
        Change::Operation(operation) => {
            let value = operation.value();
            if value.is_null() && field(before, "/operation").is_none() {
                return None;
            }
            after["operation"] = value;
        }
        Change::State(state) => {
            // Only the phase of an operation that runs, or all of one that does not.
            let runs = state == State::Terminating && after["status"]["operationState"].is_object();
            match runs {
                true => after["status"]["operationState"]["phase"] = json!("Terminating"),
                false => after["status"]["operationState"] = state.value(),
            }
        }
        Change::Set(spec) => after["spec"] = set_spec(name, spec),
        Change::Statements(other) => {
            let annotations = &world.object(kind, other)?["metadata"]["annotations"];
            for (key, value) in annotations
                .as_object()?
                .iter()
                .filter(|(key, _)| key.starts_with("tollgate.dev/"))
            {
                metadata["annotations"][key] = value.clone();
            }
        }
        Change::Delete => return None,
    }
    Some(Some(after))
}

/// A manifest as operations have them.
pub(super) const MANIFEST: &str = r#"{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "own"}}"#;

impl Operation {
    fn value(self) -> Value {
        match self {
            Self::Empty => json!({}),
            Self::Sync => json!({"sync": {}}),
            Self::Revision => json!({"sync": {"revision": "another-branch"}}),
            Self::Manifests => json!({"sync": {"manifests": [MANIFEST]}}),
            Self::Source => json!({"sync": {"source": {"repoURL": "https://git.invalid/evil", "path": "."}}}),
            Self::AsSomebodyElse => json!({"initiatedBy": {"username": "boss"}, "sync": {}}),
            Self::Automated => json!({"initiatedBy": {"automated": true}, "sync": {}}),
            Self::End => Value::Null,
        }
    }
}

impl State {
    fn value(self) -> Value {
        let sync = match self {
            Self::RunningManifests => json!({"manifests": [MANIFEST]}),
            Self::Running | Self::Terminating => json!({}),
        };
        let phase = if self == Self::Terminating {
            "Terminating"
        } else {
            "Running"
        };
        json!({"phase": phase, "startedAt": "2026-01-01T00:00:00Z", "operation": {"sync": sync}})
    }
}
