//! Sequences that random ones have come upon, or that somebody has thought of, one for each kind of
//! hole, and beside them what must still be possible.

use super::objects::{Kind, SetSpec};
use super::rights::PROD_ACCOUNT;
use super::world::Settings;
use super::writes::{Change, LocalClaim, Operation, State, Write};

const APPLICATION: fn(&'static str) -> (Kind, &'static str) = |name| (Kind::Application, name);
const SET: fn(&'static str) -> (Kind, &'static str) = |name| (Kind::ApplicationSet, name);

/// Everything is on but impersonation and tracking by label.
const SETTINGS: Settings = Settings {
    children: true,
    by_label: false,
    impersonation: false,
    authors: true,
    strict_revisions: true,
};

/// What is attacked, the settings, and the writes.
pub(super) type Known = (&'static str, Settings, Vec<Write>);

fn kubectl(user: &'static str, target: (Kind, &'static str), change: Change) -> Write {
    Write::Kubectl { user, target, change }
}

fn server(user: &'static str, target: (Kind, &'static str), change: Change) -> Write {
    Write::Server { user, target, change }
}

fn git(parent: &'static str, target: (Kind, &'static str), change: Change) -> Write {
    Write::Git { parent, target, change }
}

fn reconcile(set: &'static str) -> Write {
    Write::Reconcile { set }
}

