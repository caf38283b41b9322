//! The input of a policy for one request. The benches use it too.

use tollgate_core::diagnostic::Location;
use tollgate_rego::{
    ExtensionFacts, ExtensionInput, ExtensionRequest, ExtensionVerdicts, PrincipalFacts, RbacFacts, RbacRow,
    RbacVerdict,
};

pub fn principal(groups: &[String]) -> PrincipalFacts {
    PrincipalFacts::new("1234", "ann@example.org", groups, "https://idp.example.org", "oidc")
}

pub fn prepared(permitted: bool) -> ExtensionFacts {
    let place = Location::new("state/objects.yaml", 1);
    let destination = tollgate_objects::Destination {
        name: "in-cluster".into(),
        server: String::new(),
        namespace: "checkout".into(),
    };
    let project = tollgate_objects::Project {
        name: "payments".into(),
        destinations: vec![destination.clone()],
        source_namespaces: vec!["argocd".into()],
        location: place.clone(),
        ..tollgate_objects::Project::default()
    };
    let application = tollgate_objects::Application {
        name: tollgate_objects::ObjectName {
            namespace: "argocd".into(),
            name: "checkout".into(),
        },
        project: "payments".into(),
        destination,
        application_set: None,
        repositories: Vec::new(),
        labels: [("team".to_owned(), "payments".to_owned())].into(),
        location: place,
    };
    let cluster = tollgate_objects::Cluster {
        name: "in-cluster".into(),
        server: "https://kubernetes.default.svc".into(),
        project: String::new(),
    };
    ExtensionFacts::new("metrics", "application")
        .with_project(&project)
        .with_application(&application)
        .with_destination(&cluster, "checkout", permitted)
}

/// Verdicts of RBAC: whether the caller may see the application, and the rows that could apply.
pub fn verdicts(applications_get: bool, rows: &[RbacRow<'_>]) -> RbacFacts {
    let allowed = RbacVerdict {
        allow: true,
        rule: Some("policy.csv:3"),
        why: "allowed",
    };
    let denied = RbacVerdict {
        allow: false,
        rule: None,
        why: "no-rule",
    };
    RbacFacts::new(&ExtensionVerdicts {
        applications_get: Some(if applications_get { allowed } else { denied }),
        projects_get: None,
        extensions_invoke: allowed,
        candidates: rows,
    })
}

pub fn input<'a>(
    principal: &'a PrincipalFacts,
    prepared: &'a ExtensionFacts,
    verdicts: &'a RbacFacts,
) -> ExtensionInput<'a> {
    ExtensionInput {
        principal,
        request: ExtensionRequest {
            method: "GET",
            path: "/metrics",
            query: Some("a=b"),
            project: Some("payments"),
        },
        facts: prepared,
        rbac: verdicts,
        time: Some("2026-11-27T17:30:00Z"),
    }
}

pub const ROW: RbacRow<'static> = RbacRow {
    subject: "role:dev",
    resource: "extensions",
    action: "invoke",
    object: "metrics",
    effect: "allow",
};
