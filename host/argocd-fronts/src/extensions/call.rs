//! Decodes a routed request head into a [`Call`], or answers 400. It decides nothing.

use std::borrow::Cow;
use std::sync::Arc;

use http::{HeaderMap, Method, StatusCode, request};

pub(crate) mod names;

use crate::extensions::route::ExtensionPath;
use tollgate_config::Compatibility;
use tollgate_core::dns::{is_label, is_subdomain};
use tollgate_front::Denial;
use tollgate_front::extension_registry::Registry;
use tollgate_objects::ObjectName;
use tollgate_objects::extensions::Scope;
use tollgate_rego::ExtensionRequest;

/// One call of an extension, as it was sent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Call {
    pub(crate) attributes: ExtensionAttributes,
    /// The scope of the extension.
    pub(crate) scope: Scope,
    /// `namespace:name` of the application that the caller names.
    pub(crate) application: Option<String>,
    pub(crate) method: Method,
    /// Raw path below the extension, starting with `/`.
    pub(crate) rest: String,
    /// Raw query, without `?` and without the parameters that name application and project.
    pub(crate) query: Option<String>,
}

/// The attributes that authorize a call: its extension and its object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ExtensionAttributes {
    /// Name in the path, registered or not.
    pub name: Arc<str>,
    /// What the caller names.
    pub object: CallObject,
}

/// The object of a call, by the extension's scope.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum CallObject {
    /// One application.
    Application {
        /// Namespace and name.
        application: ObjectName,
        /// The project that the caller names. If it names none, the application's own counts.
        project: Option<String>,
    },
    /// One project.
    Project(String),
    /// The whole installation.
    Global,
}

/// Why a call cannot be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The path names no extension.
    #[error("the path names no extension")]
    MissingName,
    /// The application is not named.
    #[error(
        "header `Argocd-Application-Name` must be provided, or query parameter `argocd-application-name` where no \
         header can be set"
    )]
    MissingApplication,
    /// Not `<namespace>:<name>`.
    #[error("value of `Argocd-Application-Name` must be `<namespace>:<app-name>`")]
    MalformedApplication,
    /// The namespace is not an RFC 1123 label.
    #[error("`Argocd-Application-Name` holds an invalid namespace")]
    InvalidNamespace,
    /// The name is not an RFC 1123 subdomain.
    #[error("`Argocd-Application-Name` holds an invalid application name")]
    InvalidApplication,
    /// The project is not named.
    #[error(
        "header `Argocd-Project-Name` must be provided, or query parameter `argocd-project-name` where no header \
         can be set"
    )]
    MissingProject,
    /// The project is not an RFC 1123 subdomain.
    #[error("`Argocd-Project-Name` holds an invalid project name")]
    InvalidProject,
    /// It is not clear what the request names.
    #[error(transparent)]
    Names(#[from] names::Error),
}

impl Error {
    /// Stable reason for records, metrics and responses.
    pub fn code(&self) -> &'static str {
        match self {
            Self::MissingName => "missing_extension_name",
            Self::MissingApplication => "missing_application_header",
            Self::MalformedApplication => "malformed_application_header",
            Self::InvalidNamespace => "invalid_application_namespace",
            Self::InvalidApplication => "invalid_application_name",
            Self::MissingProject => "missing_project_header",
            Self::InvalidProject => "invalid_project_name",
            Self::Names(error) => error.code(),
        }
    }

    /// The status of the response in the format of Argo CD's extension handler.
    pub fn argocd_status(self) -> StatusCode {
        let denial = Denial::from(self);
        denial.as_argocd.as_ref().map_or(denial.status, |(status, _)| *status)
    }
}

