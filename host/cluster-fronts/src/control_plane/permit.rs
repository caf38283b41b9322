//! Decides whether a component of Argo CD may send a request to a cluster, and which identity it
//! acts as. The result is a [`ControlPlanePermit`], which only this file can make, or 403 or 404.
//!
//! | request | acts as |
//! |---|---|
//! | reads without impersonation, and questions about its own rights | the reader account of the settings |
//! | reads with `Impersonate-User` | that account, if an Application has it here |
//! | writes with `Impersonate-User` | the same, if an Application that has it may write the object |
//! | dry run of an apply, deletion, or `exec`, without impersonation | the account of the Application that the object belongs to |
//! | other writes without impersonation | nobody: they are refused |
//!
//! An Application *has an account here* if its destination is the cluster, the account is its
//! project's for it, and the project permits the destination. It *may write* an object if its
//! project permits the kind and the namespace, and if the object is tracked by no other Application.
//!
//! What is permitted by that may still be refused by the bundle `policies/controlplane`, in both modes.
//!
//! In mode audit, writes that would be refused for their object, or because they name no account, are
//! sent: as the account that they name, or as the gateway's own identity.
//!
//! Security: what the caller writes into `Impersonate-User` only selects an identity of the index,
//! and that is sent. Groups, UIDs and extra are refused, and so is anything that would give more
//! than the account's own rights: tokens of accounts, and tunnels into services and nodes.

use http::StatusCode;
use std::collections::BTreeMap;
use std::sync::Arc;

use http::{HeaderMap, HeaderName, Method};
use jiff::Timestamp;

use crate::control_plane::object::{Belonging, WrittenObject};
use crate::control_plane::route::TunnelTarget;
use crate::object_content::ContentFormat;
use crate::restriction::{RequestObject, RestrictionsCache, TargetCluster};
use tollgate_cluster::access::{ClusterAccess, Clusters};
use tollgate_config::{ControlPlaneCaller, ControlPlaneMode};
use tollgate_core::attributes::Attributes;
use tollgate_core::header_names::is_impersonation;
use tollgate_core::upgrade::Protocol;
use tollgate_front::caller::Caller;
use tollgate_front::policies::Policies;
use tollgate_front::policy_input::{ATTRIBUTE_BYTES, attributes_size, json};
use tollgate_front::{Denial, status_message};
use tollgate_identity::authenticate::Principal;
use tollgate_objects::Cluster;
use tollgate_policy::application_request::{ActingIdentity, ReadOrWrite};
use tollgate_policy::applications::{ActingAccount, IndexedApplication};
use tollgate_policy::impersonate::Impersonation;
use tollgate_proxy::record::{OpenRecord, PolicyInputSource};
use tollgate_rego::{self as rego, ControlPlaneInput, Front};

const USER: HeaderName = HeaderName::from_static("impersonate-user");

/// API group of the requests by which a caller learns what it may do itself.
const REVIEWS_GROUP: &str = "authorization.k8s.io";
const REVIEWS: [&str; 2] = ["selfsubjectaccessreviews", "selfsubjectrulesreviews"];

/// Subresources that hand out credentials, or lead past the API server.
const REFUSED_SUBRESOURCES: [&str; 5] = ["attach", "exec", "portforward", "proxy", "token"];

const WITHOUT_IMPERSONATION: &str = "without impersonation Argo CD's own components only read: \
                                     set `application.sync.impersonation.enabled` in argocd-cm";
const OF_NO_APPLICATION: &str = "it is sent without impersonation, and its object belongs to no Application that has \
                                 an account here";
const OF_COLLECTION: &str = "it deletes or changes objects without naming one, and each may belong to another \
    Application; name one object";
const OF_ANOTHER_APPLICATION: &str = "the object belongs to an Application that does not act as that account here";

