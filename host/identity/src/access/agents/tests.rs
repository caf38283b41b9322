use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::{Agents, CredentialSubject};
use crate::access::tests::fixture::{self, LISTS, agent, id, mapped, member, people_and, shared_as};
use crate::access::{AccessDenyReason, AccessGrant};
use crate::metrics::Metrics;
use tollgate_config::{UserClaimMapping, UserLookupKey};
use tollgate_core::access::AccessFacts;
use tollgate_core::agent::Agent;
use tollgate_core::agent::ConfigurationStatus;
use tollgate_core::session::{AccessType, SessionId};
use tollgate_core::user::{AccessAs, Identity, Membership, Role, User};
use tollgate_objects::people::PersonState;

fn build(user_access: &str) -> Arc<Agents> {
    Agents::build(&people_and(&[agent(9999, "my-agent", user_access)]), None)
}

fn session() -> SessionId {
    SessionId::new(AccessType::PersonalAccessToken, "x")
}

fn grant_access(agents: &Agents, agent: i64, username: &str) -> Result<AccessAs, AccessDenyReason> {
    let subject = CredentialSubject {
        person: agents.people.person_by_username(username),
        mapped: None,
        vouched: None,
    };
    agents
        .grant(id(agent), subject, session())
        .map(|granted| granted.access_as)
}

/// Compares the projects and groups that the example's agent grants.
#[track_caller]
fn check(username: &str, expected: Result<(Vec<Membership>, Vec<Membership>), AccessDenyReason>) {
    let agents = Agents::build(&fixture::resources(), None);
    let expected = expected.map(|(projects, groups)| AccessAs::User { projects, groups });
    assert_eq!(grant_access(&agents, 9999, username), expected, "{username}");
}

#[test]
fn members_of_a_parent_group_are_members_of_a_listed_project() {
    let project = member(1, "group-1/project-1", Role::Maintainer);
    check("alice", Ok((vec![project], vec![])));
}

#[test]
fn memberships_of_projects_and_groups_are_both_reported() {
    let project = member(2, "group-2/project-2", Role::Developer);
    let group = member(2, "group-2", Role::Developer);
    check("bob", Ok((vec![project.clone()], vec![group.clone()])));
    // A reporter in the other project, which is not reported at all.
    check("ivan", Ok((vec![project], vec![group])));
}

#[test]
fn the_highest_role_of_a_listed_group_and_its_parents_counts() {
    // dave is owner of group-3 and guest of group-3/subgroup.
    let group = member(4, "group-3/subgroup", Role::Owner);
    check("dave", Ok((vec![], vec![group])));
}

#[test]
fn roles_below_developer_and_members_of_subgroups_have_no_access() {
    check("carol", Err(AccessDenyReason::NotMember));
    check("erin", Err(AccessDenyReason::NotMember));
    check("grace", Err(AccessDenyReason::NotMember));
}

#[test]
fn blocked_and_unknown_people_are_refused() {
    check("heidi", Err(AccessDenyReason::Blocked));
    check("nobody", Err(AccessDenyReason::UnknownUser));
}

#[test]
fn access_to_an_agent_is_refused_with_the_reason() {
    let agents = Agents::build(&fixture::resources(), None);
    assert_eq!(grant_access(&agents, 8, "alice"), Err(AccessDenyReason::NotMember));
    assert_eq!(
        grant_access(&agents, 424_242, "alice"),
        Err(AccessDenyReason::UnknownAgent)
    );
    assert_eq!(
        grant_access(&agents, 4, "alice"),
        Err(AccessDenyReason::NotShared("it has no `user_access`"))
    );
    assert_eq!(grant_access(&agents, 7, "carol"), Err(AccessDenyReason::NotMember));
    assert_eq!(grant_access(&agents, 7, "bob"), Ok(AccessAs::Agent));
}

/// Access is given again only for the same agent and the same person.
#[test]
fn what_is_given_again_is_to_the_same_agent_as_the_same_person() {
    let agents = Agents::build(&fixture::resources(), None);
    let now = || {
        let person = agents.people.person_by_username("bob");
        agents
            .grant(
                id(9999),
                CredentialSubject {
                    person,
                    mapped: None,
                    vouched: None,
                },
                session(),
            )
            .unwrap()
    };
    let before = |change: &dyn Fn(&mut Agent, &mut User)| {
        let AccessFacts {
            agent, user, access_as, ..
        } = now();
        let (mut agent, mut user) = (Agent::clone(&agent), user);
        change(&mut agent, &mut user);
        AccessGrant::for_test(agent, user, access_as, session())
    };
    let same = before(&|_, _| {});
    assert!(same.renewed(now()).is_some_and(|again| Arc::ptr_eq(&again, &same)));
    for other in [
        before(&|agent, _| agent.cluster = "other".to_owned()),
        before(&|agent, _| agent.name = "other".to_owned()),
        before(&|agent, _| agent.config_project = 1),
        before(&|_, user| user.username = "other".to_owned()),
        before(&|_, user| user.id = 1),
    ] {
        assert!(other.renewed(now()).is_none(), "{other:?}");
    }
    let AccessFacts { agent, user, .. } = now();
    let otherwise = AccessGrant::for_test(Agent::clone(&agent), user, AccessAs::Agent, session());
    let again = otherwise.renewed(now()).unwrap();
    assert_eq!(
        (&again.facts().access_as, again.session()),
        (&now().access_as, otherwise.session())
    );
}