/// Reads the attributes of a call of extension `name`, and the extension's scope. An unregistered extension is read as one of
/// application scope, so that the response does not depend on what exists.
///
/// Argo CD also needs the project of an application named.
///
/// # Errors
/// [`Error`], in the order Argo CD checks: application before project.
pub fn read(
    name: &str,
    registry: &Registry,
    headers: &HeaderMap,
    query: Option<&str>,
    compatibility: Compatibility,
) -> Result<(ExtensionAttributes, Scope), Error> {
    if name.is_empty() {
        return Err(Error::MissingName);
    }
    let extension = registry.find(name);
    let registered = extension.as_ref();
    let scope = registered.map_or(Scope::Application, |extension| extension.spec().scope);
    let object = match scope {
        Scope::Application => CallObject::Application {
            application: application(headers, query)?,
            project: match (project(headers, query)?, compatibility) {
                (None, Compatibility::Argocd) => return Err(Error::MissingProject),
                (project, Compatibility::Argocd | Compatibility::None) => project,
            },
        },
        Scope::Project => CallObject::Project(project(headers, query)?.ok_or(Error::MissingProject)?),
        Scope::Global => CallObject::Global,
    };
    let name = registered.map_or_else(|| Arc::from(name), |extension| Arc::clone(extension.name()));
    Ok((ExtensionAttributes { name, object }, scope))
}

/// Reads and checks the application. Argo CD writes `ns:name`; seed 000 writes `ns/name`, which no
/// valid name can be mistaken for.
fn application(headers: &HeaderMap, query: Option<&str>) -> Result<ObjectName, Error> {
    let value = names::APPLICATION.read(headers, query)?;
    let value = value.ok_or(Error::MissingApplication)?;
    let (namespace, name) = value.split_once([':', '/']).ok_or(Error::MalformedApplication)?;
    // Another reader could split the text at the second separator.
    if name.contains([':', '/']) {
        return Err(Error::MalformedApplication);
    }
    if !is_label(namespace) {
        return Err(Error::InvalidNamespace);
    }
    if !is_subdomain(name) {
        return Err(Error::InvalidApplication);
    }
    Ok(ObjectName {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    })
}

fn project(headers: &HeaderMap, query: Option<&str>) -> Result<Option<String>, Error> {
    match names::PROJECT.read(headers, query)? {
        Some(value) if !is_subdomain(&value) => Err(Error::InvalidProject),
        value => Ok(value.map(Cow::into_owned)),
    }
}

impl Call {
    pub(crate) fn read(
        path: &ExtensionPath,
        head: &request::Parts,
        registry: &Registry,
        compatibility: Compatibility,
    ) -> Result<Self, Error> {
        let query = path.rest.query();
        let (attributes, scope) = read(&path.name, registry, &head.headers, query, compatibility)?;
        let application = attributes.object.application();
        Ok(Self {
            application: application.map(|app| format!("{}:{}", app.namespace, app.name)),
            attributes,
            scope,
            method: head.method.clone(),
            rest: path.rest.path().to_owned(),
            query: names::strip(query).map(Cow::into_owned),
        })
    }
}

impl Call {
    /// What policies see of it, without the project.
    pub(crate) fn as_input(&self) -> ExtensionRequest<'_> {
        ExtensionRequest {
            method: self.method.as_str(),
            path: &self.rest,
            query: self.query.as_deref(),
            project: None,
        }
    }
}

impl CallObject {
    /// Application the caller names, if the scope has one.
    pub fn application(&self) -> Option<&ObjectName> {
        match self {
            Self::Application { application, .. } => Some(application),
            Self::Project(_) | Self::Global => None,
        }
    }

    /// Project the caller names, if any.
    pub fn project(&self) -> Option<&str> {
        match self {
            Self::Application { project, .. } => project.as_deref(),
            Self::Project(project) => Some(project),
            Self::Global => None,
        }
    }
}

impl From<Error> for Denial {
    fn from(error: Error) -> Self {
        let mut denial = Self::denied(StatusCode::BAD_REQUEST, error.code(), error.to_string());
        let what = match error {
            Error::MissingName => "URL",
            Error::MissingApplication
            | Error::MalformedApplication
            | Error::InvalidNamespace
            | Error::InvalidApplication
            | Error::MissingProject
            | Error::InvalidProject
            | Error::Names(_) => "headers",
        };
        denial.as_argocd = Some((StatusCode::BAD_REQUEST, format!("Invalid {what}: {error}").into()));
        denial.caused_by(error)
    }
}

#[cfg(test)]
mod tests;