/// Why a component of Argo CD may not send a request. Each text is a `Status` message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Error {
    /// The caller is no component of Argo CD, or no cluster of that server is enrolled. The two have
    /// the same answer, so that nobody else learns which clusters there are.
    #[error("{0}")]
    NotVisible(String),
    /// A field that only the gateway may write, or a user that is named twice.
    #[error("{0}")]
    Impersonation(String),
    /// No Application of this cluster acts as the account.
    #[error("{0}")]
    NoApplication(String),
    /// It would change something, and names no account.
    #[error("{0}")]
    WithoutAccount(String),
    /// Its object belongs to an Application that does not act as the account here.
    #[error("{0}")]
    Object(String),
    /// Its content, or what the cluster has, does not tell what the object belongs to.
    #[error("{0}")]
    UnknownObject(String),
    /// The projects of the Applications that act as the account do not permit the object.
    #[error("{0}")]
    Project(String),
    /// It would get a credential or a tunnel.
    #[error("{0}")]
    Subresource(String),
    /// The settings name no reader.
    #[error("{0}")]
    NoReader(String),
    /// The policy denied the request, with these texts for the record.
    #[error("{0}")]
    Denied(String, BTreeMap<String, String>),
    /// The policy gave no decision.
    #[error("{0}")]
    Policy(String, #[source] rego::Error),
}

/// Who a request is to act as, by its fields.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum RequestedUser {
    /// It names nobody.
    Reader,
    /// The value of `Impersonate-User`.
    User(String),
    /// It has a field that is refused: this one.
    Refused(String),
}

impl RequestedUser {
    /// Reads the fields as a client sent them.
    pub(crate) fn read(fields: &HeaderMap) -> Self {
        let mut others = fields.keys().filter(|name| is_impersonation(name.as_str()));
        if let Some(other) = others.find(|name| **name != USER) {
            return Self::Refused(format!("`{other}` is not allowed: only `{USER}` is"));
        }
        let mut users = fields.get_all(USER).iter();
        match (users.next(), users.next()) {
            (None, _) => Self::Reader,
            (Some(_), Some(_)) => Self::Refused(format!("`{USER}` is there twice")),
            (Some(user), None) => match user.to_str() {
                Ok(user) if !user.is_empty() => Self::User(user.to_owned()),
                Ok(_) | Err(_) => Self::Refused(format!("`{USER}` is empty, or is not ASCII text")),
            },
        }
    }
}

/// What a component of Argo CD asks for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ControlPlaneRequest {
    pub(crate) target: TunnelTarget,
    pub(crate) method: Method,
    /// The protocol that the connection is to be upgraded to.
    pub(crate) upgrade: Option<Protocol>,
    pub(crate) format: ContentFormat,
    pub(crate) user: RequestedUser,
}

/// Proof that a component of Argo CD may send one request to one cluster.
///
/// Its fields are private and only `ControlPlaneAccess::permit` makes it:
///
/// ```compile_fail,E0451
/// fn forge(access: std::sync::Arc<tollgate_cluster::access::ClusterAccess>) {
///     let _ = tollgate_cluster_fronts::ControlPlanePermit { access, ..unreachable!() };
/// }
/// ```
#[derive(Debug)]
pub struct ControlPlanePermit {
    access: Arc<ClusterAccess>,
    attributes: Arc<Attributes>,
    /// Where the path below the cluster's server begins.
    rest: usize,
    identity: Arc<Impersonation>,
    application: Option<Arc<IndexedApplication>>,
    would_refuse: Option<Error>,
    /// Texts of the policy for the record.
    notes: BTreeMap<String, String>,
}

impl ControlPlanePermit {
    pub(crate) fn access(&self) -> &Arc<ClusterAccess> {
        &self.access
    }

    pub(crate) fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    /// The part of a request's path that is below the cluster's server.
    pub(crate) fn rest<'a>(&self, path: &'a str) -> &'a str {
        path.get(self.rest..).unwrap_or_default()
    }

    pub(crate) fn identity(&self) -> &Arc<Impersonation> {
        &self.identity
    }

    /// The Application that the object belongs to, or else the only one that acts as the account.
    pub(crate) fn application(&self) -> Option<&Arc<IndexedApplication>> {
        self.application.as_ref()
    }

    /// What the policy adds to the decision record.
    pub(crate) fn notes(&self) -> &BTreeMap<String, String> {
        &self.notes
    }

    /// Why mode enforce would refuse it. `None` if it would not, and in that mode.
    pub(crate) fn would_refuse(&self) -> Option<&Error> {
        self.would_refuse.as_ref()
    }
}

