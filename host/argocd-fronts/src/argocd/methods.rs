//! The methods of Argo CD's API: for each its REST form, the permission that argocd-server checks,
//! and where project, Application and namespace are in its request.
//!
//! Source: the `.proto` files and `server/*/*.go` of Argo CD 3.5. A test compares the table with
//! the `.proto` files and with `swagger.json` of the release that the tests pin.

use matchit::Router;

mod applications;
mod others;

/// HTTP method of the REST form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::AsRefStr)]
#[strum(serialize_all = "UPPERCASE")]
pub enum Verb {
    /// `GET`.
    Get,
    /// `POST`.
    Post,
    /// `PUT`.
    Put,
    /// `PATCH`.
    Patch,
    /// `DELETE`.
    Delete,
}

/// What of the request message is the content of the REST form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestBody {
    /// Nothing: fields come from path and query.
    None,
    /// All of it: fields come from path and content.
    Message,
    /// This field: the others come from path and query.
    Field(&'static str),
}

/// The REST form of a method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rest {
    /// HTTP method.
    pub verb: Verb,
    /// Template of the path, such as `/api/v1/applications/{name}`.
    pub path: &'static str,
    /// A second template.
    pub other_path: Option<&'static str>,
    /// What the content is.
    pub body: RestBody,
}

/// Where a field is in a request message: its name, with dots for fields of fields, and its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldPath {
    /// Such as `application.metadata.name`.
    pub name: &'static str,
    /// Such as `[1, 1, 1]`. Zeros at the end fill it up.
    numbers: [u32; 3],
}

/// What policies read of a request message. `None` where the message has no such field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageFields {
    /// Name of the project.
    pub project: Option<FieldPath>,
    /// Name of the Application.
    pub application: Option<FieldPath>,
    /// Namespace of the Application. Argo CD takes its own namespace if it is empty.
    pub namespace: Option<FieldPath>,
    /// Manifests to sync instead of those in the repository. With any, argocd-server checks
    /// `applications, override` as well.
    pub manifests: Option<FieldPath>,
    /// Whether the object may exist already. Then argocd-server checks the permission to update it.
    pub upsert: Option<FieldPath>,
    /// The object of the Application's resource tree that the call changes.
    pub resource: Option<ResourceFields>,
}

/// Where a request message names an object of a resource tree, and what happens to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResourceFields {
    /// API group.
    pub group: FieldPath,
    /// Kind.
    pub kind: FieldPath,
    /// Namespace.
    pub namespace: FieldPath,
    /// Name.
    pub name: FieldPath,
    /// What happens to it.
    pub change: ResourceChangeFields,
}

/// What a call does to an object of a resource tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResourceChangeFields {
    /// It is patched.
    Patch {
        /// The patch, a text.
        patch: FieldPath,
        /// Its media type.
        kind: FieldPath,
    },
    /// It is deleted.
    Delete,
    /// An action of Argo CD runs on it.
    Action,
}

/// A method of Argo CD's API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ApiMethod {
    /// Service with its package, such as `application.ApplicationService`.
    pub service: &'static str,
    /// Name, such as `Sync`.
    pub name: &'static str,
    /// REST form.
    pub rest: Rest,
    /// RBAC resource that argocd-server checks, such as `applications`; empty if it checks none.
    pub resource: &'static str,
    /// RBAC action that argocd-server checks, such as `sync`; empty if it checks none.
    pub action: &'static str,
    /// Fields of the request message.
    pub fields: MessageFields,
}

impl ApiMethod {
    /// Whether the answer is a stream, which Argo CD's UI opens again whenever it ends.
    pub(crate) fn is_stream(&self) -> bool {
        self.name.starts_with("Watch") || self.name == "PodLogs"
    }

    /// Whether a call may end the session that it is made with, and with it its own answer.
    pub(crate) fn may_end_own_session(&self) -> bool {
        // A changed password or a deleted token ends the very session that sent the call.
        others::SESSION_SERVICES.contains(&self.service) && self.rest.verb != Verb::Get
    }
}

impl MessageFields {
    /// All fields that the message has.
    pub fn all(&self) -> impl Iterator<Item = FieldPath> {
        let Self {
            project,
            application,
            namespace,
            manifests,
            upsert,
            resource,
        } = *self;
        let resource = resource.into_iter().flat_map(|resource| {
            let ResourceFields {
                group,
                kind,
                namespace,
                name,
                change,
            } = resource;
            let patch = match change {
                ResourceChangeFields::Patch { patch, kind } => [Some(patch), Some(kind)],
                ResourceChangeFields::Delete | ResourceChangeFields::Action => [None, None],
            };
            [group, kind, namespace, name]
                .map(Some)
                .into_iter()
                .chain(patch)
                .flatten()
        });
        [project, application, namespace, manifests, upsert]
            .into_iter()
            .flatten()
            .chain(resource)
    }

    const NONE: Self = Self {
        project: None,
        application: None,
        namespace: None,
        manifests: None,
        upsert: None,
        resource: None,
    };