#[test]
fn paths_of_lists_are_compared_case_insensitively() {
    let agents = build("user_access: {access_as: {user: {}}, groups: [{id: GROUP-2}, {id: group-2}]}");
    let expected = AccessAs::User {
        projects: vec![],
        groups: vec![member(2, "group-2", Role::Developer)],
    };
    assert_eq!(grant_access(&agents, 9999, "bob"), Ok(expected));
}

#[test]
fn without_lists_nobody_has_access() {
    let agents = build("user_access: {access_as: {user: {}}}");
    assert_eq!(grant_access(&agents, 9999, "bob"), Err(AccessDenyReason::NotMember));
}

#[test]
fn a_mapped_agent_without_lists_is_granted_by_the_claim() {
    let agents = Agents::build(&fixture::resources(), None);
    let identity = mapped("oidc:bob");
    let subject = |person| CredentialSubject {
        person: agents.people.person_by_username(person),
        mapped: Some(&identity),
        vouched: None,
    };
    let granted = agents.grant(id(6), subject("nobody"), session()).unwrap();
    assert_eq!(granted.access_as, AccessAs::Mapped(identity.clone()));
    let issuer_only = User {
        id: 0,
        username: "oidc:bob".to_owned(),
    };
    assert_eq!(granted.user, issuer_only);
    assert_eq!(agents.grant(id(6), subject("bob"), session()).unwrap().user.id, 102);
    assert_eq!(
        agents.grant(id(6), subject("heidi"), session()).unwrap_err(),
        AccessDenyReason::Blocked
    );
    // Without a mapped identity there is no access.
    assert!(matches!(
        grant_access(&agents, 6, "bob"),
        Err(AccessDenyReason::NotShared(_))
    ));
}

#[test]
fn groups_are_those_of_an_issuer_or_not_known() {
    let agents = build(&shared_as("user"));
    let identity = Identity {
        groups: vec!["oidc:contractors".to_owned()],
        ..mapped("oidc:bob")
    };
    let groups = |vouched| {
        let subject = CredentialSubject {
            person: agents.people.person_by_username("bob"),
            mapped: None,
            vouched,
        };
        let facts = agents.grant(id(9999), subject, session()).unwrap();
        facts.issuer_groups.map(|groups| groups.to_vec())
    };
    let issuer = "https://idp.example.org";
    assert_eq!(groups(Some((issuer, &identity))), Some(identity.groups.clone()));
    // A token that names no group says nothing: its issuer may have left them out.
    let without = mapped("oidc:bob");
    assert_eq!(groups(Some((issuer, &without))), None);
    assert_eq!(groups(None), None);
}

#[test]
fn a_mapped_agent_with_lists_also_requires_membership() {
    let agents = Agents::build(&fixture::resources(), None);
    let identity = mapped("oidc:x");
    let grant = |person| {
        let subject = CredentialSubject {
            person: agents.people.person_by_username(person),
            mapped: Some(&identity),
            vouched: None,
        };
        agents.grant(id(5), subject, session()).map(|granted| granted.user.id)
    };
    assert_eq!(grant("bob"), Ok(102));
    assert_eq!(grant("erin"), Err(AccessDenyReason::NotMember));
    assert_eq!(grant("nobody"), Err(AccessDenyReason::UnknownUser));
    // An empty list counts as a list.
    let agents = build("user_access: {access_as: {mapped: {}}, groups: []}");
    let subject = CredentialSubject {
        person: agents.people.person_by_username("bob"),
        mapped: Some(&identity),
        vouched: None,
    };
    assert_eq!(
        agents.grant(id(9999), subject, session()).unwrap_err(),
        AccessDenyReason::NotMember
    );
}