/// Proof that the caller is a component of Argo CD and the cluster is enrolled. Whether the request
/// is permitted may still depend on its object.
#[derive(Debug)]
pub(crate) struct ControlPlaneAccess {
    access: Arc<ClusterAccess>,
    /// Where the path below the cluster's server begins.
    rest: usize,
    /// What that path means there.
    pub(crate) attributes: Arc<Attributes>,
    dry_run: bool,
    actor: Actor,
}

/// Who acts.
#[derive(Debug)]
enum Actor {
    /// This identity, regardless of the object.
    Reads(Arc<Impersonation>),
    /// This account, if one of its Applications may write the object.
    Writes(Arc<ActingAccount>),
    /// The account of the Application that the object belongs to.
    OwnerOfObject,
    /// Nobody.
    Nobody,
}

impl ControlPlaneAccess {
    /// Finds the cluster of a request, which goes into `record`, and who is to act there.
    pub(crate) fn find(
        policies: &Policies,
        clusters: &Clusters,
        principal: &Principal,
        request: &ControlPlaneRequest,
        record: Option<&mut OpenRecord>,
    ) -> Result<Self, Error> {
        let target = &request.target;
        let is_component =
            |caller: &ControlPlaneCaller| caller.issuer == principal.issuer() && caller.user == principal.username();
        let settings = policies.config.control_plane.as_ref();
        let is_known = settings.is_some_and(|settings| settings.callers.iter().any(is_component));
        let found = clusters
            .find_enrolled(target.authority.as_str(), target.path())
            .filter(|_| is_known);
        let Some((access, rest)) = found else {
            // Without a cluster it is not known where the path below its server begins.
            let attributes = Attributes::read(&request.method, target.path(), target.query(), None);
            let reason = "this is for Argo CD's own components, and for clusters that they reach through the gateway";
            return Err(Error::NotVisible(status_message::forbidden(
                principal.username(),
                &attributes,
                reason,
            )));
        };
        if let Some(record) = record {
            record.note(|record| record.destination = Some(Arc::clone(access.cluster())));
        }
        Self::new(Arc::clone(access), rest, policies, principal, request)
    }

    fn new(
        access: Arc<ClusterAccess>,
        rest: &str,
        policies: &Policies,
        principal: &Principal,
        request: &ControlPlaneRequest,
    ) -> Result<Self, Error> {
        let attributes = Attributes::read(&request.method, rest, request.target.query(), request.upgrade);
        let text = |reason: &str| status_message::forbidden(principal.username(), &attributes, reason);
        let subresource = attributes.subresource.as_deref().unwrap_or_default();
        let is_terminal = is_exec(&attributes) && request.user == RequestedUser::Reader;
        // In a tunnel the gateway sees bytes, and cannot judge what they ask. argocd-server's terminal is the exception:
        // it is judged by the Application that owns the pod.
        let is_refused =
            request.upgrade.is_some() || attributes.is_proxied() || REFUSED_SUBRESOURCES.contains(&subresource);
        if is_refused && !is_terminal {
            let reason = "Argo CD's own components get no tokens of accounts and no tunnels";
            return Err(Error::Subresource(text(reason)));
        }
        // A review is created, but changes nothing.
        let reads = attributes.is_plain_read(&request.method) || is_review(&attributes);
        let actor = match &request.user {
            RequestedUser::Refused(reason) => return Err(Error::Impersonation(text(reason))),
            RequestedUser::User(user) => {
                let index = policies.applications.as_ref().map(|front| &front.index);
                let account = index.and_then(|index| index.acting_in(&access.cluster().server, user));
                let account = account.ok_or_else(|| {
                    let reason = "no Application in this cluster has that account by its project";
                    Error::NoApplication(text(&format!("{reason}: {user}")))
                })?;
                match reads {
                    true => Actor::Reads(Arc::clone(&account.impersonation)),
                    false => Actor::Writes(Arc::clone(account)),
                }
            }
            RequestedUser::Reader if reads => {
                let reader = policies.reader.as_ref().map(Arc::clone);
                Actor::Reads(reader.ok_or_else(|| Error::NoReader(text("the settings name no reader")))?)
            }
            RequestedUser::Reader if is_terminal || is_diff(request, &attributes) || is_deletion(&attributes) => {
                Actor::OwnerOfObject
            }
            RequestedUser::Reader => Actor::Nobody,
        };
        Ok(Self {
            access,
            rest: request.target.path().len().saturating_sub(rest.len()),
            attributes: Arc::new(attributes),
            dry_run: is_dry_run(request.target.query()),
            actor,
        })
    }

