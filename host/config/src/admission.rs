//! Settings of the admission webhook.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use serde::Deserialize;

use crate::Tls;
use tollgate_core::glob::Pattern;

/// The webhook that judges ApplicationSets, Applications and AppProjects for the API server of the
/// control plane.
#[derive(Clone, Debug)]
pub struct Admission {
    /// Address of a separate listener, for API servers only.
    pub listen: SocketAddr,
    /// Certificate and key of that listener. API servers speak nothing but TLS to webhooks.
    pub tls: AdmissionTls,
    /// PEM file with the authority of the API servers' client certificates. Without it, everybody can
    /// connect, and nobody is signed as the author of a set by the webhook.
    pub client_certificate_authority: Option<PathBuf>,
    /// Whether what it finds refuses a write.
    pub mode: AdmissionMode,
    /// The programs that write for others.
    pub writers: AdmissionWriters,
    /// Patterns of the projects in which the Applications of a project may write Applications and
    /// ApplicationSets, and of the AppProjects that they may write, by the name of the project. Those of
    /// a project that is not listed may write in itself, and no AppProject.
    pub children: BTreeMap<String, Vec<Pattern>>,
}

/// Where the certificate of the webhook comes from.
#[derive(Clone, Debug)]
pub enum AdmissionTls {
    /// PEM files that somebody else renews.
    Files(Tls),
    /// The gateway makes and renews it.
    Managed(ManagedCertificate),
}

/// A certificate that the gateway makes and renews. Replicas share it in a Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManagedCertificate {
    /// Name of the Secret, in the control plane's namespace.
    pub secret: String,
    /// Name of the Service by which API servers call the webhook, in the same namespace.
    pub service: String,
    /// Name of the webhook configurations whose `caBundle` the gateway writes.
    pub webhook_configuration: String,
}

/// What happens to a write that is not permitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum AdmissionMode {
    /// It is refused.
    #[default]
    Enforce,
    /// It passes with a warning for the client; the decision record says why `enforce` would refuse it.
    Audit,
}

/// Usernames of the programs that write for others, as the API server authenticates them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdmissionWriters {
    /// This gateway, which has judged what it writes.
    pub gateway: String,
    /// argocd-server, which has judged by Argo CD's RBAC.
    pub server: String,
    /// Argo CD's application controller.
    pub controller: String,
    /// Argo CD's ApplicationSet controller.
    pub application_set_controller: String,
}
