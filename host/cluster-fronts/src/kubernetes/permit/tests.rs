use std::path::{Path, PathBuf};
use std::sync::Arc;

use http::Method;

use crate::kubernetes::permit::{Error, IdentityCache, KubernetesPermit, KubernetesPolicy};
use tollgate_core::agent::{Agent, AgentId};
use tollgate_core::attributes::Attributes;
use tollgate_core::session::{AccessType, SessionId};
use tollgate_core::upgrade::Protocol;
use tollgate_core::user::{AccessAs, CiJob, Identity, Membership, Role, User};
use tollgate_front::policies::PolicyBundle;
use tollgate_identity::access::AccessGrant;
use tollgate_policy::impersonate::{self, AccessInput, Impersonation, ImpersonationMapping};
use tollgate_rego::{Bundle, BundleSource, Front, KubernetesFacts, KubernetesInput};

const MAX_GROUPS: usize = 8;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../policies/kubernetes")
}

struct Fixture {
    bundle: PolicyBundle,
    mapping: ImpersonationMapping,
    identities: IdentityCache,
}

impl Fixture {
    fn new() -> Self {
        let source = BundleSource::read(&folder(), Front::Kubernetes).value.unwrap();
        Self {
            bundle: PolicyBundle::new(Bundle::unchecked(&source).unwrap()),
            mapping: ImpersonationMapping::load(&folder(), MAX_GROUPS).value.unwrap(),
            identities: IdentityCache::default(),
        }
    }

    fn policy(&self) -> KubernetesPolicy<'_> {
        KubernetesPolicy {
            bundle: &self.bundle,
            mapping: &self.mapping,
            identities: &self.identities,
        }
    }
}

fn access(agent: &str, username: &str, access_as: AccessAs) -> Arc<AccessGrant> {
    let agent = Agent {
        id: AgentId::new(9999).unwrap(),
        name: agent.into(),
        config_project: 1234,
        cluster: "production".into(),
    };
    let user = User {
        id: 101,
        username: username.into(),
    };
    let session = SessionId::new(AccessType::PersonalAccessToken, "1");
    AccessGrant::for_test(agent, user, access_as, session)
}

fn developer(projects: i64) -> AccessAs {
    let one = |id| Membership {
        id,
        path: format!("group-{id}/project"),
        roles: vec![Role::Reporter, Role::Developer],
    };
    AccessAs::User {
        projects: (1..=projects).map(one).collect(),
        groups: vec![],
    }
}

fn identity(username: &str, groups: &[&str]) -> Identity {
    Identity {
        username: username.into(),
        groups: groups.iter().map(|group| (*group).to_owned()).collect(),
        uid: None,
        extra: vec![],
    }
}

fn request_attributes(method: &Method, path: &str, upgrade: Option<Protocol>) -> Attributes {
    Attributes::read(method, path, None, upgrade)
}

fn authorize(access: &Arc<AccessGrant>, attributes: Attributes) -> Result<KubernetesPermit, Error> {
    Fixture::new().policy().authorize(access, &Arc::new(attributes), None)
}

const PODS: &str = "/api/v1/namespaces/default/pods";

#[test]
fn an_unrestricted_agent_leaves_the_decision_to_the_cluster() {
    let alice = access("my-agent", "alice", developer(1));
    let exec = format!("{PODS}/web-0/exec");
    for attributes in [
        request_attributes(&Method::GET, PODS, None),
        request_attributes(&Method::DELETE, PODS, None),
        request_attributes(&Method::GET, &exec, Some(Protocol::WebSocket)),
        request_attributes(&Method::GET, "/version", None),
    ] {
        let permit = authorize(&alice, attributes.clone()).unwrap();
        assert_eq!(**permit.attributes(), attributes);
        assert!(Arc::ptr_eq(permit.access(), &alice));
        let Impersonation::As(identity) = &**permit.impersonation() else {
            panic!("nobody is impersonated");
        };
        assert_eq!(identity.username, "gitlab:user:alice");
    }
}