    pub(crate) fn cluster(&self) -> &Arc<ClusterAccess> {
        &self.access
    }

    /// Whether the decision depends on the object, or the record of mode audit is to name its
    /// Application.
    pub(crate) fn needs_object(&self, policies: &Policies) -> bool {
        match self.actor {
            Actor::Reads(_) => false,
            Actor::Nobody => mode(policies) == Some(ControlPlaneMode::Audit),
            Actor::Writes(_) | Actor::OwnerOfObject => true,
        }
    }

    /// The account that the request names, if it is to write.
    pub(crate) fn account(&self) -> Option<&Arc<Impersonation>> {
        match &self.actor {
            Actor::Writes(account) => Some(&account.impersonation),
            Actor::Reads(_) | Actor::OwnerOfObject | Actor::Nobody => None,
        }
    }

    /// Decides.
    ///
    /// - `at`: when the request arrived.
    /// - `object`: what the request writes. Without it nothing is permitted that depends on it.
    /// - `record`: keeps what the policy's input was made of. `None` for what has no record.
    pub(crate) fn permit(
        &self,
        policies: &Policies,
        restrictions: &RestrictionsCache,
        caller: &Arc<Caller>,
        at: Timestamp,
        object: Option<&WrittenObject>,
        record: Option<&mut OpenRecord>,
    ) -> Result<ControlPlanePermit, Error> {
        let user = caller.principal.username();
        let text = |reason: &str| status_message::forbidden(user, &self.attributes, reason);
        let decided = match (&self.actor, object) {
            (Actor::Reads(identity), _) => Ok((Arc::clone(identity), None)),
            // SECURITY: which Application the objects of a collection belong to is not looked up, and a
            // selector may name any of them.
            (Actor::Writes(_), _) if is_of_collection(&self.attributes) => {
                Err(Refusal::UnknownObject(OF_COLLECTION.to_owned()))
            }
            (Actor::Writes(account), Some(object)) => self.judge_write(policies, restrictions, account, object),
            (Actor::OwnerOfObject, Some(object)) => self.judge_owner(policies, restrictions, object),
            (Actor::Writes(_) | Actor::OwnerOfObject, None) => Err(Refusal::UnknownObject(
                "it is about no object that is looked at".to_owned(),
            )),
            (Actor::Nobody, _) => Err(Refusal::WithoutAccount(WITHOUT_IMPERSONATION)),
        };
        let (identity, application, would_refuse) = match (decided, mode(policies)) {
            (Ok((identity, application)), _) => (identity, application, None),
            // Mode audit refuses nothing here. Without an account, the gateway acts by its own rights.
            (Err(refusal), Some(ControlPlaneMode::Audit)) => {
                let identity = self
                    .account()
                    .map_or_else(|| Arc::new(Impersonation::Nobody), Arc::clone);
                let application = self.application_of(policies, object);
                (identity, application, Some(refusal.into_error(text)))
            }
            (Err(refusal), Some(ControlPlaneMode::Enforce) | None) => return Err(refusal.into_error(text)),
        };
        let mut permit = ControlPlanePermit {
            access: Arc::clone(&self.access),
            attributes: Arc::clone(&self.attributes),
            rest: self.rest,
            identity,
            application,
            would_refuse,
            notes: BTreeMap::new(),
        };
        let question = self.question(Arc::clone(caller), at, &permit);
        // SECURITY: a front without a bundle is closed.
        let bundle = policies.bundle(Front::ControlPlane).ok_or(rego::Error::Undefined);
        let decision = bundle.and_then(|bundle| bundle.decide(question.input()));
        if let Some(record) = record {
            // Before the decision is looked at, so that an operator can repeat an evaluation that failed.
            question.keep(record);
        }
        let decision = decision.map_err(|source| Error::Policy(text("the policy could not be evaluated"), source))?;
        if !decision.allow {
            return Err(Error::Denied(text(&decision.reason), decision.log));
        }
        permit.notes = decision.log;
        Ok(permit)
    }