#[test]
fn a_broken_configuration_keeps_the_last_good_one_or_grants_nothing() {
    let broken = "user_access: {access_as: {agent: {}, user: {}}, groups: [{id: group-2}]}";
    let good = build(&shared_as("user"));
    let first = build(broken);
    assert_eq!(
        grant_access(&first, 9999, "bob"),
        Err(AccessDenyReason::NotShared("its configuration has mistakes"))
    );
    let next =
        |access: &str, before: &Agents| Agents::build(&people_and(&[agent(9999, "my-agent", access)]), Some(before));
    let kept = next(broken, &good);
    assert_eq!(grant_access(&kept, 9999, "bob"), grant_access(&good, 9999, "bob"));
    assert!(grant_access(&kept, 9999, "bob").is_ok());
    let finding = kept.findings[0].to_string();
    assert!(
        finding.contains("its last good configuration stays in force"),
        "{finding}"
    );
    let metric_line = |agents: &Agents| {
        let metrics = Metrics::default();
        metrics.configurations(agents.configurations());
        let text = metrics.text().unwrap();
        let line = text
            .lines()
            .find(|line| line.starts_with("tollgate_agent_configuration_broken{"));
        line.unwrap().to_owned()
    };
    assert_eq!(
        metric_line(&good),
        "tollgate_agent_configuration_broken{agent=\"9999\"} 0"
    );
    for broken in [&kept, &first] {
        assert_eq!(
            metric_line(broken),
            "tollgate_agent_configuration_broken{agent=\"9999\"} 1"
        );
        assert_eq!(broken.configuration(id(9999)), ConfigurationStatus::Broken);
    }
    // A second broken configuration keeps the last good one, too.
    assert!(grant_access(&next(broken, &kept), 9999, "bob").is_ok());
    // An agent that was closed on purpose stays closed.
    let closed = next("", &kept);
    // So does one that was closed while its configuration was good.
    for closed in [&closed, &next("", &good)] {
        assert_eq!(
            grant_access(closed, 9999, "bob"),
            Err(AccessDenyReason::NotShared("it has no `user_access`"))
        );
        assert_eq!(closed.configuration(id(9999)), ConfigurationStatus::Good);
    }
    assert!(matches!(
        grant_access(&next(broken, &closed), 9999, "bob"),
        Err(AccessDenyReason::NotShared(_))
    ));
    // A corrected configuration is valid again.
    assert_eq!(
        grant_access(&next(&shared_as("agent"), &kept), 9999, "bob"),
        Ok(AccessAs::Agent)
    );
}

#[test]
fn a_kept_configuration_is_used_with_the_current_users() {
    let good = build(&shared_as("user"));
    let text = agent(9999, "my-agent", "user_access: {access_as: {}}").replace("---\n", "");
    let nobody = Agents::build(&fixture::with(&text), Some(&good));
    assert_eq!(grant_access(&nobody, 9999, "bob"), Err(AccessDenyReason::UnknownUser));
}

#[test]
fn a_broken_agent_is_kept_unless_another_agent_has_its_id() {
    let good = build(&shared_as("agent"));
    let broken = agent(9999, "my-agent", &shared_as("agent")).replace("configProject: {id: 1234}", "configProject: {}");
    let kept = Agents::build(&people_and(std::slice::from_ref(&broken)), Some(&good));
    assert_eq!(kept.agent(id(9999)).unwrap().config_project, 1234);
    assert!(
        Agents::build(&people_and(std::slice::from_ref(&broken)), None)
            .agent(id(9999))
            .is_none()
    );
    let other = agent(9999, "other", "");
    let taken = Agents::build(&people_and(&[broken, other]), Some(&good));
    assert_eq!(taken.agent(id(9999)).unwrap().name, "other");
    assert!(matches!(
        grant_access(&taken, 9999, "bob"),
        Err(AccessDenyReason::NotShared(_))
    ));
}

#[test]
fn a_configuration_is_not_kept_for_another_agent_id() {
    let good = build(&shared_as("agent"));
    let broken = agent(10, "my-agent", "user_access: {access_as: {}}");
    let agents = Agents::build(&people_and(&[broken]), Some(&good));
    assert!(matches!(
        grant_access(&agents, 10, "bob"),
        Err(AccessDenyReason::NotShared(_))
    ));
    assert!(agents.agent(id(9999)).is_none());
}