#[test]
fn a_refusal_has_the_wording_of_the_api_server() {
    let alice = access("example-read-only", "alice", developer(1));
    let why = "the agent does not allow this verb";
    let denied = |attributes: Attributes| match authorize(&alice, attributes) {
        Err(Error::Denied(message, _)) => message,
        other => panic!("{other:?}"),
    };
    assert!(authorize(&alice, request_attributes(&Method::GET, PODS, None)).is_ok());
    assert!(
        authorize(
            &alice,
            request_attributes(&Method::GET, &format!("{PODS}/web-0/log"), None)
        )
        .is_ok()
    );
    assert_eq!(
        denied(request_attributes(&Method::DELETE, PODS, None)),
        format!(
            "pods is forbidden: User \"gitlab:user:alice\" cannot deletecollection resource \"pods\" in API group \"\" \
             in the namespace \"default\": {why}"
        )
    );
    assert_eq!(
        denied(request_attributes(
            &Method::GET,
            &format!("{PODS}/web-0/exec"),
            Some(Protocol::WebSocket)
        )),
        format!(
            "pods \"web-0\" is forbidden: User \"gitlab:user:alice\" cannot create resource \"pods/exec\" in API group \
             \"\" in the namespace \"default\": {why}"
        )
    );
    assert_eq!(
        denied(request_attributes(&Method::GET, "/api/v1/nodes/a/proxy/run", None)),
        format!(
            "nodes \"a\" is forbidden: User \"gitlab:user:alice\" cannot create resource \"nodes/proxy\" in API group \
             \"\" at the cluster scope: {why}"
        )
    );
    assert_eq!(
        denied(request_attributes(
            &Method::PATCH,
            "/apis/apps/v1/namespaces/n/deployments/d",
            None
        )),
        format!(
            "deployments.apps \"d\" is forbidden: User \"gitlab:user:alice\" cannot patch resource \"deployments\" in API \
             group \"apps\" in the namespace \"n\": {why}"
        )
    );
    assert_eq!(
        denied(request_attributes(&Method::POST, "/logs", None)),
        format!("forbidden: User \"gitlab:user:alice\" cannot post path \"/logs\": {why}")
    );
}

#[test]
fn an_agent_acts_as_itself_and_refusals_name_the_user() {
    let bob = access("my-agent", "bob", AccessAs::Agent);
    let permit = authorize(&bob, request_attributes(&Method::GET, PODS, None)).unwrap();
    assert_eq!(**permit.impersonation(), Impersonation::Nobody);
    let bob = access("example-read-only", "bob", AccessAs::Agent);
    let refused = authorize(&bob, request_attributes(&Method::POST, PODS, None))
        .unwrap_err()
        .to_string();
    assert!(refused.contains("User \"bob\" cannot create"), "{refused}");
}

#[test]
fn reserved_and_invalid_identities_are_refused() {
    let system = |part, name: &str| impersonate::Error::System {
        part,
        name: name.into(),
    };
    for (access_as, expected) in [
        (
            AccessAs::Mapped(identity("system:admin", &[])),
            system("username", "system:admin"),
        ),
        (
            AccessAs::Mapped(identity("oidc:1", &["system:masters"])),
            system("group", "system:masters"),
        ),
        (
            AccessAs::Impersonate(identity("u", &["system:masters"])),
            system("group", "system:masters"),
        ),
        (
            AccessAs::Mapped(identity("", &[])),
            impersonate::Error::Empty("username"),
        ),
        (
            developer(4),
            impersonate::Error::TooManyGroups {
                observed: 9,
                allowed: MAX_GROUPS,
            },
        ),
    ] {
        let alice = access("my-agent", "alice", access_as);
        let Err(Error::Identity(message, source)) = authorize(&alice, request_attributes(&Method::GET, PODS, None))
        else {
            panic!("{expected} passed");
        };
        assert_eq!(source, expected);
        let expected_text = "User \"alice\" cannot list resource \"pods\" in API group \"\" in the namespace \"default\": \
                    the user's identity cannot be used in the cluster";
        assert_eq!(message, format!("pods is forbidden: {expected_text}"));
    }
    for access_as in [
        AccessAs::Mapped(identity("oidc:1", &["masters"])),
        AccessAs::Impersonate(identity("u", &["System:masters"])),
        developer(3),
    ] {
        let alice = access("my-agent", "alice", access_as);
        assert!(authorize(&alice, request_attributes(&Method::GET, PODS, None)).is_ok());
    }
}

