//! Random policies, projects and Applications: a plan is approved only if the caller could make
//! every change directly. The rules for that are implemented a second time here.

use std::collections::BTreeSet;

use proptest::prelude::{Just, Strategy, any, prop_oneof};
use proptest::test_runner::{Config, TestCaseError, TestError, TestRunner};
use proptest::{collection, sample};

use super::*;
use tollgate_applicationset::ApplicationsSync;
use tollgate_applicationset::plan::Action;

mod objects;

const PROJECTS: [&str; 3] = ["p0", "p1", "p2"];
const NAMES: [&str; 3] = ["a", "b", "ab"];
const ACTIONS: [&str; 4] = ["create", "update", "delete", "*"];
const OBJECTS: [&str; 13] = [
    "*",
    "*/*",
    "p0/*",
    "p1/*",
    "p2/*",
    "p0/a",
    "p1/ab",
    "p0/a*",
    "*/b",
    "p0/team/*",
    "p1/team/a",
    "*/ab",
    "p2/b",
];
const REPOSITORIES: [&str; 3] = [
    "https://git.example.org/r0",
    "https://git.example.org/r1",
    "https://other.example.org/r",
];
const SERVERS: [&str; 2] = ["https://c0.example.org", "https://c1.example.org"];
const CASES: u32 = 400;

/// A row of `policy.csv` about Applications.
#[derive(Clone, Debug)]
struct Row {
    action: &'static str,
    object: &'static str,
    allows: bool,
}

/// An entry of `sourceRepos`.
#[derive(Clone, Copy, Debug)]
enum SourcePattern {
    Anywhere,
    One(usize),
    Not(usize),
    /// Everything of the first host.
    Host,
}

/// A pattern that means everything, one thing, or everything else.
#[derive(Clone, Copy, Debug)]
enum Pattern {
    All,
    One(usize),
    Not(usize),
}

#[derive(Clone, Debug)]
struct ModelProject {
    from: Vec<SourcePattern>,
    /// Server and namespace.
    to: Vec<(Pattern, Pattern)>,
    takes_team: bool,
}

/// The destination of an Application.
#[derive(Clone, Copy, Debug, PartialEq)]
enum ModelDestination {
    Name(usize),
    Server(usize),
    Nowhere,
    Unknown,
    Both(usize),
}

#[derive(Clone, Debug)]
struct ModelApplication {
    name: usize,
    project: usize,
    repositories: Vec<usize>,
    destination: ModelDestination,
    namespace: usize,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum ModelOwner {
    Own,
    Another,
}

#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "switches of a model, each by itself")]
struct Model {
    rows: Vec<Row>,
    projects: Vec<ModelProject>,
    in_team: bool,
    is_stored: bool,
    templated: bool,
    /// Whether the set only creates Applications and leaves existing ones unchanged.
    holds_back: bool,
    existing: Vec<(ModelApplication, ModelOwner)>,
    generated: Vec<ModelApplication>,
}

fn index(most: usize) -> impl Strategy<Value = usize> + Clone {
    0..most
}

fn which(most: usize) -> impl Strategy<Value = Pattern> + Clone {
    prop_oneof![3 => Just(Pattern::All), 2 => index(most).prop_map(Pattern::One), 1 => index(most).prop_map(Pattern::Not)]
}

fn project() -> impl Strategy<Value = ModelProject> {
    let from = prop_oneof![
        2 => Just(SourcePattern::Anywhere),
        1 => Just(SourcePattern::Host),
        2 => index(3).prop_map(SourcePattern::One),
        1 => index(3).prop_map(SourcePattern::Not),
    ];
    let from = collection::vec(from, 0..3);
    let to = collection::vec((which(2), which(2)), 0..3);
    let any_one = (from, to, any::<bool>()).prop_map(|(from, to, takes_team)| ModelProject { from, to, takes_team });
    let open = ModelProject {
        from: vec![SourcePattern::Anywhere],
        to: vec![(Pattern::All, Pattern::All)],
        takes_team: true,
    };
    prop_oneof![Just(open), any_one]
}

/// Its project or its destination may not exist.
fn model_application() -> impl Strategy<Value = ModelApplication> + Clone {
    let destination = prop_oneof![
        5 => index(2).prop_map(ModelDestination::Name),
        5 => index(2).prop_map(ModelDestination::Server),
        1 => Just(ModelDestination::Nowhere),
        1 => Just(ModelDestination::Unknown),
        1 => index(2).prop_map(ModelDestination::Both),
    ];
    // Number 3 is a project that does not exist.
    let project = prop_oneof![12 => index(3), 1 => Just(3_usize)];
    let repositories = collection::vec(index(3), 1..3);
    (index(3), project, repositories, destination, index(2)).prop_map(
        |(name, project, repositories, destination, namespace)| ModelApplication {
            name,
            project,
            repositories,
            destination,
            namespace,
        },
    )
}

fn model() -> impl Strategy<Value = Model> {
    let row = (sample::select(&ACTIONS[..]), sample::select(&OBJECTS[..]), 0..5_u8);
    let row = row.prop_map(|(action, object, effect)| Row {
        action,
        object,
        allows: effect > 0,
    });
    let whose = prop_oneof![4 => Just(ModelOwner::Own), 1 => Just(ModelOwner::Another)];
    let everything = Row {
        action: "*",
        object: "*",
        allows: true,
    };
    let row = prop_oneof![1 => Just(everything), 4 => row];
    (
        collection::vec(row, 0..7),
        collection::vec(project(), 3),
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
        collection::vec((model_application(), whose), 0..3),
        collection::vec(model_application(), 0..4),
    )
        .prop_map(
            |(rows, projects, in_team, is_stored, templated, holds_back, existing, generated)| {
                let mut seen = BTreeSet::new();
                let once = |(application, _): &(ModelApplication, ModelOwner)| seen.insert(application.name);
                let existing = existing.into_iter().filter(once).collect();
                Model {
                    rows,
                    projects,
                    in_team,
                    is_stored,
                    templated,
                    holds_back,
                    existing,
                    generated,
                }
            },
        )
}

// The rules of direct writes, on the model alone.

fn star(pattern: &[u8], text: &[u8]) -> bool {
    match (pattern.split_first(), text.split_first()) {
        (None, None) => true,
        (Some((b'*', rest)), _) if star(rest, text) => true,
        (Some((b'*', _)), Some((_, more))) => star(pattern, more),
        (Some((one, rest)), Some((other, more))) => one == other && star(rest, more),
        (None, Some(_)) | (Some(_), None) => false,
    }
}

impl Model {
    fn namespace(&self) -> &'static str {
        if self.in_team { "team" } else { "argocd" }
    }

