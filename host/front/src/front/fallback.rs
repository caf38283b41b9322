//! What serves the paths that are not Tollgate's own: [`Fallback`].

use http::{Extensions, HeaderMap, Uri};

use crate::console::{is_at_own_host, is_of_page};
use tollgate_config::Config;
use tollgate_proxy::server::Client;
use tollgate_proxy::target;

/// Whether the ApplicationSet front is open. Otherwise argocd-server serves them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApplicationSetsServer {
    /// The ApplicationSet front.
    Tollgate,
    /// argocd-server.
    Argocd,
}

impl ApplicationSetsServer {
    /// Who serves them by the settings.
    pub fn of(config: &Config) -> Self {
        match &config.application_sets {
            None => Self::Argocd,
            Some(_) => Self::Tollgate,
        }
    }
}

/// What serves the paths that are not Tollgate's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fallback {
    /// Nothing: they get 404.
    NotFound,
    /// argocd-server, without a root path or below it.
    Argocd(ApplicationSetsServer),
    /// argocd-server, which serves no gRPC below its root path.
    ArgocdBelowRoot(ApplicationSetsServer),
    /// argocd-server, which serves only gRPC outside its root path.
    ArgocdCalls(ApplicationSetsServer),
}

impl Fallback {
    /// What serves the request with this URI. Removes the root path of argocd-server from the URI,
    /// so that every path is read as if there were none; forwarding writes it again.
    // SECURITY: only what is left is judged, and only a path of which exactly the root path was
    // removed is forwarded, so no other spelling of the root path leads to argocd-server.
    // SECURITY: on the console's own host, no page of Argo CD can act as the person who views it.
    // SECURITY: what a page asks is for the gateway's own API, regardless of what else its host
    // serves.
    // SECURITY: in a tunnel to a cluster, paths are the cluster's.
    pub fn take(config: &Config, client: &Client, uri: &mut Uri, headers: &HeaderMap, extensions: &Extensions) -> Self {
        let argocd = match &config.argocd {
            Some(argocd) if !is_of_page(extensions) && client.connect_authority().is_none() => argocd,
            Some(_) | None => return Self::NotFound,
        };
        if is_at_own_host(config, uri, headers) {
            return Self::NotFound;
        }
        let sets = ApplicationSetsServer::of(config);
        let Some(root_path) = &argocd.root_path else {
            return Self::Argocd(sets);
        };
        match below(root_path, uri) {
            Some(inner) => {
                *uri = inner;
                Self::ArgocdBelowRoot(sets)
            }
            None => Self::ArgocdCalls(sets),
        }
    }

    /// Who serves ApplicationSets, if argocd-server serves what is not Tollgate's own.
    pub fn argocd(self) -> Option<ApplicationSetsServer> {
        match self {
            Self::NotFound => None,
            Self::Argocd(sets) | Self::ArgocdBelowRoot(sets) | Self::ArgocdCalls(sets) => Some(sets),
        }
    }
}

/// The URI without the root path. `None` if its path is not below it.
fn below(root_path: &str, uri: &Uri) -> Option<Uri> {
    let rest = uri.path().strip_prefix(root_path)?;
    let rest = match rest {
        // A request target has no empty path (RFC 9112, section 3.2.1).
        "" => "/",
        rest if rest.starts_with('/') => rest,
        // `/argocd-backup` is not below `/argocd`.
        _ => return None,
    };
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(target::join("/", rest, uri.query()).ok()?);
    Uri::from_parts(parts).ok()
}