#[test]
fn agents_shared_with_a_user_are_those_they_may_use() {
    let agents = Agents::build(&fixture::resources(), None);
    let identity = mapped("x");
    let shared = |user: i64| -> Vec<i64> {
        let subject = CredentialSubject {
            person: agents.people.person(user),
            mapped: Some(&identity),
            vouched: None,
        };
        let of_members = agents.agents().filter(|agent| !agents.is_granted_by_claim(agent.id));
        of_members
            .filter(|agent| agents.grant(agent.id, subject, session()).is_ok())
            .map(|agent| agent.id.get())
            .collect()
    };
    assert_eq!(shared(102), [5, 7, 9999]);
    assert_eq!(shared(105), [0_i64; 0]);
    assert_eq!(shared(108), [0_i64; 0]);
    assert_eq!(shared(1), [0_i64; 0]);
    assert_eq!(agents.agents().count(), 6);
}

#[test]
fn unknown_projects_and_groups_are_reported() {
    let agents = build("user_access: {access_as: {user: {}}, groups: [{id: group-7}], projects: [{id: a/b}]}");
    let findings: Vec<String> = agents.findings.iter().map(ToString::to_string).collect();
    assert_eq!(findings.len(), 2, "{findings:?}");
    assert!(
        findings[0].contains("the project `a/b`, which no directory has"),
        "{findings:?}"
    );
    assert!(findings[1].contains("the group `group-7`"), "{findings:?}");
    assert!(findings[0].starts_with("state.yaml:"), "{findings:?}");
    assert!(
        build(&format!("user_access: {{access_as: {{user: {{}}}}, {LISTS}}}"))
            .findings
            .is_empty()
    );
}

#[test]
fn users_are_found_by_the_claim_mappings_of_their_issuer() {
    let agents = Agents::build(&fixture::resources(), None);
    let mapping = |issuer: &str, claim: &str, key| UserClaimMapping {
        issuer: issuer.to_owned(),
        claim: claim.to_owned(),
        key,
    };
    let mappings = [
        mapping("a", "sub", UserLookupKey::Id),
        mapping("b", "name", UserLookupKey::Username),
        mapping("c", "sub", UserLookupKey::Id),
        mapping("c", "name", UserLookupKey::Username),
    ];
    let found = |issuer: &str, claims: Value| {
        let claims: Map<String, Value> = serde_json::from_value(claims).unwrap();
        agents
            .user_of(&mappings, issuer, &claims)
            .map(|person| person.user.username.clone())
    };
    let bob = Some("bob".to_owned());
    assert_eq!(found("a", json!({"sub": "102"})), bob);
    assert_eq!(found("a", json!({"sub": 102})), bob);
    for not_canonical in ["0102", "+102", " 102", "102.0", "-102", ""] {
        assert_eq!(found("a", json!({"sub": not_canonical})), None, "{not_canonical}");
    }
    for other in [json!(102.5), json!([102]), json!(true), json!(null)] {
        assert_eq!(found("a", json!({"sub": other})), None);
    }
    assert_eq!(found("b", json!({"name": "bob"})), bob);
    assert_eq!(found("b", json!({"name": "BOB"})), None);
    assert_eq!(found("b", json!({"name": 102, "sub": "102"})), None);
    assert_eq!(found("c", json!({"name": "bob"})), bob);
    assert_eq!(found("c", json!({"name": "alice", "sub": "102"})), bob);
    // The mappings of one issuer do not apply to another.
    assert_eq!(found("d", json!({"sub": "102", "name": "bob"})), None);
}

#[test]
fn an_unverified_e_mail_address_finds_nobody() {
    let agents = Agents::build(&fixture::resources(), None);
    let mapping = |claim: &str| UserClaimMapping {
        issuer: "i".to_owned(),
        claim: claim.to_owned(),
        key: UserLookupKey::Username,
    };
    let found = |mappings: &[UserClaimMapping], claims: Value| {
        let claims: Map<String, Value> = serde_json::from_value(claims).unwrap();
        agents.user_of(mappings, "i", &claims).map(|person| person.user.id)
    };
    let email = [mapping("email")];
    assert_eq!(found(&email, json!({"email": "bob"})), Some(102));
    assert_eq!(
        found(&email, json!({"email": "bob", "email_verified": true})),
        Some(102)
    );
    for other in [json!(false), json!("true"), json!(1), json!(null)] {
        let claims = json!({"email": "bob", "email_verified": other, "name": "alice"});
        assert_eq!(found(&email, claims.clone()), None, "{claims}");
        // Other claims do not depend on the address being verified.
        assert_eq!(found(&[mapping("email"), mapping("name")], claims), Some(101));
    }
}

#[test]
fn blocked_people_are_found_with_their_state() {
    let agents = Agents::build(&fixture::resources(), None);
    assert_eq!(agents.people.person(108).unwrap().state, PersonState::Blocked);
    assert_eq!(agents.people.person_by_username("heidi").unwrap().user.id, 108);
    assert_eq!(agents.people.person(101).unwrap().state, PersonState::Active);
}