    fn object(&self, project: usize, name: usize) -> String {
        let project = PROJECTS.get(project).copied().unwrap_or("nope");
        match self.in_team {
            true => format!("{project}/team/{}", NAMES[name]),
            false => format!("{project}/{}", NAMES[name]),
        }
    }

    fn may(&self, action: &str, project: usize, name: usize) -> bool {
        let object = self.object(project, name);
        let fits = |row: &&Row| {
            star(row.action.as_bytes(), action.as_bytes()) && star(row.object.as_bytes(), object.as_bytes())
        };
        let fitting: Vec<&Row> = self.rows.iter().filter(fits).collect();
        !fitting.is_empty() && fitting.iter().all(|row| row.allows)
    }

    /// Whether a caller with every permission could store the Application.
    fn permits(&self, application: &ModelApplication) -> bool {
        let Some(project) = self.projects.get(application.project) else {
            return false;
        };
        let cluster = match application.destination {
            ModelDestination::Name(cluster) | ModelDestination::Server(cluster) => cluster,
            ModelDestination::Nowhere | ModelDestination::Unknown | ModelDestination::Both(_) => return false,
        };
        (!self.in_team || project.takes_team)
            && application
                .repositories
                .iter()
                .all(|repository| permits_source(&project.from, *repository))
            && permits_destination(&project.to, cluster, application.namespace)
    }

    fn could_create(&self, application: &ModelApplication) -> bool {
        let taken = self.existing.iter().any(|(other, _)| other.name == application.name);
        !taken && self.may("create", application.project, application.name) && self.permits(application)
    }

    fn could_update(&self, before: &ModelApplication, after: &ModelApplication) -> bool {
        let stays = before.project == after.project;
        self.may("update", before.project, before.name)
            && self.may("update", after.project, after.name)
            && (stays || self.may("create", after.project, after.name))
            && self.permits(after)
    }
}

fn permits_source(from: &[SourcePattern], repository: usize) -> bool {
    let mut listed = false;
    for entry in from {
        match entry {
            SourcePattern::Anywhere => listed = true,
            SourcePattern::Host => listed |= repository < 2,
            SourcePattern::One(one) => listed |= *one == repository,
            SourcePattern::Not(one) if *one == repository => return false,
            SourcePattern::Not(_) => listed = true,
        }
    }
    listed
}

impl Pattern {
    fn takes(self, one: usize) -> bool {
        match self {
            Self::All => true,
            Self::One(only) => only == one,
            Self::Not(other) => other != one,
        }
    }

    fn is_negated(self) -> bool {
        matches!(self, Self::Not(_))
    }
}

fn permits_destination(to: &[(Pattern, Pattern)], cluster: usize, namespace: usize) -> bool {
    let mut listed = false;
    for (server, of) in to {
        match (server.takes(cluster), of.takes(namespace)) {
            (true, true) => listed = true,
            (false, true) if server.is_negated() => return false,
            (true, false) if of.is_negated() => return false,
            (true | false, true | false) => {}
        }
    }
    listed
}

/// How many models were approved and refused.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    approved: usize,
    refused: usize,
}