    /// What the bundle is asked about what is permitted otherwise.
    fn question(&self, caller: Arc<Caller>, at: Timestamp, permit: &ControlPlanePermit) -> Question {
        Question {
            caller,
            at,
            cluster: Arc::clone(self.cluster().cluster()),
            attributes: Arc::clone(&self.attributes),
            access: match self.actor {
                Actor::Reads(_) => ReadOrWrite::Read,
                Actor::Writes(_) | Actor::OwnerOfObject | Actor::Nobody => ReadOrWrite::Write,
            },
            dry_run: self.dry_run,
            identity: Arc::clone(&permit.identity),
            application: permit.application.clone(),
        }
    }

    /// The Application of a write that is refused, if it is known.
    fn application_of(&self, policies: &Policies, object: Option<&WrittenObject>) -> Option<Arc<IndexedApplication>> {
        let index = policies.applications.as_ref().map(|front| &*front.index);
        let belonging = object.map(|object| object.belonging(index));
        match (belonging, &self.actor) {
            (Some(Ok(Belonging::To(owner))), _) => Some(Arc::clone(owner)),
            (Some(Ok(Belonging::Unknown)), _) => None,
            (_, Actor::Writes(account)) => match account.applications.as_slice() {
                [only] => Some(Arc::clone(only)),
                _ => None,
            },
            (_, Actor::Reads(_) | Actor::OwnerOfObject | Actor::Nobody) => None,
        }
    }

    /// Judges a write as an account that the request names.
    fn judge_write(
        &self,
        policies: &Policies,
        restrictions: &RestrictionsCache,
        account: &ActingAccount,
        object: &WrittenObject,
    ) -> Judged {
        let index = policies.applications.as_ref().map(|front| &*front.index);
        let (applications, to_check) = match object.belonging(index).map_err(Refusal::UnknownObject)? {
            Belonging::Nobody => (account.applications.as_slice(), account.first_of_projects.as_slice()),
            // It belongs to somebody, even if the index has no such Application.
            Belonging::Unknown => return Err(Refusal::Object),
            Belonging::To(owner) => {
                let owner = account.find(&owner.application.name).ok_or(Refusal::Object)?;
                let only = std::slice::from_ref(owner);
                (only, only)
            }
        };
        let check = |application: &Arc<IndexedApplication>| {
            self.check_project(policies, restrictions, application, &account.impersonation, object)
        };
        // The check depends on the project alone.
        first_permitted(to_check, check).map_err(Refusal::Project)?;
        // Of several, the record would name an arbitrary one.
        let only = match applications {
            [only] => Some(Arc::clone(only)),
            _ => None,
        };
        Ok((Arc::clone(&account.impersonation), only))
    }

    /// Judges what acts as the account of the Application that the object belongs to.
    fn judge_owner(&self, policies: &Policies, restrictions: &RestrictionsCache, object: &WrittenObject) -> Judged {
        let index = policies.applications.as_ref().map(|front| &*front.index);
        let belonging = object.belonging(index).map_err(Refusal::UnknownObject)?;
        let server = &self.access.cluster().server;
        let owner = match (belonging, index) {
            (Belonging::To(owner), Some(index)) => index.acting_for(owner, server).map(|account| (owner, account)),
            (Belonging::To(_) | Belonging::Nobody | Belonging::Unknown, _) => None,
        };
        let (owner, account) = owner.ok_or(Refusal::WithoutAccount(OF_NO_APPLICATION))?;
        let identity = &account.impersonation;
        self.check_project(policies, restrictions, owner, identity, object)
            .map_err(Refusal::Project)?;
        Ok((Arc::clone(identity), Some(Arc::clone(owner))))
    }

