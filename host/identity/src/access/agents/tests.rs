use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::{Agents, CredentialSubject};
use crate::access::tests::world::{self, LISTS, agent, id, mapped, member, people_and, shared_as};
use crate::access::{AccessDenyReason, AccessGrant, ConfigurationStatus};
use crate::metrics::Metrics;
use tollgate_config::{UserClaimMapping, UserLookupKey};
use tollgate_core::access::AccessFacts;
use tollgate_core::agent::Agent;
use tollgate_core::session::{AccessType, SessionId};
use tollgate_core::user::{AccessAs, Membership, Role, User};
use tollgate_state::people::PersonState;

fn build(user_access: &str) -> Arc<Agents> {
    Agents::build(&people_and(&[agent(9999, "my-agent", user_access)]), None)
}

fn session() -> SessionId {
    SessionId::new(AccessType::PersonalAccessToken, "x")
}

fn judge(agents: &Agents, agent: i64, username: &str) -> Result<AccessAs, AccessDenyReason> {
    let subject = CredentialSubject {
        person: agents.people().person_by_username(username),
        mapped: None,
    };
    agents
        .grant(id(agent), subject, session())
        .map(|granted| granted.access_as)
}

/// Projects and groups, as the example's agent gives them.
#[track_caller]
fn check(username: &str, expected: Result<(Vec<Membership>, Vec<Membership>), AccessDenyReason>) {
    let agents = Agents::build(&world::resources(), None);
    let expected = expected.map(|(projects, groups)| AccessAs::User { projects, groups });
    assert_eq!(judge(&agents, 9999, username), expected, "{username}");
}

#[test]
fn a_listed_project_counts_through_the_groups_above_it() {
    let project = member(1, "group-1/project-1", Role::Maintainer);
    check("alice", Ok((vec![project], vec![])));
}

#[test]
fn project_and_group_are_both_told() {
    let project = member(2, "group-2/project-2", Role::Developer);
    let group = member(2, "group-2", Role::Developer);
    check("bob", Ok((vec![project.clone()], vec![group.clone()])));
    // A reporter in the other project, which is not reported at all.
    check("ivan", Ok((vec![project], vec![group])));
}

#[test]
fn a_role_above_counts_with_the_listed_number_and_the_highest_wins() {
    // dave is owner of group-3 and guest of group-3/subgroup.
    let group = member(4, "group-3/subgroup", Role::Owner);
    check("dave", Ok((vec![], vec![group])));
}