fn authorize_model(model: &Model) -> (Fixture, Result<ApprovedPlan, Error>) {
    let mut fixture = Fixture::of(&model.state());
    fixture.settings.namespaces.push("team".to_owned());
    let operation = if model.is_stored {
        Operation::Upsert
    } else {
        Operation::Create
    };
    let generated = model
        .generated
        .iter()
        .map(|application| model.json(application))
        .collect();
    let outcome = fixture.authorize(operation, &model.set(), &model.existing(), generated);
    (fixture, outcome)
}

fn find<'a>(all: impl Iterator<Item = &'a ModelApplication>, name: &str) -> Option<&'a ModelApplication> {
    let mut all = all;
    all.find(|application| NAMES[application.name] == name)
}

/// Every change of an approved plan is one the caller could make directly.
fn check_approved(model: &Model, approved: &ApprovedPlan) -> Result<(), TestCaseError> {
    let wrong = |what: &str, name: &str| Err(TestCaseError::fail(format!("{what} of `{name}` was approved")));
    for change in &approved.plan().changes {
        let name = change.name.name.as_str();
        let before = find(model.existing.iter().map(|(application, _)| application), name);
        let after = find(model.generated.iter(), name);
        let may = match (change.action, before, after) {
            (Action::Create, None, Some(after)) => model.could_create(after),
            (Action::Update, Some(before), Some(after)) => model.could_update(before, after),
            (Action::Delete, Some(before), None) => model.may("delete", before.project, before.name),
            // Argo CD's controller may write what the set holds back.
            (Action::Keep, Some(before), Some(after)) => {
                model.json(before) == model.json(after) || (model.holds_back && model.could_update(before, after))
            }
            (Action::Keep, Some(before), None) => model.holds_back && model.may("delete", before.project, before.name),
            (Action::Create | Action::Update | Action::Delete | Action::Keep, _, _) => false,
        };
        let own = model.existing.iter().all(|(application, whose)| {
            NAMES[application.name] != name || (*whose == ModelOwner::Own && model.is_stored)
        });
        if !may || !own {
            return wrong(change.action.as_ref(), name);
        }
    }
    Ok(())
}

/// A new set is refused only for what the caller could not do directly.
fn check_refused(model: &Model, error: &Error) -> Result<(), TestCaseError> {
    let mut names = BTreeSet::new();
    let all = !model.generated.is_empty()
        && !model.is_stored
        && model
            .generated
            .iter()
            .all(|application| names.insert(application.name) && model.could_create(application));
    // The set's own project must accept it.
    let takes = !model.in_team || model.templated || model.projects[0].takes_team;
    match all && takes {
        true => Err(TestCaseError::fail(format!("refused: {error}"))),
        false => Ok(()),
    }
}

fn check(model: &Model, seen: &std::cell::Cell<Counts>) -> Result<(), TestCaseError> {
    let (_, outcome) = authorize_model(model);
    let mut now = seen.get();
    let verdict = match &outcome {
        Ok(approved) => {
            now.approved += usize::from(!approved.plan().changes.is_empty());
            check_approved(model, approved)
        }
        Err(error) => {
            now.refused += 1;
            check_refused(model, error)
        }
    };
    seen.set(now);
    verdict
}

#[test]
fn approved_plans_contain_only_changes_that_the_caller_could_make() {
    let seen = std::cell::Cell::default();
    let mut runner = TestRunner::new(Config {
        cases: CASES,
        failure_persistence: None,
        ..Config::default()
    });
    let outcome = runner.run(&model(), |model| check(&model, &seen));
    if let Err(error) = outcome {
        match error {
            TestError::Fail(reason, model) => panic!("{reason}\nsmallest: {model:#?}\n{}", model.state()),
            TestError::Abort(reason) => panic!("{reason}"),
        }
    }
    let Counts { approved, refused } = seen.get();
    assert!(
        approved >= 5 && refused >= 5,
        "too few outcomes of one kind: {:?}",
        seen.get()
    );
}

/// Counterexamples of the test above are shrunk. Here, an oracle that allows nothing gives one.
#[test]
fn a_counterexample_is_found_and_shrunk() {
    let mut runner = TestRunner::new(Config {
        cases: 2_000,
        failure_persistence: None,
        max_shrink_iters: 100_000,
        ..Config::default()
    });
    let outcome = runner.run(&model(), |model| {
        let (_, outcome) = authorize_model(&model);
        match outcome {
            Ok(approved) if !approved.plan().changes.is_empty() => Err(TestCaseError::fail("approved")),
            Ok(_) | Err(_) => Ok(()),
        }
    });
    let Err(TestError::Fail(_, model)) = outcome else {
        panic!("nothing was approved: {outcome:?}");
    };
    assert!(
        model.rows.len() <= 3 && model.generated.len() <= 1 && model.existing.len() <= 1,
        "{model:#?}"
    );
}