    /// Whether the Application's project permits what the request does to the object.
    fn check_project(
        &self,
        policies: &Policies,
        restrictions: &RestrictionsCache,
        application: &IndexedApplication,
        identity: &Arc<Impersonation>,
        object: &WrittenObject,
    ) -> Result<(), String> {
        let project = application.project.as_ref().ok_or("the project does not exist")?;
        let target = TargetCluster {
            cluster: self.access.cluster(),
            clusters: &policies.resources.clusters,
        };
        let requested = RequestObject {
            attributes: &self.attributes,
            kind: Some(&object.kind),
            name: object.name.as_ref(),
        };
        let acting = ActingIdentity::ServiceAccount(Arc::clone(identity));
        let restrictions = restrictions.get_or_compile(project);
        let checked = restrictions.check_write(target, requested, &acting);
        checked.map_err(|violation| violation.to_string())
    }
}

/// What the bundle is asked.
#[derive(Debug)]
pub(crate) struct Question {
    caller: Arc<Caller>,
    at: Timestamp,
    cluster: Arc<Cluster>,
    attributes: Arc<Attributes>,
    access: ReadOrWrite,
    dry_run: bool,
    identity: Arc<Impersonation>,
    application: Option<Arc<IndexedApplication>>,
}

impl Question {
    fn input(&self) -> tollgate_rego::Value {
        ControlPlaneInput {
            principal: &self.caller.policy,
            time: &self.at.to_string(),
            cluster: &self.cluster,
            attributes: &self.attributes,
            access: self.access,
            dry_run: self.dry_run,
            identity: &self.identity,
            application: self.application.as_deref().map(|indexed| &*indexed.application),
        }
        .to_value()
    }

    /// Keeps it, so that operators can ask again.
    fn keep(self, record: &mut OpenRecord) {
        let shared = usize::try_from(self.caller.size_kib).unwrap_or(usize::MAX);
        // The Application has labels, and about as much as the attributes.
        let own = attributes_size(&self.attributes).saturating_add(ATTRIBUTE_BYTES);
        let size = shared.saturating_mul(1_024).saturating_add(own);
        record.keep_input(PolicyInputSource::new(Front::ControlPlane, size, move || {
            (json(&self.input()), Vec::new())
        }));
    }
}

/// Who acts, and for which Application if that is known.
type Judged = Result<(Arc<Impersonation>, Option<Arc<IndexedApplication>>), Refusal>;

