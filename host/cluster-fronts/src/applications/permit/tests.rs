use std::path::{Path, PathBuf};
use std::sync::Arc;

use http::Method;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::applications::permit::evaluator::{ApplicationEvaluationCache, Evaluator};
use crate::applications::permit::{ApplicationAccess, ApplicationPermit, Error, NOT_VISIBLE, check_access, decide};
use tollgate_config::{GatewayIdentity, ImpersonationMode, ServiceAccountSemantics};
use tollgate_core::attributes::Attributes;
use tollgate_core::upgrade::Protocol;
use tollgate_front::caller::{Caller, CallerCache};
use tollgate_identity::authenticate::{CredentialTransport, Principal};
use tollgate_objects::{ObjectName, decode};
use tollgate_policy::application_request::{
    ActingIdentity, ObjectChecks, ObjectOperation, OwnershipCheck, ProjectListCheck, ReadOrWrite,
};
use tollgate_policy::applications::ApplicationIndex;
use tollgate_policy::impersonate::Impersonation;
use tollgate_policy::impersonate::service_account::ImpersonationRules;
use tollgate_policy::rbac::{PolicySource, Rbac};
use tollgate_rego::{Bundle, BundleSource, Front};

mod decide;
mod enters;
mod sync;

const STATE: &str = include_str!("tests/state.yaml");
const PODS: &str = "/api/v1/namespaces/guestbook/pods";
const POD: &str = "/api/v1/namespaces/guestbook/pods/web-0";
/// 2026-11-27T12:00:00Z.
const NOON: Timestamp = Timestamp::constant(1_795_780_800, 0);
const EXTRA: &str = "extra:\n  tollgate.dev/user: principal.username\n";

/// What a snapshot contains.
struct Fixture {
    rbac: Rbac,
    index: ApplicationIndex,
    bundle: Bundle,
    rules: ImpersonationRules,
    callers: CallerCache,
    cache: ApplicationEvaluationCache,
    gateway_identity: GatewayIdentity,
    /// When requests come.
    at: Timestamp,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../policies/applications")
}

impl Fixture {
    fn new(mode: ImpersonationMode) -> Self {
        Self::with_rules(mode, EXTRA)
    }

    fn with_rules(mode: ImpersonationMode, rules: &str) -> Self {
        let loaded = decode::load_text(STATE, "state.yaml", "argocd");
        let resources = loaded.value.unwrap_or_else(|| panic!("{:?}", loaded.diagnostics));
        let source = PolicySource::from_resources(&resources, tollgate_config::RbacSemantics::Argocd);
        let rbac = Rbac::compile(&source.value.unwrap()).value.unwrap();
        let rules = ImpersonationRules::parse("impersonation.cel.yaml", rules, ServiceAccountSemantics::Strict);
        let rules = rules.value.unwrap_or_else(|| panic!("{:?}", rules.diagnostics));
        let index = ApplicationIndex::build(&resources, &rules, Some(mode), None);
        assert!(
            !index
                .findings()
                .iter()
                .any(tollgate_core::diagnostic::Diagnostic::is_error)
        );
        let source = BundleSource::read(&folder(), Front::Applications).value.unwrap();
        Self {
            rbac,
            index,
            bundle: Bundle::unchecked(&source).unwrap(),
            rules,
            callers: CallerCache::default(),
            cache: ApplicationEvaluationCache::default(),
            gateway_identity: GatewayIdentity::Allowed,
            at: NOON,
        }
    }

    fn caller(&self, claims: &Value) -> Arc<Caller> {
        let claims = claims.as_object().unwrap().clone();
        let principal = Arc::new(Principal::for_test(claims, CredentialTransport::Bearer));
        self.callers.of(&principal, &self.rbac)
    }

    /// A caller with a token of an identity provider.
    fn person(&self, name: &str) -> Arc<Caller> {
        self.caller(&json!({"iss": "https://idp.example.org", "sub": name}))
    }

    /// A caller with a token of a project role.
    fn role(&self, subject: &str) -> Arc<Caller> {
        self.caller(&json!({"iss": "argocd", "sub": subject, "iat": 1_700_000_000, "jti": "1"}))
    }

    fn evaluator(&self) -> Evaluator<'_> {
        Evaluator {
            rbac: &self.rbac,
            index: &self.index,
            rules: &self.rules,
            control_plane_namespace: "argocd",
            gateway_identity: self.gateway_identity,
            cache: &self.cache,
        }
    }

    fn check_access(
        &self,
        caller: &Arc<Caller>,
        name: &str,
        attributes: &Arc<Attributes>,
    ) -> Result<ApplicationAccess, Error> {
        let (namespace, name) = name.split_once('/').unwrap();
        let name = ObjectName {
            namespace: namespace.into(),
            name: name.into(),
        };
        check_access(
            self.evaluator().evaluation(caller, &name),
            caller,
            attributes,
            Some(self.at),
        )
    }

    /// Both steps, with lists that permit the request and an object that the Application owns.
    fn authorize(
        &self,
        caller: &Arc<Caller>,
        name: &str,
        attributes: &Arc<Attributes>,
    ) -> Result<ApplicationPermit, Error> {
        let access = self.check_access(caller, name, attributes)?;
        let owned = match access.requires_owned_object() {
            true => OwnershipCheck::Permitted,
            false => OwnershipCheck::NotChecked,
        };
        self.decide(access, &ProjectListCheck::Permitted, &owned)
    }

    fn decide(
        &self,
        access: ApplicationAccess,
        listed: &ProjectListCheck,
        owned: &OwnershipCheck,
    ) -> Result<ApplicationPermit, Error> {
        decide(
            &self.bundle,
            access,
            ObjectChecks {
                project_lists: listed,
                ownership: owned,
            },
            None,
        )
    }
}

fn request(method: &Method, path: &str) -> Arc<Attributes> {
    Arc::new(Attributes::read(method, path, None, None))
}

fn upgrade_request(method: &Method, path: &str, protocol: Protocol) -> Arc<Attributes> {
    Arc::new(Attributes::read(method, path, None, Some(protocol)))
}

/// The reason in a refusal, without the API server's wording before it.
fn reason(error: &Error) -> String {
    let text = error.to_string();
    assert!(text.contains("forbidden: User \""), "{text}");
    let place = ["at the cluster scope: ", "in the namespace \"guestbook\": "];
    let found = place.iter().find_map(|place| text.split_once(place));
    found.map_or_else(|| text.clone(), |(_, reason)| reason.to_owned())
}