#[test]
fn the_identity_of_an_access_is_cached() {
    let fixture = Fixture::new();
    let policy = fixture.policy();
    let impersonation_of = |access: &Arc<AccessGrant>| {
        let permit = policy
            .authorize(access, &Arc::new(request_attributes(&Method::GET, PODS, None)), None)
            .unwrap();
        Arc::clone(permit.impersonation())
    };
    let alice = access("my-agent", "alice", developer(1));
    let bob = access("my-agent", "bob", developer(1));
    assert!(Arc::ptr_eq(&impersonation_of(&alice), &impersonation_of(&alice)));
    assert_ne!(impersonation_of(&alice), impersonation_of(&bob));
    // A new access of the same person is evaluated again, even at a reused address.
    for roles in 1..50 {
        let carol = access("my-agent", "carol", developer(roles % 3));
        let Impersonation::As(identity) = &*impersonation_of(&carol) else {
            panic!("nobody is impersonated");
        };
        assert_eq!(identity.groups.len() as i64, 1 + 2 * (roles % 3));
    }
}

#[test]
fn the_policy_input_matches_its_schema() {
    let job = |environment: Option<(&str, &str)>| {
        AccessAs::CiJob(Box::new(CiJob {
            id: 1,
            pipeline: 2,
            project: 3,
            groups: vec![6],
            environment: environment.map(|(slug, tier)| (slug.into(), tier.into())),
        }))
    };
    let mapped = Identity {
        uid: Some("7f3c".into()),
        extra: vec![("corp.example/dept".into(), vec!["sre".into()])],
        ..identity("oidc:1", &["devs"])
    };
    let mapping = ImpersonationMapping::load(&folder(), MAX_GROUPS).value.unwrap();
    for (access_as, word) in [
        (AccessAs::Agent, "agent"),
        (developer(2), "user"),
        (job(None), "ci_job"),
        (job(Some(("prod", "production"))), "ci_job"),
        (AccessAs::Mapped(mapped.clone()), "mapped"),
        (AccessAs::Impersonate(mapped), "impersonate"),
    ] {
        let access = access("my-agent", "alice", access_as);
        let known = AccessInput::from_facts(access.facts());
        let impersonation = mapping.apply(access.facts(), &known).unwrap();
        let facts = KubernetesFacts::new(known, &impersonation);
        for attributes in [
            request_attributes(&Method::GET, &format!("{PODS}/p/exec"), Some(Protocol::Spdy)),
            request_attributes(&Method::GET, "/", None),
            request_attributes(&Method::GET, "/api/v1/watch", None),
        ] {
            let input = KubernetesInput {
                facts: &facts,
                attributes: &attributes,
                time: Some("2026-11-27T17:30:00Z"),
            };
            let json = serde_json::to_value(input.to_value()).unwrap();
            jsonschema::validate(Front::Kubernetes.input_schema(), &json).unwrap();
            assert_eq!(json["access"]["as"], word);
            assert_eq!(json["identity"].is_null(), word == "agent");
            let mut request = json["request"].clone();
            let verbs = request.as_object_mut().unwrap().remove("verbs").unwrap();
            assert_eq!(verbs, serde_json::json!(attributes.verbs().collect::<Vec<_>>()));
            assert_eq!(request, serde_json::to_value(&attributes).unwrap());
        }
    }
}