/// Why a write is refused, or would be in mode enforce.
#[derive(Debug)]
enum Refusal {
    WithoutAccount(&'static str),
    Object,
    UnknownObject(String),
    Project(String),
}

impl Refusal {
    /// - `text`: makes a `Status` message of a reason.
    fn into_error(self, text: impl Fn(&str) -> String) -> Error {
        match self {
            Self::WithoutAccount(reason) => Error::WithoutAccount(text(reason)),
            Self::Object => Error::Object(text(OF_ANOTHER_APPLICATION)),
            Self::UnknownObject(reason) => Error::UnknownObject(text(&reason)),
            Self::Project(reason) => Error::Project(text(&reason)),
        }
    }
}

fn mode(policies: &Policies) -> Option<ControlPlaneMode> {
    policies.config.control_plane.as_ref().map(|settings| settings.mode)
}

/// The refusal of the first, if all are refused.
fn first_permitted<T>(items: &[T], check: impl Fn(&T) -> Result<(), String>) -> Result<(), String> {
    let mut refusal = None;
    for item in items {
        match check(item) {
            Ok(()) => return Ok(()),
            Err(reason) => refusal = refusal.or(Some(reason)),
        }
    }
    Err(refusal.unwrap_or_else(|| "no Application acts as the account".to_owned()))
}

/// Whether it is a terminal in a pod.
fn is_exec(attributes: &Attributes) -> bool {
    let (group, resource) = (attributes.api_group.as_str(), attributes.resource.as_deref());
    let is_upgrade = attributes.upgrade.is_some() && attributes.verb == "create";
    is_upgrade && (group, resource, attributes.subresource.as_deref()) == ("", Some("pods"), Some("exec"))
}

/// Whether the cluster is to store nothing.
fn is_dry_run(query: Option<&str>) -> bool {
    let pairs = url::form_urlencoded::parse(query.unwrap_or_default().as_bytes());
    let mut dry_run = pairs.filter(|(name, _)| name == "dryRun");
    // Anything but exactly one `All` might be stored.
    matches!((dry_run.next(), dry_run.next()), (Some((_, all)), None) if all == "All")
}

/// Whether it is an apply that changes nothing, as for a server-side diff.
fn is_diff(request: &ControlPlaneRequest, attributes: &Attributes) -> bool {
    is_dry_run(request.target.query())
        && request.format == ContentFormat::Apply
        && attributes.verb == "patch"
        && !attributes.has_verb_in_path()
}

/// Whether it changes objects of a collection, and names none.
fn is_of_collection(attributes: &Attributes) -> bool {
    attributes.resource_request && attributes.name.is_none() && attributes.verb != "create"
}

/// Whether it deletes one object.
fn is_deletion(attributes: &Attributes) -> bool {
    attributes.verb == "delete"
        && attributes.resource_request
        && attributes.name.is_some()
        && attributes.subresource.is_none()
        && !attributes.has_verb_in_path()
}

/// Whether the caller asks what it may do itself.
fn is_review(attributes: &Attributes) -> bool {
    attributes.verb == "create"
        && attributes.api_group == REVIEWS_GROUP
        && attributes.subresource.is_none()
        && attributes
            .resource
            .as_deref()
            .is_some_and(|resource| REVIEWS.contains(&resource))
}

impl Error {
    /// The reason code of the refusal.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::NotVisible(_) | Self::Denied(..) => "permission_denied",
            Self::Impersonation(_) => "client_impersonates",
            Self::NoApplication(_) => "account_of_no_application",
            Self::WithoutAccount(_) => "write_without_account",
            Self::Object(_) => "object_of_another_application",
            Self::UnknownObject(_) => "object_unknown",
            Self::Project(_) => "project_refused",
            Self::Subresource(_) => "subresource_refused",
            Self::NoReader(_) => "unusable_identity",
            Self::Policy(..) => "policy_failed",
        }
    }
}

impl From<Error> for Denial {
    fn from(error: Error) -> Self {
        let text = error.to_string();
        let denial = match &error {
            Error::Policy(..) => Self::failed(StatusCode::FORBIDDEN, error.reason(), text),
            Error::NotVisible(_)
            | Error::Impersonation(_)
            | Error::NoApplication(_)
            | Error::WithoutAccount(_)
            | Error::Object(_)
            | Error::UnknownObject(_)
            | Error::Project(_)
            | Error::Subresource(_)
            | Error::NoReader(_)
            | Error::Denied(..) => Self::denied(StatusCode::FORBIDDEN, error.reason(), text),
        };
        denial.caused_by(error)
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderName, HeaderValue};

    use super::RequestedUser;

    fn read(fields: &[(&str, &str)]) -> RequestedUser {
        let mut map = HeaderMap::new();
        for (name, value) in fields {
            let name = HeaderName::try_from(*name).unwrap();
            map.append(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        RequestedUser::read(&map)
    }

    #[test]
    fn only_one_user_can_be_named() {
        let account = "system:serviceaccount:shop:deployer";
        assert_eq!(read(&[]), RequestedUser::Reader);
        assert_eq!(
            read(&[("impersonate-user", account)]),
            RequestedUser::User(account.to_owned())
        );
        for fields in [
            &[("impersonate-user", account), ("impersonate-user", "admin")][..],
            &[("impersonate-user", "")],
            &[("impersonate-user", "ädmin")],
            &[("impersonate-user", account), ("impersonate-group", "system:masters")],
            &[("impersonate-group", "system:masters")],
            &[("impersonate-uid", "1")],
            &[("impersonate-extra-scopes", "x")],
            &[("impersonate_user", account)],
            &[("impersonate.group", "system:masters")],
        ] {
            assert!(matches!(read(fields), RequestedUser::Refused(_)), "{fields:?}");
        }
    }
}