    /// Of a method that creates an object. The field has the same number in all of them.
    const fn upsert(self) -> Self {
        Self {
            upsert: Some(FieldPath {
                name: "upsert",
                numbers: [2, 0, 0],
            }),
            ..self
        }
    }

    const fn project(self, name: &'static str, numbers: [u32; 3]) -> Self {
        Self {
            project: Some(FieldPath { name, numbers }),
            ..self
        }
    }

    const fn application(self, name: &'static str, numbers: [u32; 3]) -> Self {
        Self {
            application: Some(FieldPath { name, numbers }),
            ..self
        }
    }

    const fn namespace(self, name: &'static str, numbers: [u32; 3]) -> Self {
        Self {
            namespace: Some(FieldPath { name, numbers }),
            ..self
        }
    }

    const fn resource(self, change: ResourceChangeFields) -> Self {
        const fn field(name: &'static str, number: u32) -> FieldPath {
            FieldPath {
                name,
                numbers: [number, 0, 0],
            }
        }
        Self {
            resource: Some(ResourceFields {
                namespace: field("namespace", 2),
                name: field("resourceName", 3),
                group: field("group", 5),
                kind: field("kind", 6),
                change,
            }),
            ..self
        }
    }

    const fn manifests(self, name: &'static str, numbers: [u32; 3]) -> Self {
        Self {
            manifests: Some(FieldPath { name, numbers }),
            ..self
        }
    }
}

impl FieldPath {
    /// A field that no message has.
    pub(crate) const fn in_query(name: &'static str) -> Self {
        Self { name, numbers: [0; 3] }
    }

    /// The numbers, one to three.
    pub fn numbers(&self) -> impl Iterator<Item = u32> {
        self.numbers.into_iter().take_while(|number| *number > 0)
    }
}

const fn rest(verb: Verb, path: &'static str, body: RestBody) -> Rest {
    Rest {
        verb,
        path,
        other_path: None,
        body,
    }
}

const fn get(path: &'static str) -> Rest {
    rest(Verb::Get, path, RestBody::None)
}

const fn delete(path: &'static str) -> Rest {
    rest(Verb::Delete, path, RestBody::None)
}

const fn post(path: &'static str, body: RestBody) -> Rest {
    rest(Verb::Post, path, body)
}

const fn put(path: &'static str, body: RestBody) -> Rest {
    rest(Verb::Put, path, body)
}

/// All methods.
pub fn all() -> impl Iterator<Item = &'static ApiMethod> {
    applications::METHODS.iter().chain(others::METHODS)
}

/// Finds methods by their gRPC path or their REST form.
#[derive(Debug)]
pub(crate) struct MethodIndex {
    by_grpc_path: rustc_hash::FxHashMap<String, &'static ApiMethod>,
    by_rest_path: Router<Vec<&'static ApiMethod>>,
}

impl MethodIndex {
    /// # Errors
    /// Templates of two paths contradict each other. Tests rule it out.
    pub(crate) fn try_new() -> Result<Self, matchit::InsertError> {
        let mut by_path: std::collections::BTreeMap<String, Vec<&'static ApiMethod>> =
            std::collections::BTreeMap::new();
        for method in all() {
            for template in std::iter::once(method.rest.path).chain(method.rest.other_path) {
                // Templates that differ in names alone share an entry: to the router they would conflict.
                by_path.entry(unnamed(template)).or_default().push(method);
            }
        }
        let mut by_rest_path = Router::new();
        for (template, methods) in by_path {
            by_rest_path.insert(template, methods)?;
        }
        let grpc_path = |method: &ApiMethod| format!("/{}/{}", method.service, method.name);
        Ok(Self {
            by_grpc_path: all().map(|method| (grpc_path(method), method)).collect(),
            by_rest_path,
        })
    }

    /// - `path`: such as `/application.ApplicationService/Sync`.
    pub(crate) fn by_grpc_path(&self, path: &str) -> Option<&'static ApiMethod> {
        self.by_grpc_path.get(path).copied()
    }

    /// The method with this REST form. Of methods with the same form, argocd-server serves the last
    /// one; they check the same permission.
    pub(crate) fn by_rest(&self, verb: &http::Method, path: &str) -> Option<&'static ApiMethod> {
        let methods = self.by_rest_path.at(path).ok()?.value;
        let mut same_verb = methods
            .iter()
            .rev()
            .filter(|method| method.rest.verb.as_ref() == verb.as_str());
        same_verb.next().copied()
    }
}

/// The template with numbers for names, so that templates that differ in names alone are one.
fn unnamed(template: &str) -> String {
    let segments = template
        .split('/')
        .enumerate()
        .map(|(index, segment)| match segment.strip_prefix('{') {
            None => segment.to_owned(),
            Some(name) if name.ends_with("=**}") => format!("{{*p{index}}}"),
            Some(_) => format!("{{p{index}}}"),
        });
    segments.collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests;