#[test]
fn nobody_below_developer_and_nobody_from_below_gets_in() {
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
fn an_agent_is_refused_with_its_reason() {
    let agents = Agents::build(&world::resources(), None);
    assert_eq!(judge(&agents, 8, "alice"), Err(AccessDenyReason::NotMember));
    assert_eq!(judge(&agents, 424_242, "alice"), Err(AccessDenyReason::UnknownAgent));
    assert_eq!(
        judge(&agents, 4, "alice"),
        Err(AccessDenyReason::NotShared("it has no `user_access`"))
    );
    assert_eq!(judge(&agents, 7, "carol"), Err(AccessDenyReason::NotMember));
    assert_eq!(judge(&agents, 7, "bob"), Ok(AccessAs::Agent));
}

/// Access is given again only for the same agent and the same person.
#[test]
fn what_is_given_again_is_to_the_same_agent_as_the_same_person() {
    let agents = Agents::build(&world::resources(), None);
    let now = || {
        let person = agents.people().person_by_username("bob");
        agents
            .grant(id(9999), CredentialSubject { person, mapped: None }, session())
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
fn lists_are_compared_without_case() {
    let agents = build("user_access: {access_as: {user: {}}, groups: [{id: GROUP-2}, {id: group-2}]}");
    let expected = AccessAs::User {
        projects: vec![],
        groups: vec![member(2, "group-2", Role::Developer)],
    };
    assert_eq!(judge(&agents, 9999, "bob"), Ok(expected));
}

#[test]
fn no_lists_let_nobody_in() {
    let agents = build("user_access: {access_as: {user: {}}}");
    assert_eq!(judge(&agents, 9999, "bob"), Err(AccessDenyReason::NotMember));
}

#[test]
fn a_mapped_agent_without_lists_is_granted_by_the_claim() {
    let agents = Agents::build(&world::resources(), None);
    let identity = mapped("oidc:bob");
    let subject = |person| CredentialSubject {
        person: agents.people().person_by_username(person),
        mapped: Some(&identity),
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
    assert!(matches!(judge(&agents, 6, "bob"), Err(AccessDenyReason::NotShared(_))));
}

#[test]
fn a_mapped_agent_with_lists_needs_membership_besides() {
    let agents = Agents::build(&world::resources(), None);
    let identity = mapped("oidc:x");
    let grant = |person| {
        let subject = CredentialSubject {
            person: agents.people().person_by_username(person),
            mapped: Some(&identity),
        };
        agents.grant(id(5), subject, session()).map(|granted| granted.user.id)
    };
    assert_eq!(grant("bob"), Ok(102));
    assert_eq!(grant("erin"), Err(AccessDenyReason::NotMember));
    assert_eq!(grant("nobody"), Err(AccessDenyReason::UnknownUser));
    // An empty list counts as a list.
    let agents = build("user_access: {access_as: {mapped: {}}, groups: []}");
    let subject = CredentialSubject {
        person: agents.people().person_by_username("bob"),
        mapped: Some(&identity),
    };
    assert_eq!(
        agents.grant(id(9999), subject, session()).unwrap_err(),
        AccessDenyReason::NotMember
    );
}

#[test]
fn a_broken_configuration_keeps_the_last_good_one_and_opens_nothing() {
    let broken = "user_access: {access_as: {agent: {}, user: {}}, groups: [{id: group-2}]}";
    let good = build(&shared_as("user"));
    let first = build(broken);
    assert_eq!(
        judge(&first, 9999, "bob"),
        Err(AccessDenyReason::NotShared("its configuration has mistakes"))
    );
    let next =
        |access: &str, before: &Agents| Agents::build(&people_and(&[agent(9999, "my-agent", access)]), Some(before));
    let kept = next(broken, &good);
    assert_eq!(judge(&kept, 9999, "bob"), judge(&good, 9999, "bob"));
    assert!(judge(&kept, 9999, "bob").is_ok());
    let finding = kept.findings()[0].to_string();
    assert!(
        finding.contains("its last good configuration stays in force"),
        "{finding}"
    );
    let shown = |agents: &Agents| {
        let metrics = Metrics::default();
        metrics.configurations(agents.configurations());
        let text = metrics.text().unwrap();
        let line = text
            .lines()
            .find(|line| line.starts_with("tollgate_agent_configuration_broken{"));
        line.unwrap().to_owned()
    };
    assert_eq!(shown(&good), "tollgate_agent_configuration_broken{agent=\"9999\"} 0");
    for broken in [&kept, &first] {
        assert_eq!(shown(broken), "tollgate_agent_configuration_broken{agent=\"9999\"} 1");
        assert_eq!(broken.configuration(id(9999)), ConfigurationStatus::Broken);
    }
    // A second broken configuration keeps the last good one, too.
    assert!(judge(&next(broken, &kept), 9999, "bob").is_ok());
    // An agent that was closed on purpose stays closed.
    let closed = next("", &kept);
    // So does one that was closed while its configuration was good.
    for closed in [&closed, &next("", &good)] {
        assert_eq!(
            judge(closed, 9999, "bob"),
            Err(AccessDenyReason::NotShared("it has no `user_access`"))
        );
        assert_eq!(closed.configuration(id(9999)), ConfigurationStatus::Good);
    }
    assert!(matches!(
        judge(&next(broken, &closed), 9999, "bob"),
        Err(AccessDenyReason::NotShared(_))
    ));
    // A corrected configuration is good again.
    assert_eq!(
        judge(&next(&shared_as("agent"), &kept), 9999, "bob"),
        Ok(AccessAs::Agent)
    );
}

#[test]
fn a_kept_configuration_is_judged_by_the_people_of_today() {
    let good = build(&shared_as("user"));
    let text = agent(9999, "my-agent", "user_access: {access_as: {}}").replace("---\n", "");
    let nobody = Agents::build(&world::with(&text), Some(&good));
    assert_eq!(judge(&nobody, 9999, "bob"), Err(AccessDenyReason::UnknownUser));
}

#[test]
fn a_broken_object_keeps_its_binding_unless_its_number_is_another_s() {
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
        judge(&taken, 9999, "bob"),
        Err(AccessDenyReason::NotShared(_))
    ));
}

#[test]
fn the_configuration_of_another_number_is_not_kept() {
    let good = build(&shared_as("agent"));
    let broken = agent(10, "my-agent", "user_access: {access_as: {}}");
    let agents = Agents::build(&people_and(&[broken]), Some(&good));
    assert!(matches!(judge(&agents, 10, "bob"), Err(AccessDenyReason::NotShared(_))));
    assert!(agents.agent(id(9999)).is_none());
}

#[test]
fn agents_shared_with_somebody_are_those_they_may_use() {
    let agents = Agents::build(&world::resources(), None);
    let identity = mapped("x");
    let shared = |user: i64| -> Vec<i64> {
        let subject = CredentialSubject {
            person: agents.people().person(user),
            mapped: Some(&identity),
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
fn an_entry_no_directory_has_is_a_finding() {
    let agents = build("user_access: {access_as: {user: {}}, groups: [{id: group-7}], projects: [{id: a/b}]}");
    let findings: Vec<String> = agents.findings().iter().map(ToString::to_string).collect();
    assert_eq!(findings.len(), 2, "{findings:?}");
    assert!(
        findings[0].contains("the project `a/b`, which no directory has"),
        "{findings:?}"
    );
    assert!(findings[1].contains("the group `group-7`"), "{findings:?}");
    assert!(findings[0].starts_with("state.yaml:"), "{findings:?}");
    assert!(
        build(&format!("user_access: {{access_as: {{user: {{}}}}, {LISTS}}}"))
            .findings()
            .is_empty()
    );
}

#[test]
fn people_are_found_by_the_links_of_their_issuer() {
    let agents = Agents::build(&world::resources(), None);
    let link = |issuer: &str, claim: &str, key| UserClaimMapping {
        issuer: issuer.to_owned(),
        claim: claim.to_owned(),
        key,
    };
    let links = [
        link("a", "sub", UserLookupKey::Id),
        link("b", "name", UserLookupKey::Username),
        link("c", "sub", UserLookupKey::Id),
        link("c", "name", UserLookupKey::Username),
    ];
    let found = |issuer: &str, claims: Value| {
        let claims: Map<String, Value> = serde_json::from_value(claims).unwrap();
        agents
            .user_of(&links, issuer, &claims)
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
    // The links of one issuer do not apply to another.
    assert_eq!(found("d", json!({"sub": "102", "name": "bob"})), None);
}

#[test]
fn an_address_nobody_verified_finds_nobody() {
    let agents = Agents::build(&world::resources(), None);
    let link = |claim: &str| UserClaimMapping {
        issuer: "i".to_owned(),
        claim: claim.to_owned(),
        key: UserLookupKey::Username,
    };
    let found = |links: &[UserClaimMapping], claims: Value| {
        let claims: Map<String, Value> = serde_json::from_value(claims).unwrap();
        agents.user_of(links, "i", &claims).map(|person| person.user.id)
    };
    let email = [link("email")];
    assert_eq!(found(&email, json!({"email": "bob"})), Some(102));
    assert_eq!(
        found(&email, json!({"email": "bob", "email_verified": true})),
        Some(102)
    );
    for other in [json!(false), json!("true"), json!(1), json!(null)] {
        let claims = json!({"email": "bob", "email_verified": other, "name": "alice"});
        assert_eq!(found(&email, claims.clone()), None, "{claims}");
        // Other claims do not depend on the address being verified.
        assert_eq!(found(&[link("email"), link("name")], claims), Some(101));
    }
}

#[test]
fn blocked_people_are_found_with_their_state() {
    let agents = Agents::build(&world::resources(), None);
    assert_eq!(agents.people().person(108).unwrap().state, PersonState::Blocked);
    assert_eq!(agents.people().person_by_username("heidi").unwrap().user.id, 108);
    assert_eq!(agents.people().person(101).unwrap().state, PersonState::Active);
}
