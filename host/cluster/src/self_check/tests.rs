//! Tests of the reports that operators get about agents.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::json;

use super::review::{CheckError, ImpersonationVerdict};
use super::{AgentPlan, ClusterGrants, PlannedAgent};
use tollgate_core::agent::{AgentId, ConfigurationStatus};
use tollgate_policy::gateway_rights::grants::{ImpersonationGrant, ImpersonationGrants, ImpersonationKind};

/// Agents `a` and `b` of cluster `one`, `robot` of no cluster.
fn plan() -> AgentPlan {
    let grants: ImpersonationGrants = [
        ImpersonationGrant::Users,
        ImpersonationGrant::Groups,
        ImpersonationGrant::Extra("x/y".to_owned()),
    ]
    .into_iter()
    .collect();
    let label: Arc<str> = "one".into();
    let agent = |id, name: &str, label: Option<&Arc<str>>| PlannedAgent {
        id: AgentId::new(id).unwrap(),
        name: name.to_owned(),
        cluster: "one".to_owned(),
        configuration: match name {
            "b" => ConfigurationStatus::Broken,
            _ => ConfigurationStatus::Good,
        },
        label: label.cloned(),
    };
    let cluster = ClusterGrants { access: None, grants };
    AgentPlan {
        agents: vec![
            agent(1, "a", Some(&label)),
            agent(2, "b", Some(&label)),
            agent(3, "robot", None),
        ],
        clusters: BTreeMap::from([(label, cluster)]),
    }
}

fn check(verdict: ImpersonationVerdict, report: &serde_json::Value, counts: [usize; 3]) {
    let plan = plan();
    assert_eq!(verdict.counts(&plan, "one"), counts);
    let verdicts = BTreeMap::from([("one".into(), verdict)]);
    let reports = serde_json::to_value(plan.reports(&verdicts)).unwrap();
    let agent_report = |id: i64, name: &str, impersonation: &serde_json::Value| {
        let configuration = if name == "b" { "broken" } else { "good" };
        json!({"id": id, "name": name, "cluster": "one", "configuration": configuration, "impersonation": impersonation})
    };
    let expected = json!([
        agent_report(1, "a", report),
        agent_report(2, "b", report),
        agent_report(3, "robot", &json!({"state": "not_needed"})),
    ]);
    assert_eq!(reports, expected);
}

#[test]
fn each_agent_has_the_verdict_of_its_cluster() {
    check(
        ImpersonationVerdict::Granted(ImpersonationKind::Constrained),
        &json!({"state": "granted", "mode": "constrained"}),
        [3, 0, 0],
    );
    check(
        ImpersonationVerdict::Missing {
            mode: ImpersonationKind::Classic,
            grants: vec![ImpersonationGrant::Groups, ImpersonationGrant::Extra("x/y".to_owned())],
        },
        &json!({
            "state": "missing", "mode": "classic", "missing": ["groups", "userextras/x/y"],
            "command": "tollgate rbac manifest --agent a --agent b",
        }),
        [1, 2, 0],
    );
    check(
        ImpersonationVerdict::Unknown(CheckError::NoCluster),
        &json!({"state": "unknown", "problem": "there is no such cluster, or several have its name"}),
        [0, 0, 3],
    );
}

#[tokio::test]
async fn an_unknown_cluster_is_reported() {
    let verdicts = plan().ask().await;
    assert_eq!(verdicts["one"], ImpersonationVerdict::Unknown(CheckError::NoCluster));
}

#[test]
fn plans_differ_if_their_agents_or_grants_differ() {
    assert_eq!(plan(), plan());
    let mut renamed = plan();
    renamed.agents[0].name = "c".to_owned();
    assert_ne!(renamed, plan());
    let mut more = plan();
    for cluster in more.clusters.values_mut() {
        cluster.grants = std::mem::take(&mut cluster.grants).union([ImpersonationGrant::Uids].into_iter().collect());
    }
    assert_ne!(more, plan());
}