fn local(target: (Kind, &'static str), change: Change, claim: LocalClaim) -> Write {
    Write::Local {
        user: "over",
        parent: "cart",
        target,
        change,
        claim,
        by_kubectl: false,
    }
}

/// Attacks: regardless of which of them is stored, nobody gets what they may not have.
pub(super) fn attacks() -> Vec<Known> {
    let without_authors = Settings {
        authors: false,
        ..SETTINGS
    };
    let by_label = Settings {
        by_label: true,
        ..SETTINGS
    };
    let impersonating = Settings {
        impersonation: true,
        ..SETTINGS
    };
    let shop = Change::Set(SetSpec::Literal("shop"));
    let take_over = git("cart", SET("platform-set"), shop);
    let deployed = git("cart", SET("root-set"), shop);
    let team = SetSpec::Overridden("team-a");
    let running = Change::State(State::RunningManifests);
    let operation = |operation: Operation| Change::Operation(operation);
    let prune = Write::Prune {
        parent: "cart",
        target: SET("platform-set"),
    };
    vec![
        (
            "a parent takes over a set with a templated project",
            SETTINGS,
            vec![take_over, prune, Write::Collect],
        ),
        (
            "the same where another parent has deployed it",
            SETTINGS,
            vec![deployed],
        ),
        (
            "the same as a service account",
            impersonating,
            vec![take_over, deployed],
        ),
        (
            "a parent takes over a set that is created again, with Applications of the earlier one",
            Settings {
                authors: false,
                ..impersonating
            },
            vec![
                kubectl("alice", SET("apps"), Change::Delete),
                kubectl("ann", SET("apps"), Change::Set(SetSpec::Templated("platform"))),
                kubectl("admin", SET("apps"), Change::Label),
                git("cart", SET("apps"), Change::Label),
            ],
        ),
        (
            "an edit of a set generates with the rights of its parent",
            without_authors,
            vec![
                kubectl("carol", SET("apps"), Change::Set(SetSpec::Templated("team-a"))),
                reconcile("apps"),
            ],
        ),
        (
            "an edit by argocd-server does",
            SETTINGS,
            vec![server("storer", SET("apps"), Change::Set(team)), reconcile("apps")],
        ),
        (
            "a set by somebody who says that it has a parent",
            by_label,
            vec![
                Write::Tollgate {
                    user: "alice",
                    set: "evil-set",
                    spec: SetSpec::Literal("shop"),
                },
                kubectl("alice", SET("evil-set"), Change::Claim("root")),
                kubectl("alice", SET("evil-set"), Change::Set(team)),
                reconcile("evil-set"),
            ],
        ),
        (
            "an empty operation, after one that is said to run",
            SETTINGS,
            vec![
                kubectl("editor", APPLICATION("solo"), running),
                kubectl("editor", APPLICATION("solo"), operation(Operation::Empty)),
            ],
        ),
        (
            "a status ends an operation",
            SETTINGS,
            vec![
                Write::Automate { application: "solo" },
                Write::Progress { application: "solo" },
                kubectl("editor", APPLICATION("solo"), Change::State(State::Terminating)),
            ],
        ),
        (
            "an empty operation by somebody without any right",
            SETTINGS,
            vec![kubectl("nobody", APPLICATION("theirs"), operation(Operation::Empty))],
        ),
        (
            "a local manifest speaks for another Application",
            SETTINGS,
            vec![
                local(APPLICATION("evil"), Change::Apply("team-a"), LocalClaim::Forged("root")),
                local(
                    (Kind::AppProject, "team-b"),
                    Change::Apply("shop"),
                    LocalClaim::Forged("root"),
                ),
                local(
                    SET("evil-set"),
                    Change::Set(SetSpec::Literal("platform")),
                    LocalClaim::Forged("root"),
                ),
            ],
        ),
        (
            "a copy of anybody's Application, with an operation",
            SETTINGS,
            vec![local(
                APPLICATION("theirs"),
                operation(Operation::Manifests),
                LocalClaim::Kept,
            )],
        ),
        (
            "a copy of anybody's Application, with metadata",
            SETTINGS,
            vec![
                local(APPLICATION("root-child"), Change::Skip, LocalClaim::Kept),
                local(APPLICATION("root-child"), Change::Finalizer, LocalClaim::Kept),
            ],
        ),
        (
            "a manifest ends the operation of anybody's Application",
            SETTINGS,
            vec![
                Write::Automate { application: "theirs" },
                Write::Progress { application: "theirs" },
                local(
                    APPLICATION("theirs"),
                    Change::State(State::Terminating),
                    LocalClaim::Kept,
                ),
            ],
        ),
        (
            "a patch of the template starts an operation later",
            SETTINGS,
            vec![
                kubectl("carol", SET("carol-set"), Change::Set(SetSpec::Operation)),
                reconcile("carol-set"),
            ],
        ),
        (
            "a label makes somebody the author of another's set",
            SETTINGS,
            vec![
                server("storer", SET("evil-set"), Change::Set(team)),
                kubectl("admin", SET("evil-set"), Change::Label),
                reconcile("evil-set"),
            ],
        ),
        (
            "a service account of another cluster's name",
            impersonating,
            vec![
                kubectl(PROD_ACCOUNT, APPLICATION("root-child"), Change::Claim("prod-root")),
                kubectl(PROD_ACCOUNT, SET("evil-set"), Change::Claim("prod-root")),
            ],
        ),
        (
            "argocd-server writes an Application for who may write its parent",
            SETTINGS,
            ["patcher", "editor"]
                .into_iter()
                .flat_map(|user| {
                    [Change::Move("team-a"), operation(Operation::Manifests), Change::Delete].map(|change| {
                        Write::Resource {
                            user,
                            parent: "cart",
                            child: APPLICATION("cart-child"),
                            change,
                        }
                    })
                })
                .collect(),
        ),
        (
            "a sync of another revision, in somebody else's name",
            SETTINGS,
            vec![
                kubectl("syncer", APPLICATION("solo"), operation(Operation::Revision)),
                kubectl("syncer", APPLICATION("solo"), operation(Operation::AsSomebodyElse)),
                kubectl("syncer", APPLICATION("solo"), operation(Operation::Automated)),
            ],
        ),
        (
            "a template gives an Application to a parent",
            SETTINGS,
            vec![
                server("storer", SET("alice-set"), Change::Set(SetSpec::Claim("root"))),
                reconcile("alice-set"),
                Write::Prune {
                    parent: "root",
                    target: APPLICATION("alice-set-one"),
                },
            ],
        ),
        (
            "an owner that does not exist has an Application deleted",
            SETTINGS,
            vec![kubectl("editor", APPLICATION("solo"), Change::Orphan), Write::Collect],
        ),
        (
            "a claim has an Application deleted",
            SETTINGS,
            vec![
                kubectl("editor", APPLICATION("solo"), Change::Claim("cart")),
                Write::Prune {
                    parent: "cart",
                    target: APPLICATION("solo"),
                },
            ],
        ),
        (
            "the statement of another set",
            SETTINGS,
            vec![
                server("storer", SET("evil-set"), Change::Set(team)),
                kubectl("carol", SET("evil-set"), Change::Statements("platform-set")),
                reconcile("evil-set"),
            ],
        ),
    ]
}

/// What everybody must be able to do: each write of each sequence is stored.
pub(super) fn ordinary() -> Vec<Known> {
    let impersonating = Settings {
        impersonation: true,
        ..SETTINGS
    };
    let deploy = vec![
        git("root", APPLICATION("evil"), Change::Apply("team-a")),
        git("root", APPLICATION("evil"), Change::Move("platform")),
        git("root", (Kind::AppProject, "team-b"), Change::Apply("shop")),
        git("root", SET("root-set"), Change::Set(SetSpec::Templated("team-a"))),
        reconcile("root-set"),
        git("cart", APPLICATION("cart-child"), Change::Skip),
        Write::Prune {
            parent: "cart",
            target: APPLICATION("cart-child"),
        },
    ];
    vec![
        ("parents deploy, and prune", SETTINGS, deploy.clone()),
        ("parents deploy as service accounts", impersonating, deploy),
        (
            "people write what is theirs",
            SETTINGS,
            vec![
                kubectl("alice", APPLICATION("evil"), Change::Apply("shop")),
                kubectl("alice", APPLICATION("evil"), Change::Operation(Operation::Manifests)),
                Write::Progress { application: "evil" },
                Write::Progress { application: "evil" },
                kubectl("syncer", APPLICATION("evil"), Change::Operation(Operation::Sync)),
                kubectl("syncer", APPLICATION("evil"), Change::Operation(Operation::End)),
                kubectl("editor", APPLICATION("evil"), Change::Skip),
                kubectl("carol", APPLICATION("evil"), Change::Delete),
                kubectl("ann", (Kind::AppProject, "team-a"), Change::Apply("team-a")),
            ],
        ),
        (
            "people write sets, which generate",
            SETTINGS,
            vec![
                kubectl("carol", SET("carol-set"), Change::Set(SetSpec::Revised)),
                reconcile("carol-set"),
                kubectl("alice", SET("evil-set"), Change::Set(SetSpec::Literal("shop"))),
                reconcile("evil-set"),
                kubectl("alice", SET("evil-set"), Change::Label),
                kubectl("alice", SET("evil-set"), Change::Delete),
                Write::Collect,
                Write::Tollgate {
                    user: "alice",
                    set: "alice-set",
                    spec: SetSpec::Revised,
                },
                reconcile("alice-set"),
            ],
        ),
        (
            "people sync their own manifests",
            SETTINGS,
            vec![
                local(APPLICATION("cart-child"), Change::Skip, LocalClaim::Own),
                local(APPLICATION("evil"), Change::Apply("shop"), LocalClaim::Own),
            ],
        ),
        (
            "components do their work",
            SETTINGS,
            vec![
                kubectl("editor", APPLICATION("solo"), Change::Refresh),
                Write::Compare { application: "solo" },
                Write::Automate { application: "solo" },
                Write::Progress { application: "solo" },
                Write::Compare { application: "solo" },
                Write::Progress { application: "solo" },
                server("alice", APPLICATION("solo"), Change::Operation(Operation::Sync)),
                Write::Progress { application: "solo" },
                Write::Progress { application: "solo" },
                server("storer", SET("alice-set"), Change::Set(SetSpec::Revised)),
            ],
        ),
    ]
}
